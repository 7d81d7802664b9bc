// Starts ranks, lends them to rules, and keeps those that can serve another rule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/launcher.h"
#include "harness/control/rank.h"
#include "harness/control/script.h"
#include "harness/control/subject.h"

namespace plugfest::control {

/// Returns the index of the device whose name contains `interface` as a word ("roce_eth0" contains "eth0"). If there is
/// only one device, returns its index, unless it has the name of another interface. nullopt if none matches.
std::optional<int> device_of_interface(const std::vector<Properties>& devices, std::string_view interface);

/// The message for a rank none of whose `devices` belongs to `interface`, "eth1".
std::string text_of_missing_device(std::string_view rank, std::string_view interface,
                                   const std::vector<Properties>& devices);

/// Whether `name` contains the name of an interface of the same type, as "roce_eth1" does for "eth0".
bool names_similar_interface(std::string_view name, std::string_view interface);

/// State of a rank when a rule gets it.
///  kBare: no plugin is loaded. kLoaded: the plugin is loaded. kReady: it is initialized once and its devices are
///  counted.
enum class RankState : std::uint8_t { kBare, kLoaded, kReady };

/// The kind of rank that a rule requires.
struct RankOptions {
  RankState state = RankState::kReady;
  /// True: a new process, which is killed after the rule.
  bool fresh = false;
  /// Added to the subject's environment. Such a rank is always fresh.
  Environment environment = {};
  /// Whether the process opens the CUDA driver before it loads the plugin, as NCCL does. Such a rank is always fresh.
  bool gpu = false;

  /// Whether the rank may have served earlier rules, and may serve later ones.
  bool is_shared() const { return state == RankState::kReady && !fresh && !gpu && environment.empty(); }
};

struct RankEvidence {
  std::string name;
  /// Oldest first: "+12.345 ms prog  isend(comm 0x1, 1000 bytes, tag 7) → Success, request 0x2 (4 µs)".
  std::vector<std::string> last_calls;
  std::vector<std::string> log;
  std::string output;
  /// All recorded calls: `last_calls` and earlier ones.
  std::vector<CallRecord> calls;
};

/// Calls, log lines and output of the ranks of one rule, for its report.
struct Evidence {
  std::vector<RankEvidence> ranks;
  /// Start of the first call in `calls`, CLOCK_MONOTONIC.
  std::int64_t origin_ns = 0;
};

class Pool;

/// The ranks of one rule while it runs. One thread.
class Lease {
 public:
  ~Lease();  ///< calls `release(false)`
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;

  /// The rank on an interface of a host: "a.eth0". The first call starts it; later ones return the same rank. Errors:
  /// std::runtime_error when it cannot be started; `Deviation` when the plugin cannot be loaded or initialized;
  /// `Unusable` if loading or initializing it has already failed for an earlier lease.
  Rank rank(std::string_view name, const RankOptions& options = {});

  /// The rank, and the plugin's device for its interface: the one in Subject::devices, else device_of_interface().
  /// Errors: std::runtime_error with the table of devices when none matches.
  Endpoint endpoint(std::string_view name, const RankOptions& options = {}) { return endpoint(name, name, options); }
  /// The rank `name`, and the plugin's device for `interface`: the rank "a" and "a.eth1". Errors: see endpoint() above.
  Endpoint endpoint(std::string_view name, std::string_view interface, const RankOptions& options = {});

  /// A lease whose ranks are new processes in addition to the ranks of this lease, and are killed on release.
  Lease with_new_ranks() const;
  /// Ends the ranks of `other` and adds them to the evidence of this lease: "a.eth0 (new)".
  void keep_evidence_of(Lease other);

  /// Errors: `Crashed` if a rank has ended other than by Rank::kill, even if no call was in progress. Call it at the
  /// end of a rule.
  void check();

  /// Sets a function that is called before a rank of this lease is frozen. It must live as long as the lease.
  void before_freeze(std::function<void()> action);

  /// Makes Limits::blocked_seconds longer, for rules that change the network.
  void wait_for_retransmissions();

  /// A limit for operations without progress, in the time of a clock that watches the ranks. Each call returns a new
  /// limit.
  StallLimit stall_limit() const;

  Evidence evidence() const;

  /// Returns the ranks. `clean`: the rule ended without a deviation. In ranks that can serve another rule, all objects
  /// that the rule left open are closed (deregMr, close, as in NCCL); other ranks are killed. Returns the first error
  /// of closing for each rank that had one; the caller may ignore it.
  std::vector<std::string> release(bool clean);

 private:
  friend class Session;
  struct Parts;
  explicit Lease(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// All ranks of one subject on one fabric. Leases never share a rank: Lease::rank waits while another lease holds it.
/// Thread safety: any thread.
class Session {
 public:
  /// `launcher` and `observer` must outlive the session. `observer`: observes every call; may be null.
  Session(Launcher& launcher, Subject subject, Limits limits = {}, CallObserver* observer = nullptr);
  ~Session();  ///< kills all ranks

  Lease lease();
  /// From now on leases give no rank: Lease::rank throws `Unusable`, with `reason`.
  void refuse(const std::string& reason);
  /// Ends the ranks that no lease holds; later leases start new ones.
  void end_idle();
  /// CPU time of idle ranks divided by the time in which they were idle; for the run's report.
  double idle_cpu_share() const;

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace plugfest::control
