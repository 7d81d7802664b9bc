// Ranks for rules: starts them where the fabric has NICs, lends them out, takes them back, keeps the clean ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/process/launcher.h"
#include "harness/control/rank.h"
#include "harness/control/record.h"
#include "harness/control/script.h"

namespace plugfest::control {

/// What is tested, and how ranks are started; the same for all ranks of a session.
struct Subject {
  /// As the user gave it: a path, a name to be resolved like NCCL_NET_PLUGIN, "nccl:Socket".
  std::string plugin;
  /// 0: the newest version the plugin has.
  int api = 0;
  /// Added to each rank's environment: LD_LIBRARY_PATH for the NIC, NCCL_*, the plugin's own variables.
  Environment environment = {};
};

struct Limits {
  /// For one call, or for operations that make no progress: 10 s times --timeout-scale.
  double call_seconds = 10;
  /// Calls of each rank that a failure shows.
  std::size_t last_calls = 12;
  /// Of a rank's output kept for each rule.
  std::size_t output_bytes = 64 * 1024;
  /// Becomes readable, and stays so, when the user wants an end: what waits for a rank then throws `Interrupted`. -1:
  /// never.
  int stop_fd = -1;
};

/// How far a rank is when a rule gets it.
///  kBare: the process runs, nothing is loaded. kLoaded: dlopen and look-up. kReady: initialised once, devices counted.
enum class RankState : std::uint8_t { kBare, kLoaded, kReady };

/// How a rank is asked for.
struct RankWish {
  RankState state = RankState::kReady;
  /// A process that no rule has used, and that none will use after this one.
  bool fresh = false;
  /// Added to the subject's environment; such a rank is always fresh.
  Environment environment = {};
};

/// What the ranks of one rule did, for its report.
struct Evidence {
  struct OfRank {
    std::string name;
    /// Oldest first: "+12.345 ms prog  isend(comm 0x1, 1000 bytes, tag 7) → Success, request 0x2 (4 µs)".
    std::vector<std::string> last_calls;
    std::vector<std::string> log;
    std::string output;
  };
  std::vector<OfRank> ranks;
};

class Pool;

/// The ranks of one rule while it runs. One thread.
class Lease {
 public:
  ~Lease();  ///< as `release(false)`
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;

  /// The rank on an interface of a host: "a.eth0". Started when first asked for; a second ask gives the same rank.
  /// Errors: HarnessError when it cannot be started; `Deviation` when the plugin does not come up.
  Rank rank(std::string_view name, const RankWish& wish = {});

  /// The plugin's device of that rank that drives its interface: matched by name.
  /// "eth0" or "roce_eth0", or a name with "eth0" in it, or the only device there is unless it is called "eth1".
  /// Errors: std::runtime_error with the table of devices when none matches.
  Endpoint endpoint(std::string_view name, const RankWish& wish = {});

  /// Throws `Crashed` if a rank has ended other than by Rank::kill, even if no call was under way in it; for the end of
  /// a rule that may not have called it again.
  void check();

  /// Calls, log lines and output of all ranks so far.
  Evidence evidence() const;

  /// Gives the ranks back. `clean`: the rule ended without a deviation. Ranks that are whole then have what the rule
  /// left open closed (deregMr, close, as core does) and are kept for the next rule; all others are killed.
  /// Returns what went wrong while closing, in words, once per rank; it is for information.
  std::vector<std::string> release(bool clean);

 private:
  friend class Session;
  struct Parts;
  explicit Lease(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// All ranks of one subject on one fabric. Thread safety: `lease` may be called from several threads at once; two
/// leases never share a rank: asking for one that another lease holds waits for it.
class Session {
 public:
  /// `launcher` and `observer` must outlive it. `observer`: told of every call; null: nobody.
  Session(Launcher& launcher, Subject subject, Limits limits = {}, CallObserver* observer = nullptr);
  ~Session();  ///< kills all ranks

  Lease lease();
  /// CPU time that idle ranks took, as a share of one core each, since they were last given back; for the run's report.
  double idle_cpu_share() const;

  const Subject& subject() const;
  const Limits& limits() const;

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace plugfest::control
