#include "harness/traffic/table.h"

#include <fmt/format.h>

namespace plugfest::traffic {
namespace {

// Bytes on the busiest link for each byte of the size.
double bus_factor(const TableRow& row) {
  const auto ranks = static_cast<double>(row.ranks);
  if (row.collective == "allreduce") return 2 * (ranks - 1) / ranks;
  if (row.collective == "allgather" || row.collective == "reducescatter" || row.collective == "alltoall")
    return (ranks - 1) / ranks;
  return 1;
}

// Four significant digits of slow links.
std::string bandwidth_text(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 3 : 2); }

std::string timing_text(const TableRow& row, const std::optional<Timing>& timing) {
  if (!timing) return fmt::format(" {:>8} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  const double microseconds = timing->seconds * 1e6;
  return fmt::format(" {:>8.{}f} {:>7} {:>7} {:>6}", microseconds, microseconds < 99999 ? 2 : 0,
                     bandwidth_text(algorithm_bandwidth(row, *timing)), bandwidth_text(bus_bandwidth(row, *timing)),
                     timing->wrong);
}

std::string heading_line(const char* size, const char* count, const char* type, const char* redop, const char* root) {
  return fmt::format("#{:>12} {:>13} {:>9} {:>7} {:>5}", size, count, type, redop, root);
}

}  // namespace

double algorithm_bandwidth(const TableRow& row, const Timing& timing) {
  return timing.seconds <= 0 ? 0 : static_cast<double>(row.bytes) / timing.seconds / 1e9;
}

double bus_bandwidth(const TableRow& row, const Timing& timing) {
  return algorithm_bandwidth(row, timing) * bus_factor(row);
}

std::string table_heading(const std::vector<std::string>& groups, bool with_ratio) {
  std::string titles = heading_line("", "", "", "", ""), names = heading_line("size", "count", "type", "redop", "root"),
              units = heading_line("(B)", "(elements)", "", "", "");
  for (const std::string& group : groups) {
    titles += fmt::format(" {:^31.31}", group);
    names += fmt::format(" {:>8} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
    units += fmt::format(" {:>8} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  }
  if (with_ratio) names += fmt::format(" {:>6}", "ratio");
  return titles + "\n" + names + "\n" + units + "\n";
}

std::string table_row(const TableRow& row) {
  std::string text =
      fmt::format(" {:>12} {:>13} {:>9} {:>7} {:>5}", row.bytes, row.count, row.type, row.redop, row.root);
  for (const std::optional<Timing>& timing : row.timings) text += timing_text(row, timing);
  if (row.ratio) text += fmt::format(" {:>6.2f}", *row.ratio);
  return text + "\n";
}

}  // namespace plugfest::traffic
