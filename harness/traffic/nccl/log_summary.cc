#include "harness/traffic/nccl/log_summary.h"

#include <fmt/format.h>

#include <cstdio>
#include <sstream>

namespace plugfest::nccl {
namespace {

// The text of `line` between `before` and `after`; empty if the line lacks one.
std::string between(const std::string& line, const std::string& before, const std::string& after) {
  const std::size_t at = line.find(before);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + before.size();
  const std::size_t end = after.empty() ? line.size() : line.find(after, begin);
  return end == std::string::npos ? "" : line.substr(begin, end - begin);
}

void add_connection(LogSummary& summary, const std::string& line) {
  // "Channel 00/0 : 0[0] -> 1[0] [send] via NET/mesh/0", "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
  const std::size_t arrow = line.find(" -> "), via = line.find(" via ");
  if (line.find("Channel ") == std::string::npos || arrow == std::string::npos || via == std::string::npos) return;
  if (line.find("[receive]") != std::string::npos) return;
  const std::size_t colon = line.rfind(" : ", arrow);
  if (colon == std::string::npos) return;
  LogSummary::Connection connection;
  if (std::sscanf(line.c_str() + colon + 3, "%d", &connection.from) != 1 ||
      std::sscanf(line.c_str() + arrow + 4, "%d", &connection.to) != 1)
    return;
  const std::string rest = line.substr(via + 5);
  connection.transport = rest.substr(0, rest.find(' '));
  for (LogSummary::Connection& known : summary.connections) {
    if (known.from != connection.from || known.to != connection.to || known.transport != connection.transport) continue;
    ++known.channels;
    return;
  }
  connection.channels = 1;
  summary.connections.push_back(connection);
}

}  // namespace

LogSummary summarize(const std::string& log) {
  LogSummary summary;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (const std::string text = between(line, "NCCL version ", ""); !text.empty()) summary.version = text;
    if (const std::string text = between(line, "Loaded net plugin ", ""); !text.empty()) summary.plugin = text;
    if (const std::string text = between(line, "Using network ", ""); !text.empty()) summary.network = text;
    if (const std::size_t at = line.find(" coll channels"); at != std::string::npos) {
      const std::size_t begin = line.rfind(' ', at - 1);
      std::sscanf(line.c_str() + begin, "%d coll channels, %*d collnet channels, %*d nvls channels, %d p2p channels",
                  &summary.collective_channels, &summary.p2p_channels);
    }
    for (const char* mark : {" NCCL WARN ", " NCCL ERROR "})
      if (const std::string text = between(line, mark, ""); !text.empty()) summary.warnings.push_back(text);
    add_connection(summary, line);
  }
  return summary;
}

std::string choices_text(const LogSummary& summary) {
  return fmt::format("{}network {}, {} collective and {} p2p channels",
                     summary.plugin.empty() ? "" : fmt::format("net plugin {}, ", summary.plugin),
                     summary.network.empty() ? "unknown" : summary.network, summary.collective_channels,
                     summary.p2p_channels);
}

std::string connections_text(const LogSummary& summary) {
  std::string text;
  for (const LogSummary::Connection& one : summary.connections)
    text += fmt::format("{}{} -> {} {} x{}", text.empty() ? "" : ", ", one.from, one.to, one.transport, one.channels);
  return text;
}

}  // namespace plugfest::nccl
