#include "harness/nccl/log_summary.h"

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

// Counts a channel of a connection.
void add(LogSummary& summary, int from, int to, const std::string& via) {
  const std::string transport = via.substr(0, via.find(' '));
  for (LogSummary::Connection& known : summary.connections) {
    if (known.from != from || known.to != to || known.transport != transport) continue;
    ++known.channels;
    return;
  }
  summary.connections.push_back({from, to, transport, 1});
}

// "CollNet 00/1 : 2 [send] via COLLNET/Sharp/0/GDRDMA"
void add_switches(LogSummary& summary, const std::string& line) {
  const std::string rank = between(line, " : ", " [send] via COLLNET/"), via = between(line, "[send] via ", "");
  int from = 0;
  if (line.find(" CollNet ") == std::string::npos || std::sscanf(rank.c_str(), "%d", &from) != 1) return;
  add(summary, from, LogSummary::Connection::kSwitches, via);
}

// "AllReduce: 24 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..0}"
void add_algorithm(LogSummary& summary, const std::string& line) {
  const std::string text = between(line, " Bytes -> Algo ", " channel");
  const std::string operation = between(line, " NCCL INFO ", ": ");
  const std::size_t protocol = text.find(" proto ");
  if (protocol == std::string::npos || operation.empty()) return;
  const std::string algorithm = text.substr(0, protocol) + text.substr(protocol + 6);
  for (LogSummary::Algorithm& known : summary.algorithms) {
    if (known.operation != operation || known.algorithm != algorithm) continue;
    ++known.operations;
    return;
  }
  summary.algorithms.push_back({operation, algorithm, 1});
}

void add_connection(LogSummary& summary, const std::string& line) {
  // "Channel 00/0 : 0[0] -> 1[0] [send] via NET/mesh/0", "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
  const std::size_t arrow = line.find(" -> "), via = line.find(" via ");
  if (line.find("Channel ") == std::string::npos || arrow == std::string::npos || via == std::string::npos) return;
  if (line.find("[receive]") != std::string::npos) return;
  const std::size_t colon = line.rfind(" : ", arrow);
  if (colon == std::string::npos) return;
  int from = 0, to = 0;
  if (std::sscanf(line.c_str() + colon + 3, "%d", &from) != 1 || std::sscanf(line.c_str() + arrow + 4, "%d", &to) != 1)
    return;
  add(summary, from, to, line.substr(via + 5));
}

}  // namespace

LogSummary summarize(const std::string& log) {
  LogSummary summary;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (const std::string text = between(line, "NCCL version ", ""); !text.empty()) summary.version = text;
    if (const std::string text = between(line, "Loaded net plugin ", ""); !text.empty()) summary.plugin = text;
    // The path, then dlerror's text: "NET/Plugin: /lib/libfoo.so: /lib/libfoo.so: undefined symbol: bar"
    if (const std::string text = between(line, " NET/Plugin: ", "");
        text.starts_with('/') && summary.load_error.empty())
      summary.load_error = text.substr(text.find(": /") == std::string::npos ? 0 : text.find(": /") + 2);
    if (const std::string text = between(line, "Loaded collnet plugin ", ""); !text.empty())
      summary.coll_net_plugin = text;
    if (line.ends_with(", disabling CollNet"))
      summary.coll_net_off = between(line, " NCCL INFO ", ", disabling CollNet");
    if (line.find(" NCCL WARN Cannot initialize CollNet") != std::string::npos)
      summary.coll_net_off = summary.warnings.empty() ? "no warning says why" : summary.warnings.back();
    const std::string profiler = between(line, " PROFILER/Plugin: ", "");
    if (profiler.starts_with("Loaded ")) summary.profiler = between(profiler, "Loaded ", "");
    // The path, then dlerror's text. Plugins write lines of their own with this prefix.
    if (profiler.starts_with('/') || profiler.starts_with("Could not find")) summary.profiler_off = profiler;
    if (line.find("External profiler plugin ") != std::string::npos)
      summary.profiler_off = "it exports no version that NCCL loads";
    if (line.ends_with(" Continue without profiler.")) summary.profiler_off = "its init fails";
    if (const std::string text = between(line, "Using network ", ""); !text.empty()) summary.network = text;
    if (const std::size_t at = line.find(" coll channels"); at != std::string::npos) {
      const std::size_t begin = line.rfind(' ', at - 1);
      std::sscanf(line.c_str() + begin, "%d coll channels, %*d collnet channels, %*d nvls channels, %d p2p channels",
                  &summary.collective_channels, &summary.p2p_channels);
    }
    for (const char* mark : {" NCCL WARN ", " NCCL ERROR "})
      if (const std::string text = between(line, mark, ""); !text.empty()) summary.warnings.push_back(text);
    add_connection(summary, line);
    add_switches(summary, line);
    add_algorithm(summary, line);
  }
  return summary;
}

