// The results of a run as plain data. All output formats are made from them. docs/results.md describes results.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plugfest::report {

/// The verdict of a rule.
///  pass: the rule holds. fail: the plugin broke it. warn: the plugin broke an [S] rule. info: an observation of an [I]
///  rule. crash: a call ended the process. timeout: a call did not return. error: the harness or the fabric failed.
///  skip: not checked. n/a: does not apply to this version or subject. missing: selected, but without verdict. waived:
///  broken, and a known finding.
enum class Verdict : std::uint8_t {
  kPass,
  kWarn,
  kInfo,
  kFail,
  kError,
  kSkip,
  kNotApplicable,
  kCrash,
  kTimeout,
  kMissing,
  kWaived,
};

/// One plugin call, or several equal ones in sequence.
struct CallSpan {
  std::string thread;
  std::string call;    ///< "isend(1000 bytes, tag 7)"
  std::string result;  ///< "request 0x2", "not done"
  /// Seconds since the first call of all ranks of the rule: start of the first call, end of the last one.
  double start = 0;
  double end = 0;
  std::uint64_t count = 1;
};

/// Record of a rank during one rule; only for bad verdicts.
struct RankRecord {
  std::string name;
  /// Oldest first, one line each.
  std::vector<std::string> last_calls;
  /// Messages of the plugin to NCCL's logger.
  std::vector<std::string> log;
  /// Standard output and standard error.
  std::string output;
  /// The last calls, oldest first: `last_calls` and those before, for the time line.
  std::vector<CallSpan> calls = {};
};

/// A RoCE packet of a rule whose packets were captured, as its sender sent it.
struct PacketRecord {
  double time = 0;   ///< seconds since the first packet of the capture
  std::string from;  ///< "192.168.100.1"
  std::string to;
  std::string what;              ///< "WRITE last", "ACK"
  std::uint32_t queue_pair = 0;  ///< of the receiver
  std::uint32_t psn = 0;
  std::uint32_t bytes = 0;  ///< payload
  /// "retransmission", "NAK: PSN sequence error", "RNR NAK", "congestion notification"; empty for other packets.
  std::string mark;
};

/// The packets of a rule.
struct Capture {
  std::string file;  ///< pcapng
  /// Of the last packets, in the order of their times.
  std::vector<PacketRecord> packets;
  std::uint64_t left_out = 0;  ///< number of earlier packets that are only in the file
};

/// An injected fault and its time.
struct FaultRecord {
  /// "link a-b down".
  std::string fault;
  /// Where the fault is defined: "lab.yaml:4", "--faults".
  std::string source;
  /// The rule during which the fault started; empty if a time started it.
  std::string rule;
  /// Seconds since the start of the first rule. In a RuleResult: seconds since the start of that rule, clipped to it.
  double start = 0;
  double end = 0;
};

/// A fault that never started, or that nothing felt.
struct MissedFault {
  std::string fault;
  std::string source;
  /// "XF-06 made 2 isend calls".
  std::string reason;
};

/// The plugin's device for an interface, and how it was found.
struct DeviceRecord {
  std::string interface;  ///< "a.eth0"
  std::string device;     ///< its name
  int index = 0;
  /// "name", "pciPath", "trial", "order" or "--device": see docs/results.md.
  std::string found_by;
};

/// What the NIC of an interface counted while a rule ran, other than healthy traffic.
struct NicRecord {
  std::string interface;  ///< "a.eth0"
  /// Names as in results.json, "unknown_queue_pairs", and how often. Without those that were not counted.
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};

/// Where a call hung or crashed, to group failures by cause. Empty for other verdicts.
struct Cause {
  /// The plugin's function: "test". Empty: none was running.
  std::string call;
  /// The innermost place in the plugin, with the system call in which it waits: "read at p.c:56", "p.c:10". Empty if it
  /// is unknown, or if the call did not wait for anything and so was at a random place of a loop.
  std::string place;
};

struct RuleResult {
  std::string id;           ///< "CN-06"
  std::string title;        ///< the clause in a few words
  std::string text = {};    ///< the clause in sentences
  std::string source = {};  ///< where the clause comes from
  char level = 'M';         ///< 'M', 'S' or 'I'
  Verdict verdict = Verdict::kMissing;
  double seconds = 0;
  /// Seconds since the start of the first rule; nothing if the rule did not start.
  std::optional<double> start = {};
  /// What was expected and what happened, a reason, or an observation. Lines are separated by '\n'. May be empty.
  std::string message;
  /// The known finding that applies; may be empty.
  std::string known;
  /// The command that repeats this rule.
  std::string rerun;
  /// The path of the rule, "a.eth0 b.eth0"; empty if the rule did not run.
  std::string path;
  std::vector<RankRecord> ranks;
  /// Faults that affected the hosts of the path while the rule ran.
  std::vector<FaultRecord> faults = {};
  /// Only for rules that are broken: what the NICs of the path counted. Without NICs that counted nothing of it.
  std::vector<NicRecord> nics = {};
  /// The part of the contract that the rule belongs to: "connect and accept".
  std::string group = {};
  Cause cause = {};
  /// With `plugfest report --pcap`.
  std::optional<Capture> capture = {};
};

/// What a plugin used of the user-space NIC.
struct Transport {
  /// The libibverbs that the plugin's process has mapped after init; empty: none.
  std::string verbs_library;
  /// Whether that library is the NIC.
  bool is_nic = false;
  /// RoCE packets that all hosts sent during the run.
  std::uint64_t packets = 0;
};

/// The results of one plugin and version.
struct Run {
  std::string plugin_path;
  std::string plugin_name;
  /// "net", "collnet", "profiler".
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
  /// Only on the user-space NIC, if the plugin could be initialised.
  std::optional<Transport> transport = {};
  /// Variables of the environment that the plugin may depend on: NCCL_* and those of --env. "NAME=value".
  std::vector<std::string> environment;
  std::vector<RuleResult> rules;
  /// In the order of their start.
  std::vector<FaultRecord> faults;
  std::vector<MissedFault> missed_faults;
  /// Faults that started, although no rule could feel them: warnings.
  std::vector<MissedFault> unfelt_faults = {};

  /// "v12", "collnet v12".
  std::string version_text() const { return (interface == "net" ? "v" : interface + " v") + std::to_string(api); }
};

/// The result of one mutant.
struct MutantResult {
  std::string name;
  /// Rules that must catch the mutant.
  std::vector<std::string> rules;
  /// Whether all of `rules` caught the mutant.
  bool killed = false;
  /// Rules that caught the mutant, of `rules` and of those that the mutant may break too.
  std::vector<std::string> killed_by;
  /// Other rules that caught the mutant; should be empty.
  std::vector<std::string> caught_wrongly;
  double seconds = 0;
  /// The results of these rules.
  std::vector<RuleResult> evidence;
};

}  // namespace plugfest::report
