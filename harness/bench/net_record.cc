#include "harness/bench/net_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fabric/system/file.h"
#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/bench/table.h"
#include "harness/wire/json.h"

namespace plugfest::bench {
namespace {

using Verdict = NetChange::Verdict;
using Figures = NetRecord::Row;

constexpr double kMinChange = 0.05;
constexpr double kDeviations = 3;
// 5 % of the values of the standard normal distribution are greater.
constexpr double kQuantile = 1.645;

// The standard deviation of the rounds relative to their median, estimated from their median absolute deviation.
double deviation(const std::vector<double>& rounds) {
  const double middle = median(rounds);
  std::vector<double> distances;
  for (const double round : rounds) distances.push_back(std::abs(round - middle));
  return middle == 0 ? 0 : 1.4826 * median(distances) / middle;
}

double typical_deviation(const NetRecord& record) {
  std::vector<double> deviations;
  for (const Figures& row : record.rows) deviations.push_back(deviation(row.rounds));
  return deviations.empty() ? 0 : median(deviations);
}

// Whether a rank test confirms that the values of `greater` are greater than those of `less`.
bool are_greater(const std::vector<double>& greater, const std::vector<double>& less) {
  double inversions = 0;
  for (const double high : greater)
    for (const double low : less) inversions += high > low ? 0 : high == low ? 0.5 : 1;
  const auto n = static_cast<double>(greater.size()), m = static_cast<double>(less.size());
  return n * m / 2 - inversions - 0.5 >= kQuantile * std::sqrt(n * m * (n + m + 1) / 12);
}

const Figures* find(const NetRecord& record, const std::string& name, const std::string& subject) {
  const auto found = std::find_if(record.rows.begin(), record.rows.end(),
                                  [&](const Figures& row) { return row.name == name && row.subject == subject; });
  return found == record.rows.end() ? nullptr : &*found;
}

// The ratios to perftest in the same round; empty without perftest.
std::vector<double> ratios(const NetRecord& record, const Figures& row) {
  const Figures* const perftest = row.subject == kPerftest ? nullptr : find(record, row.name, kPerftest);
  std::vector<double> ratios;
  for (std::size_t i = 0; perftest != nullptr && i < std::min(row.rounds.size(), perftest->rounds.size()); ++i)
    ratios.push_back(row.rounds[i] / perftest->rounds[i]);
  return ratios;
}

Verdict verdict(const std::vector<double>& before, const std::vector<double>& now, double noise, bool more_is_better) {
  const double change = median(now) / median(before) - 1;
  if (!(std::abs(change) > noise)) return Verdict::kSame;
  if (!(change > 0 ? are_greater(now, before) : are_greater(before, now))) return Verdict::kSame;
  return (change > 0) == more_is_better ? Verdict::kFaster : Verdict::kSlower;
}

}  // namespace

NetRecord net_record(const std::vector<NetResult>& results, const report::Document& document,
                     std::array<double, 2> load, double seconds) {
  const report::Environment& environment = document.environment;
  NetRecord record{.version = document.version,
                   .commit = document.commit,
                   .kernel = environment.kernel,
                   .cpu = environment.cpu,
                   .privileges = environment.privileges,
                   .load = {load.begin(), load.end()},
                   .topology = environment.topology,
                   .seconds = seconds,
                   .rows = {}};
  const std::vector<report::FabricRecord::Link>& links = document.fabric.links;
  if (!links.empty() && links.front().rate_bits_per_second != 0) record.line_rate = links.front().rate_bits_per_second;
  for (const NetResult& result : results) {
    for (const NetFigure& figure : result.figures) {
      if (!figure.value) continue;
      record.rows.push_back({result.row.name, result.row.measure, figure.subject, result.row.size, *figure.value,
                             result.row.unit, figure.rounds});
      if (figure.ratio) record.rows.back().reference = result.reference;
      record.rows.back().ratio = figure.ratio;
    }
  }
  return record;
}

std::string net_json(const NetRecord& record) { return wire::json_text(record); }

NetRecord read_net_record(const std::string& path) {
  const std::string text = read_file(path);
  try {
    NetRecord record = wire::decode_json<NetRecord>(text);
    if (record.schema != NetRecord::kSchema)
      throw std::runtime_error(fmt::format("schema {}, and this plugfest reads {}", record.schema, NetRecord::kSchema));
    return record;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("--against {}: not a file of bench net --json: {}", path, error.what()));
  }
}

