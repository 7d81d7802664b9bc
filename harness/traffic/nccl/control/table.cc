#include "harness/traffic/nccl/control/table.h"

#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

namespace plugfest::nccl {
namespace {

std::string timing_text(const TableRow& row, const std::optional<Timing>& timing) {
  if (!timing) return fmt::format(" {:>8} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  const std::string time = timing->microseconds < 99999 ? fmt::format("{:.2f}", timing->microseconds)
                                                        : fmt::format("{:.0f}", timing->microseconds);
  return fmt::format(" {:>8} {:>7.2f} {:>7.2f} {:>6}", time, algorithm_bandwidth(row, *timing),
                     bus_bandwidth(row, *timing), timing->wrong);
}

}  // namespace

std::string table_heading() {
  return fmt::format("#{:>12} {:>13} {:>9} {:>7} {:>5} {:^31} {:^31}\n", "", "", "", "", "", "out-of-place",
                     "in-place") +
         fmt::format("#{:>12} {:>13} {:>9} {:>7} {:>5} {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6}\n", "size",
                     "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
                     "#wrong") +
         fmt::format("#{:>12} {:>13} {:>9} {:>7} {:>5} {:>8} {:>7} {:>7} {:>6} {:>8} {:>7} {:>7} {:>6}\n", "(B)",
                     "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

std::string table_row(const TableRow& row) {
  const Measurement& wanted = row.measurement;
  return fmt::format(" {:>12} {:>13} {:>9} {:>7} {:>5}{}{}\n", wanted.bytes, row.count,
                     type_names()[static_cast<std::size_t>(wanted.type)],
                     reduces(wanted.operation) ? redop_names()[static_cast<std::size_t>(wanted.redop)] : "none",
                     has_root(wanted.operation) ? wanted.root : -1, timing_text(row, row.out_of_place),
                     timing_text(row, row.in_place));
}

double algorithm_bandwidth(const TableRow& row, const Timing& timing) {
  return timing.microseconds <= 0 ? 0 : static_cast<double>(row.measurement.bytes) / timing.microseconds / 1e3;
}

double bus_bandwidth(const TableRow& row, const Timing& timing) {
  const double ranks = row.ranks;
  double factor = 1;
  if (row.measurement.operation == Operation::kAllReduce) factor = 2 * (ranks - 1) / ranks;
  if (divides_size(row.measurement.operation)) factor = (ranks - 1) / ranks;
  return algorithm_bandwidth(row, timing) * factor;
}

TableRow row_of(const Measurement& measurement, const std::vector<std::string>& answers) {
  TableRow row{.measurement = measurement, .ranks = static_cast<int>(answers.size())};
  if (has_in_place(measurement.operation)) row.in_place = Timing{};
  const auto add = [&](Timing& sum, std::istringstream& words) {
    Timing one;
    words >> one.microseconds >> one.wrong;
    sum.microseconds += one.microseconds / static_cast<double>(answers.size());
    sum.wrong += one.wrong;
  };
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const std::string& answer = answers[rank];
    std::istringstream words(answer);
    words >> row.count;
    add(row.out_of_place, words);
    if (row.in_place) add(*row.in_place, words);
    if (!words) throw std::runtime_error(fmt::format("a rank answered \"{}\" to a run", answer));
    if (std::string first; row.first_wrong.empty() && std::getline(words >> std::ws, first))
      row.first_wrong = fmt::format("rank {}: {}", rank, first);
  }
  return row;
}

}  // namespace plugfest::nccl
