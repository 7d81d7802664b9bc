// The result of one rule as plain data. Structs have the fields of results.json, which docs/results.md
// describes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::report {

/// The verdict of a rule.
///  pass: the rule holds. fail: the plugin broke it. warn: the plugin broke an [S] rule. info: an observation of an [I]
///  rule. crash: a call ended the process. timeout: a call did not return. error: the harness or the fabric failed.
///  skip: not tested. n/a: does not apply to this version or subject. missing: selected, but without verdict. waived:
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
/// Texts by value.
inline constexpr std::array<std::string_view, 11> kVerdictTexts = {
    "pass", "warn", "info", "fail", "error", "skip", "n/a", "crash", "timeout", "missing", "waived"};
inline std::span<const std::string_view> texts_of(Verdict) { return kVerdictTexts; }

/// One plugin call, or several equal ones in sequence.
struct CallSpan {
  std::string thread;
  std::string call;    ///< "isend(1000 bytes, tag 7)"
  std::string result;  ///< "request 0x2", "not done"
  /// Seconds since the first call of all ranks of the rule: start of the first call, end of the last one.
  double start = 0;
  double end = 0;
  std::uint64_t count = 1;
  PLUGFEST_FIELDS(thread, call, result, figure(start), figure(end), count)
};

/// Record of a rank during one rule; only for bad verdicts.
struct RankRecord {
  std::string name;
  /// The last calls, oldest first, one line each.
  std::vector<std::string> last_calls;
  /// Messages of the plugin to NCCL's logger.
  std::vector<std::string> log;
  std::string output;
  /// The last calls, oldest first: `last_calls` and earlier ones, for the timeline.
  std::vector<CallSpan> calls = {};
  PLUGFEST_FIELDS(name, last_calls, log, output, or_default(calls))
};

/// A RoCE packet of a rule with captured packets, as its sender sent it.
struct PacketRecord {
  double time = 0;   ///< seconds since the first packet of the capture
  std::string from;  ///< "192.168.100.1"
  std::string to;
  std::string what;              ///< "WRITE last", "ACK"
  std::uint32_t queue_pair = 0;  ///< queue pair of the receiver
  std::uint32_t psn = 0;
  std::uint32_t bytes = 0;  ///< payload
  /// "retransmission", "NAK: PSN sequence error", "RNR NAK", "congestion notification"; empty for other packets.
  std::string mark;
  PLUGFEST_FIELDS(time, from, to, what, queue_pair, psn, bytes, mark)
};

struct Capture {
  std::string file;  ///< pcapng
  /// The last packets, sorted by time.
  std::vector<PacketRecord> packets;
  std::uint64_t left_out = 0;  ///< number of earlier packets that are only in the file
  PLUGFEST_FIELDS(file, left_out, packets)
};

struct FaultRecord {
  /// "link a-b down".
  std::string fault;
  /// The definition of the fault: "lab.yaml:4", "--faults".
  std::string source;
  /// The rule during which the fault started; empty if a time started it.
  std::string rule;
  /// Seconds since the start of the first rule. In a RuleResult: seconds since the start of that rule, clipped to it.
  double start = 0;
  double end = 0;
  PLUGFEST_FIELDS(fault, source, start, end, unless_empty(rule))
};

/// A fault that never started, or that had no effect.
struct MissedFault {
  std::string fault;
  std::string source;
  /// "XF-06 made 2 isend calls".
  std::string reason;
  PLUGFEST_FIELDS(fault, source, reason)
};

/// The plugin's device for an interface, and how it was found.
struct DeviceRecord {
  std::string interface;  ///< "a.eth0"
  std::string device;     ///< its name
  int index = 0;
  /// "name", "pciPath", "trial", "order" or "--device": see docs/results.md.
  std::string found_by;
  PLUGFEST_FIELDS(interface, device, index, found_by)
};

/// An interface, "a.eth0", and the counters of its NIC that healthy traffic does not increase, "unknown_queue_pairs",
/// with their values while a rule ran. Without counters of value 0.
using NicRecord = std::pair<std::string, std::vector<std::pair<std::string, std::uint64_t>>>;

/// The location of a hang or crash, to group failures by cause. Empty for other verdicts.
struct Cause {
  /// The plugin's function: "test". Empty: none was running.
  std::string call;
  /// The innermost location in the plugin, with the system call in which it waits: "read at p.c:56", "p.c:10". Empty if
  /// it is unknown, or if the call did not wait and therefore was at a random location in a loop.
  std::string place;
  PLUGFEST_FIELDS(or_default(call), or_default(place))
};

struct RuleResult {
  std::string id;           ///< "CN-06"
  std::string title;        ///< the clause in a few words
  std::string text = {};    ///< the clause in sentences
  std::string source = {};  ///< source of the clause
  char level = 'M';         ///< 'M', 'S' or 'I'
  Verdict verdict = Verdict::kMissing;
  double seconds = 0;
  /// Seconds since the start of the first rule; nothing if the rule did not start.
  std::optional<double> start = {};
  /// The expected and the actual result, a reason, or an observation. Lines are separated by '\n'. May be empty.
  std::string message;
  /// The known finding that applies; may be empty.
  std::string known;
  std::string rerun;
  /// The path of the rule, "a.eth0 b.eth0"; empty if the rule did not run.
  std::string path;
  std::vector<RankRecord> ranks;
  /// Faults that affected the hosts of the path while the rule ran.
  std::vector<FaultRecord> faults = {};
  /// Only for broken rules: the counters of the path's NICs. Without NICs whose counters are all 0.
  std::vector<NicRecord> nics = {};
  /// The part of the contract that the rule belongs to: "connect and accept".
  std::string group = {};
  Cause cause = {};
  /// The call was not given its full time limit, because other calls have hung at its place.
  bool cut_short = false;
  /// Set by `plugfest report --pcap`.
  std::optional<Capture> capture = {};
  PLUGFEST_FIELDS(id, title, text, source, level, verdict, seconds, message, rerun, unless_empty(group), figure(start),
                  unless_empty(path), unless_empty(known), when(!cause.call.empty(), cause), when(cut_short, cut_short),
                  unless_empty(faults), capture, unless_empty(nics), unless_empty(ranks))
};

}  // namespace plugfest::report
