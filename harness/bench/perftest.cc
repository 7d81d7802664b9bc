#include "harness/bench/perftest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace plugfest::bench {
namespace {

[[noreturn]] void fail(std::string_view program, std::string_view output) {
  throw std::runtime_error(fmt::format("no result in the output of {}:\n{}", program, output));
}

/// The numbers of the line after the heading "#bytes …".
std::vector<double> result_line(std::string_view program, std::string_view output, std::size_t columns) {
  std::istringstream lines{std::string(output)};
  bool after_heading = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("#bytes") != std::string::npos) {
      after_heading = true;
      continue;
    }
    if (!after_heading) continue;
    std::istringstream words(line);
    std::vector<double> numbers;
    for (double number; words >> number;) numbers.push_back(number);
    if (numbers.size() >= columns) return numbers;
  }
  fail(program, output);
}

}  // namespace

Bandwidth read_bandwidth(std::string_view program, std::string_view output) {
  // #bytes #iterations BW-peak BW-average MsgRate
  const std::vector<double> numbers = result_line(program, output, 5);
  return {.gbits_per_second = numbers[3], .million_messages_per_second = numbers[4]};
}

Latency read_latency(std::string_view program, std::string_view output) {
  // #bytes #iterations t_min t_max t_typical …; t_typical is the median.
  return {.median_us = result_line(program, output, 5)[4]};
}

double read_iperf(std::string_view output) {
  const auto json = nlohmann::json::parse(output, nullptr, false);
  const auto path = nlohmann::json::json_pointer("/end/sum_received/bits_per_second");
  if (json.is_discarded() || !json.contains(path)) fail("iperf3", output);
  return json[path].get<double>() / 1e9;
}

double read_named(std::string_view program, std::string_view output, std::string_view name) {
  std::istringstream lines{std::string(output)};
  std::string word;
  double number = 0;
  while (lines >> word)
    if (word == name && lines >> number) return number;
  fail(program, output);
}

}  // namespace plugfest::bench
