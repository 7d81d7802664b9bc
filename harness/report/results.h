// What a run found, as plain data: the one record that every output is a rendering of.
//
// Stable and versioned as results.json; see the writer beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::report {

/// How a rule ended.
///  pass. warn: an [S] rule is broken. info: an [I] rule, with what was observed. fail: broken. error: the harness or
///  the fabric failed. skip: not checked, with the reason. n/a: does not exist for this version or subject. crash,
///  timeout: a call ended the process, or did not return. missing: asked for and never reported. waived: a known
///  finding.
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

/// What a rank did in one rule; kept for verdicts that someone has to look into.
struct RankRecord {
  std::string name;
  /// Oldest first, one line each.
  std::vector<std::string> last_calls;
  /// What the plugin gave to NCCL's logger.
  std::vector<std::string> log;
  /// stdout and stderr.
  std::string output;
};

/// Something that was made to go wrong on purpose, and when.
struct FaultRecord {
  /// "link a-b down".
  std::string fault;
  /// Where it was asked for: "lab.yaml:4", "--faults".
  std::string source;
  /// The rule in whose course it began; empty when the clock began it.
  std::string rule;
  /// Seconds since the first rule of the run began; in a RuleResult, since the rule began, as far as it was there.
  double start = 0;
  double end = 0;
};

/// A fault whose time never came, so that the run says nothing about it.
struct MissedFault {
  std::string fault;
  std::string source;
  /// "XF-06 made 2 isend calls".
  std::string reason;
};

struct RuleResult {
  /// "CN-06", its few words, and 'M', 'S' or 'I'.
  std::string id;
  std::string title;
  /// The clause in whole sentences, and where it comes from.
  std::string text = {};
  std::string source = {};
  char level = 'M';
  Verdict verdict = Verdict::kMissing;
  double seconds = 0;
  /// Expected and got, a reason, or what was observed; lines separated by '\n'. May be empty.
  std::string message;
  /// What the file of known findings says about it; empty when it says nothing.
  std::string known;
  /// The command that runs this one rule again.
  std::string rerun;
  /// Where it ran: "a.eth0 b.eth0"; empty when it did not.
  std::string path;
  std::vector<RankRecord> ranks;
  /// Those that could be felt on its path while it ran.
  std::vector<FaultRecord> faults = {};
};

/// All rules of one plugin and version.
struct Run {
  std::string plugin_path;
  std::string plugin_name;
  /// Versions of the net interface that the plugin has, newest first.
  std::vector<int> apis;
  int api = 0;
  std::uint64_t seed = 0;
  double seconds = 0;
  /// CPU time that idle ranks took, as a share of one core each.
  double idle_cpu_share = 0;
  std::vector<RuleResult> rules;
  /// In the order in which they began.
  std::vector<FaultRecord> faults;
  std::vector<MissedFault> missed_faults;
};

/// One row of the kill matrix.
struct MutantResult {
  std::string name;
  /// The rules that must catch it.
  std::vector<std::string> rules;
  bool killed = false;
  /// Which of `rules` caught it.
  std::vector<std::string> killed_by;
  /// Rules that have nothing to do with it and did not pass: should be empty.
  std::vector<std::string> caught_wrongly;
  double seconds = 0;
  /// How each of these rules ended.
  std::vector<RuleResult> evidence;
};

}  // namespace plugfest::report
