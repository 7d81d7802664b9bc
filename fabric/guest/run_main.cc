// guest-run [--result FILE]... [--module NAME]... [--kernel PATH] COMMAND [ARGUMENT...], a program for tests: runs a
// command in a guest.
#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/guest/guest.h"

namespace {

using namespace plugfest::guest;

int run(int argc, char** argv) {
  std::optional<std::filesystem::path> kernel;
  ModuleNames modules = boot_modules();
  CommandLine command;
  command.working_directory = std::filesystem::current_path().string();
  int at = 1;
  for (; at + 1 < argc; at += 2) {
    const std::string_view option = argv[at];
    if (option == "--result")
      command.results.emplace_back(std::filesystem::absolute(argv[at + 1]).string());
    else if (option == "--module")
      modules.required.emplace_back(argv[at + 1]);
    else if (option == "--kernel")
      kernel = argv[at + 1];
    else
      break;
  }
  for (; at < argc; ++at) command.argv.emplace_back(argv[at]);
  if (command.argv.empty()) throw std::runtime_error("no command");
  command.program = command.argv.front();
  for (char** line = environ; *line != nullptr; ++line) command.environment.emplace_back(*line);
  const auto report_progress = [](const std::string& text) { fmt::print(stderr, "plugfest: {}\n", text); };
  const Outcome outcome = run_in_guest(find_kernel(kernel, modules, report_progress), command);
  for (const auto& [path, content] : outcome.results) std::ofstream(path, std::ios::binary) << content;
  return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
    return 2;
  }
}