bool uses_plugin(const LogSummary& summary) {
  const bool own_network = summary.network == "IB" || summary.network == "Socket";
  return !summary.plugin.empty() && (summary.plugin.starts_with(summary.network + " (") || !own_network);
}

std::string net_fallback(const std::vector<std::string>& logs) {
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    const LogSummary summary = summarize(logs[rank]);
    if (summary.network.empty() || uses_plugin(summary)) continue;
    std::string reason = summary.load_error;
    if (reason.empty() && summary.plugin.empty()) reason = "the library has no interface that NCCL loads";
    if (reason.empty() && !summary.warnings.empty()) reason = summary.warnings.back();
    if (reason.empty()) reason = "init fails, or there is no device";
    return fmt::format("NCCL uses the network {} instead of the plugin: rank {}: {}", summary.network, rank, reason);
  }
  return "";
}

std::string coll_net_fallback(const std::vector<std::string>& logs) {
  bool is_loaded = false, is_connected = false;
  std::string reason;
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    const LogSummary summary = summarize(logs[rank]);
    is_loaded |= !summary.coll_net_plugin.empty();
    for (const LogSummary::Connection& one : summary.connections)
      is_connected |= one.to == LogSummary::Connection::kSwitches;
    if (reason.empty() && !summary.coll_net_off.empty())
      reason = fmt::format("rank {}: {}", rank, summary.coll_net_off);
  }
  if (reason.empty() && is_connected) return "";
  if (reason.empty()) reason = is_loaded ? "no rank connects to switches" : "it loaded no CollNet of the plugin";
  return "NCCL continues without CollNet: " + reason;
}

std::string profiler_fallback(const std::vector<std::string>& logs) {
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    const LogSummary summary = summarize(logs[rank]);
    if (!summary.profiler_off.empty())
      return fmt::format("NCCL continues without the profiler: rank {}: {}", rank, summary.profiler_off);
  }
  return "";
}

std::string choices_text(const LogSummary& summary) {
  return fmt::format("{}{}network {}, {} collective and {} p2p channels",
                     summary.plugin.empty() ? "" : fmt::format("net plugin {}, ", summary.plugin),
                     summary.coll_net_plugin.empty() ? "" : fmt::format("CollNet plugin {}, ", summary.coll_net_plugin),
                     summary.network.empty() ? "unknown" : summary.network, summary.collective_channels,
                     summary.p2p_channels);
}

std::string connections_text(const LogSummary& summary) {
  std::string text;
  for (const LogSummary::Connection& one : summary.connections)
    text += fmt::format("{}{} -> {} {} x{}", text.empty() ? "" : ", ", one.from,
                        one.to == LogSummary::Connection::kSwitches ? "switches" : std::to_string(one.to),
                        one.transport, one.channels);
  return text;
}

std::string algorithms_text(const LogSummary& summary) {
  std::string text;
  for (const LogSummary::Algorithm& one : summary.algorithms)
    text += fmt::format("{}{} {} x{}", text.empty() ? "" : ", ", one.operation, one.algorithm, one.operations);
  return text;
}

}  // namespace plugfest::nccl
