#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"
#include "harness/cli/nccl/nccl.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

/// Lines of a rank's log that a failure shows.
constexpr std::size_t kShownLogLines = 30;

}  // namespace

void check_reach(const Plugin& plugin, const topology::Graph& graph) {
  if (!plugin.library.empty() || plugin.load == "nccl:Socket") return;
  std::set<std::pair<topology::HostInterface, topology::HostInterface>> reached;
  for (const topology::Path& path : graph.paths()) reached.emplace(path.from, path.to);
  for (std::size_t a = 0; a < graph.hosts.size(); ++a) {
    for (std::size_t b = a + 1; b < graph.hosts.size(); ++b) {
      const std::size_t nics = std::min(graph.hosts[a].interfaces.size(), graph.hosts[b].interfaces.size());
      for (std::size_t i = 0; i < nics; ++i) {
        const topology::HostInterface from{a, i}, to{b, i};
        if (reached.contains({from, to}) || reached.contains({to, from})) continue;
        throw std::runtime_error(
            fmt::format("{}: it connects {} to {}, which do not reach each other in {}: add "
                        "--topology star:3, or another one with switches",
                        plugin.load, graph.interface_name(from), graph.interface_name(to), graph.name));
      }
    }
  }
}

void add_device_memory(Command command, std::string& value) {
  command
      .add_option("--device-memory", value,
                  "split: an access to device memory by the CPU, such as a plugin's, ends the rank with a line that "
                  "names the function; default: shared")
      .type_name("shared|split");
}

bool wants_split_memory(const std::string& value) {
  if (value == "shared" || value == "split") return value == "split";
  throw std::runtime_error(fmt::format("--device-memory \"{}\": expected shared or split", value));
}

void print_log(std::size_t rank, const std::string& host, const std::string& log) {
  std::string text = log;
  std::size_t at = text.size();
  for (std::size_t lines = 0; at > 0 && lines <= kShownLogLines; ++lines) {
    const std::size_t before = text.rfind('\n', at - 1);
    at = before == std::string::npos ? 0 : before;
  }
  if (at != 0) text = "…" + text.substr(at);
  fmt::print(stderr, "log of rank {} on {}:\n{}\n", rank, host, shortened_lines(text, 500, 100));
}

void write_log(const std::string& folder, std::size_t rank, const std::string& log) {
  if (folder.empty()) return;
  report::OutputFile file((std::filesystem::path(folder) / fmt::format("rank-{}.log", rank)).string());
  file.write(log);
}

}  // namespace plugfest::cli