void require_comparable(const NetRecord& before, const NetRecord& now, const std::vector<NetRow>& rows,
                        const std::string& path) {
  std::vector<std::string> differences;
  const auto check = [&](const char* what, const auto& there, const auto& here) {
    if (there != here) differences.push_back(fmt::format("{} \"{}\", here \"{}\"", what, there, here));
  };
  check("cpu", before.cpu, now.cpu);
  check("kernel", before.kernel, now.kernel);
  check("topology", before.topology, now.topology);
  check("seconds", before.seconds, now.seconds);
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(fmt::format("--against {}: cannot be compared: {}", path, why));
  };
  if (!differences.empty()) refuse(fmt::format("{}", fmt::join(differences, "; ")));
  bool any = false;
  for (const Figures& row : before.rows) {
    if (std::none_of(rows.begin(), rows.end(), [&](const NetRow& one) { return one.name == row.name; })) continue;
    any = true;
    if (row.rounds.size() < kRoundsToCompare)
      refuse(
          fmt::format("{} has {}, and {} are needed", row.name, counted(row.rounds.size(), "round"), kRoundsToCompare));
  }
  if (!any) refuse("it has no row of this run");
}

std::vector<NetChange> compare(const NetRecord& before, const NetRecord& now) {
  const double least_before = typical_deviation(before), least_now = typical_deviation(now);
  const auto noise = [&](const std::vector<double>& old_rounds, const std::vector<double>& rounds) {
    const double both =
        std::hypot(std::max(deviation(old_rounds), least_before), std::max(deviation(rounds), least_now));
    return std::max(kMinChange, kDeviations * both);
  };
  std::vector<NetChange> changes;
  for (const Figures& row : now.rows) {
    const Figures* const old = find(before, row.name, row.subject);
    if (old == nullptr || old->unit != row.unit || old->rounds.empty() || row.rounds.empty()) continue;
    NetChange change{
        row.name, row.subject, row.unit, median(old->rounds), median(row.rounds), noise(old->rounds, row.rounds)};
    const bool more_is_better = row.unit == kBandwidthUnit || row.unit == kRateUnit;
    change.verdict = verdict(old->rounds, row.rounds, change.noise, more_is_better);
    const std::vector<double> old_ratios = ratios(before, *old), new_ratios = ratios(now, row);
    const bool have_ratios = !old_ratios.empty() && !new_ratios.empty();
    if (have_ratios && verdict(old_ratios, new_ratios, noise(old_ratios, new_ratios), more_is_better) != change.verdict)
      change.verdict = Verdict::kSame;
    changes.push_back(std::move(change));
  }
  return changes;
}

bool any_slower(const std::vector<NetChange>& changes) {
  return std::any_of(changes.begin(), changes.end(),
                     [](const NetChange& change) { return change.verdict == Verdict::kSlower; });
}

std::string changes_text(const std::vector<NetChange>& changes, const std::string& path) {
  std::string text = fmt::format("compared with {}:\n", path);
  std::array<std::size_t, 3> counts{};
  for (const NetChange& change : changes) {
    ++counts.at(static_cast<std::size_t>(change.verdict));
    if (change.verdict == Verdict::kSame) continue;
    text += fmt::format("{} {:<14} {:<13} {:>6} → {:>6} {:<7} {:+.0f} % (noise: {:.0f} %)\n",
                        change.verdict == Verdict::kSlower ? "slower" : "faster", change.name,
                        change.subject.substr(0, 13), number(change.before), number(change.now), change.unit,
                        (change.now / change.before - 1) * 100, change.noise * 100);
  }
  return text + fmt::format("{}: {} slower, {} faster, {} within noise\n", counted(changes.size(), "figure"), counts[0],
                            counts[2], counts[1]);
}

}  // namespace plugfest::bench
