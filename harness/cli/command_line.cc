#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "fabric/input/suggest.h"

namespace plugfest::cli {
namespace {

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

/// What must stand after an option, by the word that --help shows there.
std::string expected_value(const std::string& type) {
  if (type == "N") return "a whole number";
  return type == "X" ? "a number" : type;
}

/// What is wrong with the value of an option, if that is what CLI11 found.
std::optional<std::string> explain_value(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const std::string message = error.what();
    const std::string type = expected_value(option->get_type_name());
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

/// CLI11's message in our words, without advice.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> subcommands = subcommands_of(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (rest.empty() && !subcommands.empty())
    return fmt::format("no subcommand: there are {}", fmt::join(subcommands, ", "));
  if (!rest.empty() && (!subcommands.empty() || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string& word = rest.front();
    if (word.rfind('-', 0) == 0) {
      return fmt::format("unknown option \"{}\": {}", word, input::suggestion(word, options_of(app)));
    }
    if (subcommands.empty()) return fmt::format("unexpected argument \"{}\"", word);
    return fmt::format("unknown subcommand \"{}\": {}", word, input::suggestion(word, subcommands));
  }
  if (const auto explained = explain_value(app, error)) return *explained;
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

}  // namespace

Option& Option::type_name(const std::string& name) { return option_->type_name(name), *this; }
Option& Option::required() { return option_->required(), *this; }
Option& Option::expected(int least, int most) { return option_->expected(least, most), *this; }
Option& Option::delimiter(char character) { return option_->delimiter(character), *this; }
Option& Option::range(int least, int most) { return option_->check(CLI::Range(least, most)), *this; }
Option& Option::check(std::function<std::string(const std::string&)> why_not) {
  return option_->check(std::move(why_not)), *this;
}
Option& Option::excludes(const std::string& name) { return option_->excludes(name), *this; }
Option& Option::value_if_bare(const std::string& value) { return option_->default_str(value), *this; }

Command Command::add_subcommand(const std::string& name, const std::string& help) {
  return {app_->add_subcommand(name, help), chosen_};
}
void Command::require_subcommand() { app_->require_subcommand(1); }

Option Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::add_option(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
Option Command::add_option(const std::string& names, std::vector<int>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
Option Command::add_option(const std::string& names, int& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::add_option(const std::string& names, double& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::add_option(const std::string& names, std::uint64_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::add_option(const std::string& names, std::optional<std::uint64_t>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
void Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, help);
}

void Command::keep_rest() { app_->prefix_command(); }
std::vector<std::string> Command::rest() const { return app_->remaining(); }

void Command::set_body(Body body) {
  app_->callback([chosen = chosen_, body = std::move(body)] { *chosen = body; });
}

CommandLine::CommandLine(const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, "plugfest")) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough(false);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app_->exit(asked);
    return std::fflush(stdout) == 0 ? 0 : 2;
  } catch (const CLI::ParseError& error) {
    const CLI::App* where = deepest(app_.get());
    fmt::print(stderr, "plugfest: {}; see {} --help\n", explain(*where, error), path_of(where));
    return 2;
  }
  return chosen_();
}

}  // namespace plugfest::cli
