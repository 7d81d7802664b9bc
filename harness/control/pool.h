// The rank processes of a session, in use and idle. Internal to this folder.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/control/process/capture.h"
#include "harness/control/rank_process.h"
#include "harness/control/session.h"

namespace plugfest::control {

/// Thread safety: any thread.
class Pool {
 public:
  using Peers = std::vector<std::weak_ptr<RankProcess>>;

  Pool(Launcher& launcher, Subject subject, Limits limits, CallObserver* observer);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Waits until the rank of that name is not in use. Returns its idle process if `options` allow it, else a new one in
  /// the requested state. `clock`: the clock of its deadlines while it is in use. Errors: as Lease::rank; the rank is
  /// then not in use, and `failed` is its dead process, if it was started.
  std::shared_ptr<RankProcess> acquire(const std::string& name, const RankOptions& options,
                                       const std::shared_ptr<LoadClock>& clock, std::shared_ptr<RankProcess>& failed);
  /// Starts a process with the name of rank `name`, even if that rank is in use. It never becomes idle. Errors: as
  /// `acquire`.
  std::shared_ptr<RankProcess> start(const std::string& name, const RankOptions& options,
                                     const std::shared_ptr<LoadClock>& clock, std::shared_ptr<RankProcess>& failed);
  /// Ends the use of a rank. `keep`: keeps the process for another rule, unless one of `peers` ends; otherwise kills
  /// it. `peers`: processes to which it may have connected.
  void release(const std::string& name, std::shared_ptr<RankProcess> process, bool keep, const Peers& peers = {});

  /// From now on `start` throws `Unusable`, with `reason`.
  void refuse(const std::string& reason);
  void end_idle();

  double idle_cpu_share() const;
  const Limits& limits() const { return limits_; }

 private:
  struct Entry {
    bool in_use = false;
    std::shared_ptr<RankProcess> idle;
    /// The process that was idle last, and its peers. If a peer has ended, the process still holds
    /// state about it. Rules other than ER-13 must not get such a process.
    std::weak_ptr<RankProcess> owner;
    Peers peers;
    std::int64_t idle_since_ns = 0;
    std::int64_t cpu_at_idle_ns = 0;
  };

  /// Takes the idle process, which must exist.
  std::shared_ptr<RankProcess> take_from(Entry& entry);
  std::shared_ptr<RankProcess> take_idle(const std::string& name, const RankOptions& options);
  /// Ends the idle processes with a dead peer, then their peers, and so on. Requires the lock.
  void end_idle_peers_of_dead();
  /// Errors: `Unusable` if no rank of this pool has reached `state` and one has failed to reach it.
  void require_usable(RankState state);
  /// Records that a rank has reached `reached`, and that it failed to reach the next state for `reason`; "": no
  /// failure.
  void note(RankState reached, const std::string& reason);

  Launcher& launcher_;
  const Subject subject_;
  const Limits limits_;
  CallObserver* const observer_;
  Collector collector_;
  HangPlaces hang_places_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;
  std::int64_t idle_ns_ = 0;
  std::int64_t idle_cpu_ns_ = 0;
  /// The furthest state that any rank has reached, and why the first rank that failed did not go further.
  RankState reached_ = RankState::kBare;
  std::string refusal_;
  /// Whether no rank may start.
  bool refused_ = false;
};

/// Brings a new process into a state. Errors: as Rank::load, Rank::init.
void prepare(const std::shared_ptr<RankProcess>& process, RankState state);

/// Closes all open objects in NCCL's order: deregMr of all registrations, then the memory is unmapped, then comms,
/// listeners and contexts are closed. Returns the first error, or "".
std::string close_all(const std::shared_ptr<RankProcess>& process);

}  // namespace plugfest::control
