// plugfest: reads the command line and runs one subcommand. Every error is one line and exit code 2.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "fabric/input/suggest.h"
#include "harness/cli/command.h"
#include "harness/cli/options/subject.h"
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

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  return names;
}

/// What is to stand after an option, by the word that --help shows there.
std::string expected(const std::string& type) {
  if (type == "N") return "a whole number";
  return type == "X" ? "a number" : type;
}

/// What is wrong with the value of an option, if that is what the library found.
std::optional<std::string> explain_value(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const std::string message = error.what();
    const std::string type = expected(option->get_type_name());
    const std::string conversion = "Could not convert: " + name + " = ";
    if (message.rfind(conversion, 0) == 0) {
      return fmt::format("{} \"{}\": expected {}", name, message.substr(conversion.size()), type);
    }
    const bool concerned = message.rfind(name + ":", 0) == 0 || message.rfind(name + " ", 0) == 0;
    if (concerned && dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
      return fmt::format("{}: expected {} after it, once", name, type);
    }
    if (concerned && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return name + " is missing";
  }
  return std::nullopt;
}

/// The library's message in our words, without advice.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> subcommands = subcommands_of(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (rest.empty() && !subcommands.empty())
    return fmt::format("no subcommand: there are {}", fmt::join(subcommands, ", "));
  if (!rest.empty() && (!subcommands.empty() || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string& word = rest.front();
    if (word.rfind('-', 0) == 0) {
      return fmt::format("unknown option \"{}\": {}", word, plugfest::input::suggestion(word, options_of(app)));
    }
    if (subcommands.empty()) return fmt::format("unexpected argument \"{}\"", word);
    return fmt::format("unknown subcommand \"{}\": {}", word, plugfest::input::suggestion(word, subcommands));
  }
  if (const auto explained = explain_value(app, error)) return *explained;
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
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
  plugfest::cli::add_bench(app, chosen);
  plugfest::cli::add_doctor(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return std::fflush(stdout) == 0 ? 0 : 2;
  } catch (const CLI::ParseError& error) {
    const CLI::App* where = deepest(&app);
    fmt::print(stderr, "plugfest: {}; see {} --help\n", explain(*where, error), path_of(where));
    return 2;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 0) plugfest::cli::set_program_as_typed(argv[0]);
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
  }
  return 2;
}
