// The broken and the slow parts of a cluster, from the measurements of its pairs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "harness/cluster/certification.h"
#include "harness/control/call.h"
#include "harness/report/text.h"

namespace plugfest::cluster {
namespace {

std::string rate_text(double bits_per_second) { return fmt::format("{:.3g} Gbit/s", bits_per_second / 1e9); }

// The processors of hosts, which do other work too, change latencies more than bandwidths.
constexpr double kSlowLatencyPart = 1.0 / 3;

// Adds outliers of one figure of one rail. `value`: larger is better; 0: not measured. `text`: formats a value.
void add_slow(Certification& certification, std::size_t rail, const std::string& what, double part,
              const std::function<double(const PairOutcome&)>& value, const std::function<std::string(double)>& text) {
  std::vector<PairFigure> figures;
  std::vector<PairRecord*> records;
  for (PairRecord& pair : certification.pairs) {
    if (certification.nics[pair.one].rail != rail || !pair.outcome.broken.empty() || value(pair.outcome) <= 0) continue;
    figures.push_back({pair.one, pair.other, value(pair.outcome)});
    records.push_back(&pair);
  }
  const Outliers found = find_slow(figures, part);
  const auto mark = [](PairRecord& pair, const std::string& why) {
    pair.slow += (pair.slow.empty() ? "" : "; ") + why;
  };
  for (const Outliers::Member& member : found.members) {
    const std::string why = fmt::format("{}: median of its pairs {}, of the rest of rail {} {}", what,
                                        text(member.value), rail, text(found.median));
    const std::string& name = certification.nics[member.number].name;
    certification.suspects.push_back({"slow", name, why});
    for (PairRecord* const pair : records)
      if (pair->one == member.number || pair->other == member.number) mark(*pair, name + ": " + why);
  }
  for (const std::size_t pair : found.pairs) {
    const PairFigure& figure = figures[pair];
    const std::string why =
        fmt::format("{}: {}, median of rail {} {}", what, text(figure.value), rail, text(found.median));
    certification.suspects.push_back(
        {"slow", fmt::format("{} {}", certification.nics[figure.one].name, certification.nics[figure.other].name),
         why});
    mark(*records[pair], why);
  }
}

// Adds a NIC as broken if most of its pairs are broken; adds other broken pairs individually.
void add_broken(Certification& certification, const std::set<std::string>& lost_hosts) {
  // Other pairs were not measured because the user ended the run, or because a host is lost; lost hosts are listed
  // separately.
  const auto counts = [&](const PairRecord& pair) {
    return !pair.interrupted && !lost_hosts.contains(certification.nics[pair.one].host) &&
           !lost_hosts.contains(certification.nics[pair.other].host);
  };
  std::map<std::size_t, std::vector<const PairRecord*>> broken;
  std::map<std::size_t, std::size_t> all;
  for (const PairRecord& pair : certification.pairs) {
    if (!counts(pair)) continue;
    ++all[pair.one];
    ++all[pair.other];
    if (pair.outcome.broken.empty()) continue;
    broken[pair.one].push_back(&pair);
    broken[pair.other].push_back(&pair);
  }
  std::set<std::size_t> blamed;
  for (const auto& [nic, pairs] : broken) {
    if (all[nic] < 2 || 2 * pairs.size() <= all[nic]) continue;
    blamed.insert(nic);
    certification.suspects.push_back({"broken", certification.nics[nic].name,
                                      fmt::format("{} of its {} pairs are broken; the first: {}", pairs.size(),
                                                  all[nic], pairs.front()->outcome.broken)});
  }
  for (const PairRecord& pair : certification.pairs) {
    if (!counts(pair) || pair.outcome.broken.empty()) continue;
    if (blamed.contains(pair.one) || blamed.contains(pair.other)) continue;
    certification.suspects.push_back(
        {"broken", fmt::format("{} {}", certification.nics[pair.one].name, certification.nics[pair.other].name),
         pair.outcome.broken});
  }
}

}  // namespace

void find_suspects(Certification& certification, const std::function<std::string(const std::string& host)>& loss_of) {
  std::set<std::string> lost_hosts;
  for (HostRecord& host : certification.hosts) {
    if (host.joined && host.problem.empty()) host.problem = loss_of(host.name);
    if (host.problem.empty()) continue;
    lost_hosts.insert(host.name);
    certification.suspects.push_back({"host", host.name, host.problem});
  }
  add_broken(certification, lost_hosts);
  for (const auto& [rail, members] : certification.rails()) {
    // A link may be slow in one direction.
    add_slow(
        certification, rail, "bandwidth", kSlowPart,
        [](const PairOutcome& outcome) {
          return std::min(outcome.forth_bits_per_second, outcome.back_bits_per_second);
        },
        rate_text);
    add_slow(
        certification, rail, "latency", kSlowLatencyPart,
        [](const PairOutcome& outcome) {
          return outcome.latency_p50_seconds > 0 ? 1 / outcome.latency_p50_seconds : 0;
        },
        [](double value) { return fmt::format("{:.3g} µs", value > 0 ? 1e6 / value : 0); });
  }
  for (const LoadRecord& load : certification.loads) {
    if (load.broken.empty()) continue;
    certification.suspects.push_back(
        {"broken", fmt::format("{} on rail {}", load.kind, load.rail), report::printable(load.broken)});
  }
  for (const SoakedPair& soak : certification.soaks) {
    const std::string subject = fmt::format("{} {}", soak.one, soak.other);
    if (!soak.message.empty() && !soak.interrupted && !lost_hosts.contains(control::host_of(soak.one)) &&
        !lost_hosts.contains(control::host_of(soak.other)))
      certification.suspects.push_back({"broken", subject, "soak: " + report::printable(soak.message)});
    if (!soak.leaks.empty())
      certification.suspects.push_back({"leaks", subject, fmt::to_string(fmt::join(soak.leaks, "; "))});
  }
}

}  // namespace plugfest::cluster
