// The rank processes of a session: who has which, which are idle. Internal to this folder.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "harness/control/process/capture.h"
#include "harness/control/process/rank_process.h"
#include "harness/control/session.h"

namespace plugfest::control {

/// Thread safety: any thread.
class Pool {
 public:
  Pool(Launcher& launcher, Subject subject, Limits limits, CallObserver* observer);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Waits until nobody has the place of that name, and takes it. Then the idle process there, if `wish` allows for
  /// one, or a new one, brought to the wished state. Errors: as Lease::rank; the place is free again then.
  std::shared_ptr<RankProcess> acquire(const std::string& name, const RankWish& wish);
  /// Frees the place. `keep`: the process is fit for another rule.
  void release(const std::string& name, std::shared_ptr<RankProcess> process, bool keep);

  double idle_cpu_share() const;
  const Subject& subject() const { return subject_; }
  const Limits& limits() const { return limits_; }

 private:
  struct Place {
    bool taken = false;
    std::shared_ptr<RankProcess> idle;
    std::int64_t idle_since_ns = 0;
    std::int64_t cpu_then_ns = 0;
  };

  std::shared_ptr<RankProcess> take_idle(const std::string& name, const RankWish& wish);

  Launcher& launcher_;
  const Subject subject_;
  const Limits limits_;
  CallObserver* const observer_;
  Collector collector_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Place> places_;
  std::int64_t idle_ns_ = 0;
  std::int64_t idle_cpu_ns_ = 0;
};

/// Brings a fresh process to a state. Errors: as Rank::load, Rank::init.
void bring_up(const std::shared_ptr<RankProcess>& process, RankState state);

/// Closes what is open as core does: per comm deregMr of all, then the memory goes, then close; listeners at the end.
/// Returns what went wrong first, in words, or "".
std::string close_all(const std::shared_ptr<RankProcess>& process);

}  // namespace plugfest::control
