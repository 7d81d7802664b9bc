// The results of a run as plain data, from which all output formats are made. Structs have the fields of
// results.json, which docs/results.md describes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/report/rule_result.h"

namespace plugfest::report {

/// A plugin's use of the user-space NIC.
struct Transport {
  /// The libibverbs that the plugin's process has mapped after init; empty: none.
  std::string verbs_library;
  bool is_nic = false;
  /// RoCE packets that all hosts sent during the run.
  std::uint64_t packets = 0;
  PLUGFEST_FIELDS(verbs_library, is_nic, packets)
};

/// A cause shared by bad rules; see group_by_cause().
struct CauseRecord {
  std::string text;
  std::string start;  ///< the rule to examine first
  std::vector<std::string> rules;
  PLUGFEST_FIELDS(text, start, rules)
};
std::vector<CauseRecord> causes_of(const std::vector<RuleResult>& rules);

struct Run {
  std::string plugin_path;
  std::string plugin_name;
  /// The name of the interface as in --interface: "net", "collnet", ….
  std::string interface = "net";
  /// Versions of the interface that the plugin exports, newest first.
  std::vector<int> apis;
  int api = 0;
  std::uint64_t seed = 0;
  double seconds = 0;
  /// CPU time of idle ranks, as a share of one core per rank.
  double idle_cpu_share = 0;
  /// Empty if the plugin failed before it reported its devices.
  std::vector<DeviceRecord> devices = {};
  /// Set on the user-space NIC if the plugin could be initialized.
  std::optional<Transport> transport = {};
  /// Environment variables that may affect the plugin: variables of NCCL and of network libraries, all that the
  /// plugin has read, and all of --env. "NAME=value".
  std::vector<std::string> environment;
  std::vector<RuleResult> rules;
  /// Faults in the order in which they started.
  std::vector<FaultRecord> faults;
  std::vector<MissedFault> missed_faults;
  /// Faults that started, but could affect no rule: warnings.
  std::vector<MissedFault> ineffective_faults = {};

  bool has_faults() const { return !faults.empty() || !missed_faults.empty(); }
  /// "v12", "collnet v12".
  std::string version_text() const { return (interface == "net" ? "v" : interface + " v") + std::to_string(api); }
  PLUGFEST_FIELDS(key("plugin.path", plugin_path), key("plugin.name", plugin_name), key("plugin.versions", apis),
                  or_default(interface), api, seed, seconds, idle_cpu_share, or_default(devices),
                  or_default(environment), computed("causes", [this] { return causes_of(rules); }), rules, transport,
                  when(has_faults(), faults), when(has_faults(), missed_faults), when(has_faults(), ineffective_faults))
};

struct MutantResult {
  std::string name;
  /// Rules that must fail on the mutant.
  std::vector<std::string> rules;
  /// Whether all of `rules` fail on the mutant.
  bool killed = false;
  /// Rules that fail on the mutant, of `rules` and of those that the mutant may break too.
  std::vector<std::string> killed_by;
  /// Other rules that fail on the mutant; should be empty.
  std::vector<std::string> undeclared;
  double seconds = 0;
  /// The results of these rules.
  std::vector<RuleResult> evidence;
  PLUGFEST_FIELDS(name, rules, killed, killed_by, key("caught_wrongly", undeclared), seconds, evidence)
};

/// One pair of NICs, in one direction.
struct PairResult {
  std::string subject;  ///< what connected them, "Mesh v12"
  std::string from;     ///< the sender, "a.eth0"
  std::string to;       ///< the receiver
  /// The verdict on connecting and verifying. kWarn: it works, and is an outlier. kMissing: not measured.
  Verdict verdict = Verdict::kMissing;
  /// The verdict in words: "bandwidth: 1 Gbit/s, median of rail 0 10 Gbit/s". May be empty.
  std::string message;
  /// Nothing: not measured.
  std::optional<double> bits_per_second;
  /// Seconds, half a round trip.
  std::optional<double> latency_p50;
  std::optional<double> latency_p99;
  PLUGFEST_FIELDS(subject, from, to, verdict, message, figure(bits_per_second), figure(latency_p50),
                  figure(latency_p99))
};

/// One measure of one subject.
struct Curve {
  /// What the points are over.
  enum class Axis : std::uint8_t {
    kSize,      ///< size of messages, in bytes
    kMessages,  ///< number of messages
  };
  enum class Kind : std::uint8_t {
    kSubject,    ///< a plugin
    kReference,  ///< the reference: perftest
    kLimit,      ///< line rate
  };
  std::string measure;  ///< "bandwidth, one comm"; curves of one measure share a chart
  std::string unit;     ///< "Gbit/s"
  std::string subject;  ///< "Mesh", "perftest", "line rate"
  Kind kind = Kind::kSubject;
  Axis axis = Axis::kSize;
  /// Size or number, and value in `unit`; ascending.
  std::vector<std::pair<std::uint64_t, double>> points;
  PLUGFEST_FIELDS(measure, unit, subject, kind, or_default(axis), figure(points))
};
/// Texts by value.
inline constexpr std::array<std::string_view, 2> kCurveAxes = {"size", "messages"};
inline std::span<const std::string_view> texts_of(Curve::Axis) { return kCurveAxes; }
inline constexpr std::array<std::string_view, 3> kCurveKinds = {"subject", "reference", "limit"};
inline std::span<const std::string_view> texts_of(Curve::Kind) { return kCurveKinds; }

/// The machine and the resources that the run used.
struct Environment {
  std::string kernel;  ///< "Linux 6.1.0-18-amd64 x86_64"
  std::string cpu;     ///< model and number of processors
  std::string nic;     ///< "roce"
  std::string layout;  ///< placement of hosts, "all hosts in one namespace"; empty: one namespace per host
  std::string topology;
  std::string privileges;  ///< "root" or "user 1000"
  PLUGFEST_FIELDS(kernel, cpu, nic, layout, topology, privileges)
};

/// The hosts, switches and links of a run, to draw them. Empty if unknown.
struct FabricRecord {
  struct Node {
    std::string name;
    /// 0: a host. Others are switches; 1: adjacent to the hosts.
    int tier = 0;
    PLUGFEST_FIELDS(name, tier)
  };
  struct Link {
    /// The interfaces at its ends: "a.eth0". Interfaces of hosts have NICs.
    std::string from;
    std::string to;
    std::string subnet;                      ///< "192.168.1.0/24"
    std::uint64_t rate_bits_per_second = 0;  ///< 0: no limit
    double delay = 0;                        ///< seconds, one way
    PLUGFEST_FIELDS(from, to, subnet, key("rate", rate_bits_per_second), figure(delay))
  };
  std::vector<Node> nodes;
  std::vector<Link> links;
  PLUGFEST_FIELDS(nodes, links)
};

/// A host, NIC or pair of a certification that is lost, broken or slow.
struct Suspect {
  /// "host": lost or never joined. "broken", "slow", "leaks".
  std::string kind;
  /// "h3", "h3.mlx5_0", "h1.mlx5_0 h2.mlx5_0".
  std::string subject;
  std::string why;
  PLUGFEST_FIELDS(kind, subject, why)
};

/// Traffic of many NICs at the same time.
struct LoadResult {
  std::string load;  ///< "all-to-all on rail 0"
  double seconds = 0;
  /// The first deviation; empty if there was none.
  std::string broken;
  /// The lowest and the highest bandwidth of a NIC. Nothing: not measured.
  std::optional<double> lowest_bits_per_second = {};
  std::optional<double> highest_bits_per_second = {};
  PLUGFEST_FIELDS(load, seconds, broken, figure(lowest_bits_per_second), figure(highest_bits_per_second))
};

/// The soak of a pair of NICs.
struct SoakResult {
  std::string pair;  ///< "h1.mlx5_0 h2.mlx5_0"
  double seconds = 0;
  std::uint64_t rounds = 0;
  std::string broken;  ///< the first failure; empty if there was none
  std::vector<std::string> leaks;
  PLUGFEST_FIELDS(pair, figure(seconds), rounds, broken, leaks)
};

/// What two ranks gained while they repeated messages, connections and registrations.
struct SoakRecord {
  struct Growth {
    std::string rank;
    std::string resource;  ///< "resident_bytes", "descriptors", "threads"
    std::string unit;      ///< "message", "connection", "registration"
    double mean = 0;       ///< for each unit
    double standard_error = 0;
    PLUGFEST_FIELDS(rank, resource, unit, mean, standard_error)
  };
  /// What a rank holds.
  struct Held {
    std::string rank;
    std::int64_t resident_bytes = 0;
    std::int64_t descriptors = 0;
    std::int64_t threads = 0;
    PLUGFEST_FIELDS(rank, resident_bytes, descriptors, threads)
  };
  struct Sample {
    double seconds = 0;
    std::uint64_t messages = 0;  ///< of this round and of the measured ones before it
    std::vector<Held> ranks;
    PLUGFEST_FIELDS(figure(seconds), messages, ranks)
  };
  double seconds = 0;
  std::uint64_t rounds = 0;
  /// The first failure of a call or message; empty if there was none.
  std::string message;
  /// A text for each resource that grows.
  std::vector<std::string> leaks;
  std::vector<Growth> growth;
  std::vector<Sample> series;
  PLUGFEST_FIELDS(figure(seconds), rounds, message, leaks, growth, series)

