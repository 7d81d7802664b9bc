// What results.json, the report and the exit code say about a certification.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "fabric/system/text.h"
#include "harness/cluster/certification.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {

int Certification::exit_code() const {
  const auto is_lost = [](const Suspect& suspect) { return suspect.kind == "host"; };
  const auto unreached = [](const PairRecord& pair) { return !pair.reached; };
  if (interrupted || nics.size() < 2 || std::any_of(suspects.begin(), suspects.end(), is_lost) ||
      std::any_of(pairs.begin(), pairs.end(), unreached))
    return 2;
  return suspects.empty() && differences.empty() ? 0 : 1;
}

std::map<std::size_t, std::vector<std::size_t>> Certification::rails() const {
  std::map<std::size_t, std::vector<std::size_t>> rails;
  for (std::size_t i = 0; i < nics.size(); ++i) rails[nics[i].rail].push_back(i);
  return rails;
}

void record_cost(Certification& certification, Hub& hub) {
  certification.counters = hub.counters();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  certification.peak_memory_bytes = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  certification.processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::vector<report::PairResult> pair_results(const Certification& certification) {
  std::vector<report::PairResult> results;
  for (const PairRecord& pair : certification.pairs) {
    report::PairResult result;
    result.subject = certification.plugin_name;
    result.verdict = !pair.reached                  ? report::Verdict::kMissing
                     : pair.outcome.plugin_failed   ? report::Verdict::kFail
                     : !pair.outcome.broken.empty() ? report::Verdict::kError
                     : !pair.slow.empty()           ? report::Verdict::kWarn
                                                    : report::Verdict::kPass;
    result.message = report::printable(pair.outcome.broken.empty() ? pair.slow : pair.outcome.broken);
    const auto measured = [](double value) { return value > 0 ? std::optional(value) : std::nullopt; };
    result.latency_p50 = measured(pair.outcome.latency_p50_seconds);
    result.latency_p99 = measured(pair.outcome.latency_p99_seconds);
    for (const bool back : {false, true}) {
      result.from = certification.nics[back ? pair.other : pair.one].name;
      result.to = certification.nics[back ? pair.one : pair.other].name;
      result.bits_per_second = measured(back ? pair.outcome.back_bits_per_second : pair.outcome.forth_bits_per_second);
      results.push_back(result);
    }
  }
  return results;
}

namespace {

// "2 hosts lost or absent: h4, h5"; empty without members.
void add_reason(std::vector<std::string>& reasons, std::string_view noun, std::string_view state,
                const std::vector<std::string>& members) {
  constexpr std::size_t kMaxNamed = 8;
  if (members.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(members.size(), kMaxNamed); ++i) names += (i == 0 ? "" : ", ") + members[i];
  if (members.size() > kMaxNamed) names += fmt::format(" and {} more", members.size() - kMaxNamed);
  reasons.push_back(fmt::format("{} {}: {}", counted(members.size(), noun), state, names));
}

std::vector<std::string> reasons_of(const Certification& certification) {
  std::vector<std::string> reasons;
  if (certification.interrupted) reasons.emplace_back("stopped before the end");
  const auto subjects = [&](std::string_view kind) {
    std::vector<std::string> all;
    for (const Suspect& suspect : certification.suspects)
      if (suspect.kind == kind && std::find(all.begin(), all.end(), suspect.subject) == all.end())
        all.push_back(suspect.subject);
    return all;
  };
  add_reason(reasons, "host", "lost or absent", subjects("host"));
  if (certification.nics.size() < 2)
    reasons.push_back(fmt::format("{} found, expected two or more", counted(certification.nics.size(), "NIC")));
  const auto unreached = static_cast<std::size_t>(std::count_if(certification.pairs.begin(), certification.pairs.end(),
                                                                [](const PairRecord& pair) { return !pair.reached; }));
  if (unreached != 0)
    reasons.push_back(fmt::format("{} of {} not measured", unreached, counted(certification.pairs.size(), "pair")));
  add_reason(reasons, "part", "broken", subjects("broken"));
  add_reason(reasons, "part", "slow", subjects("slow"));
  add_reason(reasons, "pair", "leaking", subjects("leaks"));
  std::vector<std::string> facts;
  for (const Difference& difference : certification.differences) facts.push_back(difference.what);
  add_reason(reasons, "fact", "not equal on all hosts", facts);
  return reasons;
}

}  // namespace

std::vector<report::Curve> soak_curves(const Certification& certification) {
  constexpr std::size_t kMaxPairs = 3;
  std::vector<const SoakedPair*> pairs;
  for (const SoakedPair& soak : certification.soaks) pairs.push_back(&soak);
  std::stable_partition(pairs.begin(), pairs.end(), [](const SoakedPair* soak) { return !soak->leaks.empty(); });
  std::vector<report::Curve> curves;
  for (std::size_t i = 0; i < std::min(pairs.size(), kMaxPairs); ++i)
    for (report::Curve& curve : report::curves_of(*pairs[i])) curves.push_back(std::move(curve));
  return curves;
}

report::CertificationRecord record_of(const Certification& certification) {
  report::CertificationRecord record;
  record.plugin = certification.plugin_name;
  record.exit_code = certification.exit_code();
  record.hosts = certification.hosts.size();
  record.nics = certification.nics.size();
  record.pairs = certification.pairs.size();
  record.reasons = reasons_of(certification);
  record.suspects = certification.suspects;
  for (const Difference& difference : certification.differences) record.differences.push_back(difference.text());
  for (const LoadRecord& measured : certification.loads) {
    report::LoadResult& load = record.loads.emplace_back();
    load.load = fmt::format("{} on rail {}", measured.kind, measured.rail);
    load.seconds = measured.seconds;
    load.broken = measured.broken;
    for (const auto& [nic, rate] : measured.bits_per_second) {
      load.lowest_bits_per_second = std::min(load.lowest_bits_per_second.value_or(rate), rate);
      load.highest_bits_per_second = std::max(load.highest_bits_per_second.value_or(rate), rate);
    }
  }
  for (const SoakedPair& soak : certification.soaks)
    record.soaks.push_back({fmt::format("{} {}", soak.one, soak.other), soak.seconds, soak.rounds,
                            report::printable(soak.message), soak.leaks});
  return record;
}

std::vector<NamedPair> Certification::named_pairs() const {
  std::vector<NamedPair> named;
  for (const PairRecord& pair : pairs)
    named.push_back({pair.outcome, nics[pair.one].name, nics[pair.other].name, pair.reached});
  return named;
}

std::string Certification::json() const { return wire::json_text(*this); }

}  // namespace plugfest::cluster
