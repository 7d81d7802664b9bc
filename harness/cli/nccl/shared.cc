#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "fabric/system/text.h"
#include "harness/cli/nccl/nccl.h"
#include "harness/cli/options.h"
#include "harness/report/output_file.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

/// Lines of a rank's log that a failure shows.
constexpr std::size_t kShownLogLines = 30;

}  // namespace

void add_job(Command command, JobSelection& job) {
  add_plugin_option(command, job.plugin);
  command.add_option("-t,--topology", job.topology, "Hosts and links to build; default: triangle").type_name("NAME");
  command.add_option("--ranks", job.ranks, "Number of ranks; default: one in each host").at_most(64).type_name("N");
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
  fmt::print(stderr, "log of rank {} on {}:\n{}\n", rank, host,
             report::printable(shortened_lines(text, 500, 100), "\t\n"));
}

void write_log(const std::string& folder, std::size_t rank, const std::string& log) {
  if (folder.empty()) return;
  report::OutputFile file((std::filesystem::path(folder) / fmt::format("rank-{}.log", rank)).string());
  file.write(log);
}

}  // namespace plugfest::cli
