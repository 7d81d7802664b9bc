// plugfest: reads the command line and runs one subcommand. Every error is one line and exit code 2.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "harness/cli/command.h"
#include "harness/cli/suggest.h"
#include "version.h"

namespace {

using plugfest::cli::Body;

std::string version_text() {
  const std::string commit = PLUGFEST_COMMIT;
  return fmt::format("plugfest {}{}", PLUGFEST_VERSION, commit.empty() ? "" : fmt::format(" ({})", commit));
}

/// The subcommand that the words of the command line have led to.
const CLI::App* deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// "plugfest run" for the user to type before --help.
std::string path_of(const CLI::App* app) {
  return app->get_parent() == nullptr ? "plugfest" : path_of(app->get_parent()) + " " + app->get_name();
}

/// The library's message in our words: one line, what to do at its end.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* where = deepest(&app);
  const std::vector<std::string> rest = where->remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !rest.empty()) {
    std::vector<std::string> known;
    const std::string& word = rest.front();
    const bool option = word.rfind('-', 0) == 0;
    if (option) {
      for (const CLI::Option* each : where->get_options()) {
        for (const std::string& name : each->get_lnames()) known.push_back("--" + name);
      }
    } else {
      for (const CLI::App* each : where->get_subcommands({})) known.push_back(each->get_name());
    }
    return fmt::format("{} \"{}\": {}; see {} --help", option ? "unknown option" : "unknown subcommand", word,
                       plugfest::cli::suggestion(word, known), path_of(where));
  }
  std::string message = error.what();
  for (char& c : message) {
    if (c == '\n') c = ' ';
  }
  return fmt::format("{}; see {} --help", message, path_of(where));
}

int run(int argc, char** argv) {
  CLI::App app{"Proves NCCL network plugins on a software RDMA fabric, before they reach a cluster.", "plugfest"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.fallthrough(false);
  Body chosen;
  plugfest::cli::add_run(app, chosen);
  plugfest::cli::add_rules(app, chosen);
  plugfest::cli::add_mutants(app, chosen);
  plugfest::cli::add_fabric(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return std::fflush(stdout) == 0 ? 0 : 2;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "plugfest: {}\n", explain(app, error));
    return 2;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
  }
  return 2;
}