  bool failed() const { return !message.empty() || !leaks.empty(); }
};

/// Memory and descriptors of each rank over the number of messages.
std::vector<Curve> curves_of(const SoakRecord& soak);

/// The verdict of a certification, which depends on more than its rules.
struct CertificationRecord {
  std::string plugin;  ///< its name; empty if no host loaded it
  /// The exit code of certify: 0: passed; 1: a rule, pair or host is bad; 2: not complete.
  int exit_code = 0;
  std::size_t hosts = 0;
  std::size_t nics = 0;
  std::size_t pairs = 0;
  /// What is wrong, except rules: "2 hosts lost or absent: h4, h5".
  std::vector<std::string> reasons;
  std::vector<Suspect> suspects;
  std::vector<std::string> differences;  ///< between hosts
  std::vector<LoadResult> loads;
  std::vector<SoakResult> soaks;
  PLUGFEST_FIELDS(plugin, exit_code, hosts, nics, pairs, reasons, suspects, differences, loads, unless_empty(soaks))
};

/// The release of NCCL whose choice of versions a run tests.
struct ReleaseRecord {
  std::string nccl;  ///< "2.30.7"
  /// The interfaces of the library that it does not use: "GIN v11".
  std::vector<std::string> unused;
  PLUGFEST_FIELDS(nccl, unused)
};

struct Document {
  std::string version;  ///< version of plugfest
  std::string commit;   ///< commit of plugfest; empty if unknown
  Environment environment;
  FabricRecord fabric;
  /// Set by `plugfest run --for`.
  std::optional<ReleaseRecord> release = {};
  std::vector<Run> runs;
  std::vector<MutantResult> mutants;
  std::vector<PairResult> pairs;
  std::vector<Curve> curves;
  /// Set by `plugfest certify`.
  std::optional<CertificationRecord> certification = {};
  /// The signal that stopped the run before its end, for example SIGINT; 0: none. Rules that did not run are missing.
  int stop_signal = 0;
};

/// Returns kernel, processors and privileges of this machine and process.
Environment this_environment();

}  // namespace plugfest::report
