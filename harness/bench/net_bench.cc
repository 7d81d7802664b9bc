#include "harness/bench/net_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fabric/system/number.h"
#include "fabric/topology/quantity.h"
#include "harness/bench/bench.h"
#include "harness/control/call.h"

namespace plugfest::bench {
namespace {

using Kind = NetRow::Kind;

constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kKiB * kMiB;
constexpr std::uint64_t kMinForBandwidth = 4 * kKiB;
constexpr std::uint64_t kMaxForLatency = 64 * kKiB;
constexpr std::uint64_t kMax = kGiB;

std::string long_size(std::uint64_t bytes) {
  if (bytes >= kGiB && bytes % kGiB == 0) return fmt::format("{} GiB", bytes / kGiB);
  if (bytes >= kMiB && bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  if (bytes >= kKiB && bytes % kKiB == 0) return fmt::format("{} KiB", bytes / kKiB);
  return fmt::format("{} bytes", bytes);
}

NetRow bandwidth(std::uint64_t size, std::uint32_t comms, bool both) {
  return {.name = fmt::format("bw-{}{}{}", both ? "both-" : "", comms > 1 ? fmt::format("{}x", comms) : "",
                              size_text(size)),
          .measure = fmt::format("bandwidth, messages of {}, {}{}", long_size(size),
                                 comms == 1 ? "one comm" : fmt::format("{} comms", comms), both ? " each way" : ""),
          .unit = kBandwidthUnit,
          .size = size,
          .comms = comms,
          .both_directions = both};
}

NetRow latency(std::uint64_t size, std::uint32_t per_mille) {
  const std::string percentile = fmt::format("p{}", per_mille / 10);
  return {.name = fmt::format("lat-{}{}", per_mille == 500 ? "" : percentile + "-", size_text(size)),
          .measure = fmt::format("half a round trip of {}, {}", long_size(size), percentile),
          .unit = "µs",
          .kind = Kind::kLatency,
          .size = size,
          .per_mille = per_mille};
}

NetRow rate(std::uint64_t size, std::uint32_t group) {
  return {.name = fmt::format("rate-{}{}", group > 1 ? fmt::format("group{}-", group) : "", size_text(size)),
          .measure = fmt::format("messages of {}, {}", long_size(size),
                                 group > 1 ? fmt::format("{} in one receive", group) : "one in a receive"),
          .unit = kRateUnit,
          .kind = Kind::kMessageRate,
          .size = size,
          .group = group};
}

bool stopped(const NetSettings& settings) { return settings.stop != nullptr && *settings.stop; }

}  // namespace

std::vector<std::uint64_t> default_sizes() { return {8, 4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB}; }

std::vector<NetRow> net_rows(const std::vector<std::uint64_t>& sizes) {
  std::vector<NetRow> rows;
  std::vector<std::uint64_t> large;
  for (const std::uint64_t size : sizes)
    if (size >= kMinForBandwidth) large.push_back(size);
  for (const std::uint64_t size : large) rows.push_back(bandwidth(size, 1, false));
  if (!large.empty()) {
    const auto distance = [](std::uint64_t size) {
      return std::abs(std::log2(double(size)) - std::log2(double(kMiB)));
    };
    const std::uint64_t typical = *std::min_element(
        large.begin(), large.end(), [&](std::uint64_t a, std::uint64_t b) { return distance(a) < distance(b); });
    rows.push_back(bandwidth(typical, 1, true));
    for (const std::uint32_t comms : {4u, 16u}) rows.push_back(bandwidth(typical, comms, false));
    NetRow cpu = bandwidth(typical, 1, false);
    cpu.name = "cpu-" + size_text(typical);
    cpu.measure = fmt::format("CPU time of both processes per GiB, messages of {}", long_size(typical));
    cpu.unit = "s/GiB";
    cpu.kind = Kind::kCpu;
    rows.push_back(cpu);
  }
  bool smallest = true;
  for (const std::uint64_t size : sizes) {
    if (size > kMaxForLatency) continue;
    rows.push_back(latency(size, 500));
    if (smallest) rows.push_back(latency(size, 990));
    if (smallest)
      for (const std::uint32_t group : {1u, 8u}) rows.push_back(rate(size, group));
    smallest = false;
  }
  return rows;
}

std::vector<NetRow> rma_rows(const std::vector<std::uint64_t>& sizes) {
  std::vector<NetRow> rows;
  const auto add = [&](Kind kind, std::uint64_t size, std::string name, std::string measure, const char* unit) {
    rows.push_back({.name = std::move(name), .measure = std::move(measure), .unit = unit, .kind = kind, .size = size});
  };
  for (const std::uint64_t size : sizes) {
    if (size < kMinForBandwidth) continue;
    add(Kind::kPut, size, "put-" + size_text(size), fmt::format("bandwidth of puts of {}", long_size(size)),
        kBandwidthUnit);
    add(Kind::kGet, size, "get-" + size_text(size), fmt::format("bandwidth of gets of {}", long_size(size)),
        kBandwidthUnit);
  }
  for (const std::uint64_t size : sizes) {
    if (size > kMaxForLatency) continue;
    add(Kind::kPutSignal, size, "put-signal-" + size_text(size),
        fmt::format("half a round trip of a put of {} with a signal", long_size(size)), "µs");
    add(Kind::kGetTime, size, "get-lat-" + size_text(size), fmt::format("a get of {}", long_size(size)), "µs");
  }
  add(Kind::kSignalTime, sizeof(std::uint64_t), "signal", "a signal without data, until it is complete", "µs");
  return rows;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kGiB && bytes % kGiB == 0) return fmt::format("{}G", bytes / kGiB);
  if (bytes >= kMiB && bytes % kMiB == 0) return fmt::format("{}M", bytes / kMiB);
  if (bytes >= kKiB && bytes % kKiB == 0) return fmt::format("{}K", bytes / kKiB);
  return fmt::format("{}", bytes);
}

std::vector<std::uint64_t> parse_sizes(const std::string& text) {
  const auto refuse = [&] {
    return std::runtime_error(
        fmt::format("--sizes \"{}\": expected sizes from 1 to 1G in bytes, such as 8,64K,1M", text));
  };
  std::vector<std::uint64_t> sizes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    try {
      sizes.push_back(topology::parse_size(std::string_view(text).substr(at, end - at), kMax));
    } catch (const std::runtime_error&) {
      throw refuse();
    }
    at = end + 1;
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void summarize(NetResult& result) {
  const NetFigure* reference = nullptr;
  for (NetFigure& figure : result.figures) {
    if (figure.rounds.empty()) continue;
    figure.value = median(figure.rounds);
    if (reference == nullptr) {
      reference = &figure;
      result.reference = figure.subject;
      continue;
    }
    std::vector<double> ratios;
    for (std::size_t round = 0; round < figure.rounds.size() && round < reference->rounds.size(); ++round)
      ratios.push_back(figure.rounds[round] / reference->rounds[round]);
    figure.ratio = median(ratios);
  }
}

std::vector<NetResult> run_net_bench(const std::vector<std::unique_ptr<NetSubject>>& subjects,
                                     const NetSettings& settings) {
  std::vector<NetResult> results;
  for (const NetRow& row : settings.rows) {
    NetResult result{.row = row, .reference = {}, .figures = {}};
    for (const auto& subject : subjects)
      result.figures.push_back({.subject = subject->name(), .rounds = {}, .value = {}, .ratio = {}});
    for (int round = 0; round < settings.rounds; ++round) {
      for (std::size_t i = 0; i < subjects.size(); ++i) {
        if (stopped(settings)) return results;
        try {
          if (const std::optional<double> value = subjects[i]->measure(row, settings.seconds))
            result.figures[i].rounds.push_back(*value);
        } catch (const control::Interrupted&) {
          return results;
        } catch (const std::runtime_error& error) {
          if (stopped(settings)) return results;  // Ctrl-C also ends perftest
          throw std::runtime_error(fmt::format("{}, row {}: {}", subjects[i]->name(), row.name, error.what()));
        }
      }
    }
    summarize(result);
    results.push_back(std::move(result));
    if (settings.on_result) settings.on_result(results.back());
  }
  return results;
}

}  // namespace plugfest::bench
