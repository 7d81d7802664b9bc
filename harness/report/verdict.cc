#include "harness/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "fabric/system/text.h"
#include "harness/report/text.h"

namespace plugfest::report {

std::string_view text(Verdict verdict) { return kVerdictTexts[static_cast<std::size_t>(verdict)]; }

bool is_bad(Verdict verdict) {
  return verdict == Verdict::kFail || verdict == Verdict::kCrash || verdict == Verdict::kTimeout ||
         verdict == Verdict::kError || verdict == Verdict::kMissing;
}

bool is_broken(Verdict verdict) {
  return verdict == Verdict::kFail || verdict == Verdict::kWarn || verdict == Verdict::kCrash ||
         verdict == Verdict::kTimeout;
}

bool is_good(Verdict verdict) {
  return verdict == Verdict::kPass || verdict == Verdict::kInfo || verdict == Verdict::kNotApplicable;
}

std::size_t Summary::total() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

int Summary::exit_code() const {
  if (total() == 0 || of(Verdict::kError) != 0 || of(Verdict::kMissing) != 0) return 2;
  return of(Verdict::kFail) != 0 || of(Verdict::kCrash) != 0 || of(Verdict::kTimeout) != 0 ? 1 : 0;
}

std::string Summary::describe() const {
  std::string line;
  for (const Verdict verdict : kVerdicts) {
    if (of(verdict) == 0) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", of(verdict), text(verdict));
  }
  return line.empty() ? "no rules" : line;
}

Summary summarize(std::span<const Run> runs) {
  Summary summary;
  for (const Run& run : runs)
    for (const RuleResult& rule : run.rules) summary.add(rule);
  return summary;
}

int exit_code(const Document& document) {
  if (document.stop_signal != 0) return 128 + document.stop_signal;
  bool deviates = false;
  // A fault that was never injected: the plugin was not tested with it, so the run must not appear to have passed.
  bool incomplete = std::any_of(document.runs.begin(), document.runs.end(),
                                [](const Run& run) { return !run.missed_faults.empty(); });
  for (const MutantResult& mutant : document.mutants) {
    deviates = deviates || !mutant.killed || !mutant.undeclared.empty();
    incomplete = incomplete || std::any_of(mutant.evidence.begin(), mutant.evidence.end(), [](const RuleResult& rule) {
                   return rule.verdict == Verdict::kError || rule.verdict == Verdict::kMissing;
                 });
  }
  if (incomplete) return 2;
  const int code = document.mutants.empty() ? summarize(document.runs).exit_code() : 0;
  return code == 0 && deviates ? 1 : code;
}

std::vector<Flake> find_flakes(std::span<const Run> runs) {
  std::vector<Flake> rules;
  for (const Run& run : runs) {
    for (const RuleResult& rule : run.rules) {
      const auto same = [&](const Flake& flake) { return flake.id == rule.id && flake.api == run.api; };
      auto found = std::find_if(rules.begin(), rules.end(), same);
      if (found == rules.end()) found = rules.insert(rules.end(), {rule.id, run.api, {}});
      found->verdicts.add(rule);
    }
  }
  std::erase_if(rules, [](const Flake& flake) {
    return std::count_if(flake.verdicts.counts.begin(), flake.verdicts.counts.end(), [](auto n) { return n != 0; }) < 2;
  });
  return rules;
}

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The first line of the message without the rank's name.
std::string_view without_rank(const RuleResult& rule) {
  std::string_view line = first_line(rule.message);
  const std::size_t colon = line.find(": ");
  if (line.starts_with("rank ") && colon != std::string_view::npos) line.remove_prefix(colon + 2);
  return line;
}

// "test returned ncclInternalError (3)" for "test(request 0x2) returned ncclInternalError (3)"; empty if the line does
// not have that form.
std::string failed_call(std::string_view line) {
  const std::size_t result = line.find(" returned nccl");
  if (result == std::string_view::npos) return "";
  const auto end = std::find_if_not(line.begin(), line.end(), is_word);
  const std::string_view code = line.substr(result, line.find(')', result) + 1 - result);
  return std::string(line.begin(), end) + std::string(code);
}

// `text` with '#' in place of numbers, addresses, and names of ranks such as "a.eth0".
std::string without_numbers(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string_view word = text.substr(i, end - i);
    const bool number = std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (word.empty()) {
      out += text[i++];
    } else {
      out += number ? "#" : word;
      i = end;
    }
  }
  return out;
}

// The common part of failures of one cause.
std::string key(const RuleResult& rule) {
  constexpr std::size_t kMaxBytes = 200;
  const std::string_view line = without_rank(rule).substr(0, kMaxBytes);
  const std::string call = failed_call(line);
  return call.empty() ? without_numbers(line) : call;
}

