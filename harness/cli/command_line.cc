#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "fabric/system/text.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kOptionWidth = 26;
constexpr std::size_t kOptionTextWidth = report::kColumns - kOptionWidth;

std::string option_help(const std::string& text) { return report::wrapped(text, 0, kOptionTextWidth); }

/// The subcommand that the command line has selected.
const CLI::App* selected(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// "plugfest run": the words before --help.
std::string path_of(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name() : path_of(app->get_parent()) + " " + app->get_name();
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

/// Describes an option's value by its placeholder in --help.
std::string expected_value(const std::string& type) {
  if (type == "N") return "a whole number";
  return type == "X" ? "a number" : type;
}

/// Describes an error in the value of an option; std::nullopt if `error` is another error.
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
      if (option->get_positional()) return fmt::format("{}: expected at most {}", name, option->get_expected_max());
      return fmt::format("{}: expected {} after it, once", name, type);
    }
    if (concerned && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return name + " is missing";
  }
  return std::nullopt;
}

/// Describes an error for the user.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  if (const auto explained = explain_value(app, error)) return *explained;
  const std::vector<std::string> subcommands = subcommands_of(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (rest.empty() && !subcommands.empty() && dynamic_cast<const CLI::ValidationError*>(&error) == nullptr)
    return fmt::format("no subcommand: there are {}", fmt::join(subcommands, ", "));
  if (!rest.empty() && (!subcommands.empty() || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    const std::string& word = rest.front();
    if (word.rfind('-', 0) == 0) {
      return fmt::format("unknown option \"{}\": {}", word, input::suggestion(word, options_of(app)));
    }
    if (subcommands.empty()) return fmt::format("unexpected argument \"{}\"", word);
    return fmt::format("unknown subcommand \"{}\": {}", word, input::suggestion(word, subcommands));
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

}  // namespace

Option& Option::type_name(const std::string& name) { return option_->type_name(name), *this; }
Option& Option::required() { return option_->required(), *this; }
Option& Option::expected(int least, int most) { return option_->expected(least, most), *this; }
Option& Option::delimiter(char character) { return option_->delimiter(character), *this; }
Option& Option::check(std::function<std::string(const std::string&)> why_not) {
  return option_->check(std::move(why_not)), *this;
}
Option& Option::excludes(const std::string& name) { return option_->excludes(name), *this; }
Option& Option::value_if_bare(const std::string& value) {
  return option_->default_str(value)->option_text("[" + option_->get_type_name() + "]"), *this;
}

Command Command::add_subcommand(const std::string& name, const std::string& summary, const std::string& details) {
  CLI::App* const added = app_->add_subcommand(name, option_help(summary));
  added->footer(report::wrapped(details));
  return {added, chosen_};
}
void Command::require_subcommand() { app_->require_subcommand(1); }

template <typename Value>
Option Command::add_option(const std::string& names, Value& value, const std::string& help) {
  CLI::Option* const option = app_->add_option(names, value, option_help(help));
  if (option->get_positional()) option->type_name("");
  // An empty value is most often a variable of a script that was never set.
  option->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
  return Option(option);
}
template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);

void Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, option_help(help));
}

void Command::keep_rest() { app_->prefix_command(); }
std::vector<std::string> Command::rest() const { return app_->remaining(); }

void Command::set_body(Body body) {
  // The callback of a command runs after that of its subcommand.
  app_->callback([app = app_, chosen = chosen_, body = std::move(body)] {
    if (app->get_subcommands().empty()) *chosen = body;
  });
}

CommandLine::CommandLine(const std::string& program, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, program)) {
  app_->get_formatter()->column_width(kOptionWidth);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough(false);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app_->exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App* where = selected(app_.get());
    fmt::print(stderr, "plugfest: {}; see {} --help\n", report::printable(explain(*where, error)), path_of(where));
    return 2;
  }
  return chosen_();
}

}  // namespace plugfest::cli
