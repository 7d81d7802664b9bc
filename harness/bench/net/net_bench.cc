#include "harness/bench/net/net_bench.h"

#include <fmt/format.h>

#include <stdexcept>

#include "fabric/system/number.h"
#include "harness/bench/bench.h"
#include "harness/control/call.h"

namespace plugfest::bench {
namespace {

bool stopped(const NetSettings& settings) { return settings.stop != nullptr && *settings.stop; }

}  // namespace

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
    for (std::size_t round = 0; round < figure.rounds.size() && round < reference->rounds.size(); ++round) {
      ratios.push_back(figure.rounds[round] / reference->rounds[round]);
    }
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
          if (const std::optional<double> value = subjects[i]->measure(row, settings.seconds)) {
            result.figures[i].rounds.push_back(*value);
          }
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
