// The program plugfest: runs one subcommand. Prints each error and exits with code 2.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "harness/cli/command.h"
#include "harness/cli/options/subject.h"
#include "version.h"

namespace plugfest::cli {
namespace {

std::string version_text() {
  const std::string commit = PLUGFEST_COMMIT;
  return fmt::format("plugfest {}{}", PLUGFEST_VERSION, commit.empty() ? "" : fmt::format(" ({})", commit));
}

int run(int argc, char** argv) {
  if (argc > 0) set_program_as_typed(argv[0]);
  CommandLine line(shell_word(program_as_typed()), "Tests NCCL network plugins on a software RDMA fabric.",
                   version_text());
  add_run(line.program());
  add_rules(line.program());
  add_mutants(line.program());
  add_fabric(line.program());
  add_bench(line.program());
  add_doctor(line.program());
  return line.run(argc, argv);
}

}  // namespace
}  // namespace plugfest::cli

int main(int argc, char** argv) {
  try {
    return plugfest::cli::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
  }
  return 2;
}