bool contains_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// How well the rule's title, or otherwise its group, describes the failure.
int relevance(const RuleResult& rule) {
  const std::string& call = rule.cause.call;
  if (call.empty()) return 0;
  // The CL rules say "close" for closeSend, closeRecv and closeListen. The first of them is the one about hangs.
  const bool closes = call.starts_with("close");
  const auto describes = [&](std::string_view text) {
    return contains_word(text, call) || (closes && contains_word(text, "close"));
  };
  if (!describes(rule.title)) return describes(rule.group) ? 1 : 0;
  const bool waits = rule.verdict == Verdict::kTimeout && rule.title.find(" wait") != std::string::npos;
  return waits && !closes ? 3 : 2;
}

// The plugin's last warning in the log of the rank that failed; without such a rank, in any log. May be empty.
std::string last_warning(const RuleResult& rule) {
  constexpr std::size_t kMaxBytes = 300;
  const auto warning_of = [](const RankRecord& rank) {
    const auto found = std::find_if(rank.log.rbegin(), rank.log.rend(),
                                    [](const std::string& line) { return line.starts_with("WARN "); });
    return found == rank.log.rend() ? std::string() : shortened(found->substr(5), kMaxBytes);
  };
  const std::string_view line = first_line(rule.message);
  std::string any;
  for (const RankRecord& rank : rule.ranks) {
    const std::string warning = warning_of(rank);
    if (line.starts_with(fmt::format("rank {}: ", rank.name))) return warning;
    if (any.empty()) any = warning;
  }
  return line.starts_with("rank ") ? "" : any;
}

std::string describe(const std::vector<const RuleResult*>& rules, const RuleResult& start) {
  const auto placed =
      std::find_if(rules.begin(), rules.end(), [](const RuleResult* rule) { return !rule->cause.place.empty(); });
  const Cause& cause = placed == rules.end() ? start.cause : (*placed)->cause;
  const bool one = rules.size() == 1;
  const std::string subject = counted(rules.size(), "rule");
  const bool hangs = start.verdict == Verdict::kTimeout;
  if (hangs || start.verdict == Verdict::kCrash) {
    const std::string verb = hangs ? (one ? "hangs" : "hang") : (one ? "crashes" : "crash");
    const std::string call = cause.call.empty() ? "a thread of the plugin" : cause.call;
    if (cause.place.empty()) return fmt::format("{} {} in {}", subject, verb, call);
    if (!hangs) return fmt::format("{} {} in {} at {}", subject, verb, call, cause.place);
    const auto cut = std::count_if(rules.begin(), rules.end(), [](const RuleResult* rule) { return rule->cut_short; });
    return fmt::format("{} {} in {} ({}){}", subject, verb, cause.place, call,
                       cut == 0 ? "" : fmt::format(", {} of them cut short", cut));
  }
  const std::string_view line = without_rank(start);
  const std::string call = failed_call(line);
  const std::string warning = call.empty() ? "" : last_warning(start);
  return fmt::format("{} {}: {}{}", subject,
                     start.verdict == Verdict::kError ? "could not be tested" : (one ? "fails" : "fail"),
                     call.empty() || one ? std::string(line) : call,
                     warning.empty() ? "" : fmt::format("; the plugin warned: {}", warning));
}

}  // namespace

std::string CauseGroup::headline() const { return fmt::format("{}; start with {}", text, start->id); }

bool same_cause(const RuleResult& one, const RuleResult& other) {
  const auto kind = [](Verdict verdict) { return verdict == Verdict::kWarn ? Verdict::kFail : verdict; };
  if (kind(one.verdict) != kind(other.verdict)) return false;
  if (one.verdict != Verdict::kTimeout && one.verdict != Verdict::kCrash) return key(one) == key(other);
  const bool both_placed = !one.cause.place.empty() && !other.cause.place.empty();
  return both_placed ? one.cause.place == other.cause.place : one.cause.call == other.cause.call;
}

const CauseGroup* shared_cause(const std::vector<CauseGroup>& groups, const RuleResult& rule) {
  for (const CauseGroup& group : groups) {
    const bool member = std::find(group.rules.begin(), group.rules.end(), &rule) != group.rules.end();
    if (member && group.rules.size() > 1) return &group;
  }
  return nullptr;
}

std::vector<CauseGroup> group_by_cause(const std::vector<RuleResult>& rules) {
  std::vector<CauseGroup> groups;
  for (const RuleResult& rule : rules) {
    if (!is_bad(rule.verdict) || rule.verdict == Verdict::kMissing) continue;
    const auto same = [&](const CauseGroup& group) {
      return std::any_of(group.rules.begin(), group.rules.end(),
                         [&](const RuleResult* other) { return same_cause(rule, *other); });
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), CauseGroup{});
    group->rules.push_back(&rule);
  }
  for (CauseGroup& group : groups) {
    group.start = *std::max_element(
        group.rules.begin(), group.rules.end(),
        [](const RuleResult* one, const RuleResult* other) { return relevance(*one) < relevance(*other); });
    group.text = describe(group.rules, *group.start);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const CauseGroup& one, const CauseGroup& other) {
    return one.rules.size() > other.rules.size();
  });
  return groups;
}

}  // namespace plugfest::report
