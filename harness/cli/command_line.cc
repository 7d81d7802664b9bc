#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>
#include <string_view>

#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/control/process/process_facts.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kOptionWidth = 26;
constexpr std::size_t kOptionTextWidth = report::kColumns - kOptionWidth;

// The user's command line, for Again.
std::vector<std::string> typed_path;
std::vector<GivenOption> typed_options;
std::vector<std::string> typed_environment;

// An error in the value of an option.
struct BadValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// --help in kColumns columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kOptionWidth); }

  std::string make_description(const CLI::App* app) const override {
    return report::wrapped(app->get_description()) + '\n';
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    const std::string text = report::wrapped(command->get_description(), 0, kOptionTextWidth);
    CLI::detail::format_help(out, command->get_display_name(true), text, kOptionWidth);
    return out.str();
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    // A host, after the name of its fabric.
    if (option->get_expected_max() == 2) return "[NAME] " + option->get_name(true);
    return CLI::Formatter::make_option_usage(option);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    std::vector<std::string> excluded;
    for (const CLI::Option* other : option->get_excludes()) excluded.push_back(other->get_name());
    if (!excluded.empty()) text += fmt::format("; not with {}", fmt::join(excluded, ", "));
    return report::wrapped(text, 0, kOptionTextWidth);
  }
};

// The subcommand that the command line has selected.
const CLI::App* selected(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

// "plugfest run": the words before --help.
std::string path_of(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name() : path_of(app->get_parent()) + " " + app->get_name();
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands({})) names.push_back(subcommand->get_name());
  return names;
}

// Describes an option's value by its placeholder in --help.
std::string expected_value(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "N") return "a whole number";
  return type == "X" ? "a number" : type;
}

// Describes an error in the options of `app`; std::nullopt if `error` is another error. `last`: the last word.
std::optional<std::string> explain_option(const CLI::App& app, const CLI::ParseError& error, const std::string& last) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const CLI::Option* const option = app.get_option_no_throw(last.substr(0, last.find('=')));
    if (option != nullptr)
      return fmt::format("{}: takes exactly one value, {}", option->get_name(), expected_value(*option));
  }
  for (const CLI::Option* option : app.get_options()) {
    const bool flag = option->get_items_expected_max() == 0 && option->count() > 0;
    if (flag && option->results().front() != "true") return option->get_name() + ": takes no value";
    if (option->get_required() && option->count() == 0) return option->get_name() + " is missing";
    for (const CLI::Option* other : option->get_excludes())
      if (option->count() > 0 && other->count() > 0)
        return fmt::format("{} excludes {}: leave out one of them", option->get_name(), other->get_name());
  }
  return std::nullopt;
}

// Whether the command line ends before a subcommand that it needs, as if the user looked for help.
bool lacks_subcommand(const CLI::App& app, const CLI::ParseError& error) {
  return dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && app.get_require_subcommand_min() > 0 &&
         app.remaining(true).empty();
}

std::string explain(const CLI::App& app, const CLI::ParseError& error, const std::string& last) {
  const std::vector<std::string> subcommands = subcommands_of(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (!rest.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) {
    const std::string& word = rest.front();
    if (word.starts_with('-')) return fmt::format("unknown option \"{}\": {}", word, suggestion(word, options_of(app)));
    if (subcommands.empty()) return fmt::format("unexpected argument \"{}\"", word);
    return fmt::format("unknown subcommand \"{}\": {}", word, suggestion(word, subcommands));
  }
  if (const auto explained = explain_option(app, error, last)) return *explained;
  return error.what();
}

template <typename Number>
bool is_number(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Each overload stores `text` in `value` and returns "", or returns a description of valid values.
std::string store(const std::string& text, const OptionProperties& accepted, std::string& value) {
  value = text;
  const bool known = accepted.one_of.empty() ||
                     std::find(accepted.one_of.begin(), accepted.one_of.end(), text) != accepted.one_of.end();
  if (known) return "";
  std::string list = accepted.one_of.front();
  for (std::size_t i = 1; i < accepted.one_of.size(); ++i)
    list += (i + 1 == accepted.one_of.size() ? " or " : ", ") + accepted.one_of[i];
  return list;
}
std::string store(const std::string& text, const OptionProperties& accepted, int& value) {
  if (is_number(text, value) && (accepted.at_most == 0 || (value >= 1 && value <= accepted.at_most))) return "";
  return accepted.at_most == 0 ? "a whole number" : fmt::format("a whole number from 1 to {:.0f}", accepted.at_most);
}
std::string store(const std::string& text, const OptionProperties& accepted, double& value) {
  const bool finite = is_number(text, value) && std::isfinite(value);
  if (finite && (accepted.at_most == 0 || (value > 0 && value <= accepted.at_most))) return "";
  return accepted.at_most == 0 ? "a number" : fmt::format("a number above 0, {:.0f} at most", accepted.at_most);
}
std::string store(const std::string& text, const OptionProperties&, std::uint64_t& value) {
  return is_number(text, value) ? "" : "a whole number from 0 to 2^64 - 1";
}
std::string store(const std::string& text, const OptionProperties& accepted, std::optional<std::uint64_t>& value) {
  return store(text, accepted, value.emplace());
}
template <typename Element>
std::string store(const std::string& text, const OptionProperties& accepted, std::vector<Element>& values) {
  return store(text, accepted, values.emplace_back());
}

template <typename Value>
constexpr bool kIsVector = false;
template <typename Element>
constexpr bool kIsVector<std::vector<Element>> = true;

void record(const CLI::App* app) {
  for (; app != nullptr; app = app->get_subcommands().empty() ? nullptr : app->get_subcommands().front()) {
    if (app->get_parent() != nullptr) typed_path.push_back(app->get_name());
    for (const CLI::Option* option : app->parse_order()) {
      const auto same = [&](const GivenOption& given) { return given.name == option->get_name(); };
      if (!option->get_configurable() || std::any_of(typed_options.begin(), typed_options.end(), same)) continue;
      const bool flag = option->get_items_expected_max() == 0;
      typed_options.push_back(
          {option->get_name(), option->get_positional(), flag ? std::vector<std::string>{} : option->results()});
    }
  }
}

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

// Whether a library of a plugin may read the variable in a way that its rank cannot see, such as from `environ`.
bool is_for_networks(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {"NCCL_", "OFI_NCCL_", "FI_",  "UCX_", "UCC_",   "SHARP_", "IBV_",
                                                   "IB_",   "PSM",       "HFI_", "EFA_", "RDMAV_", "MLX4_",  "MLX5_"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whether each login sets the variable.
bool is_of_session(std::string_view name) {
  static constexpr std::string_view kNames[] = {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH",
                                                "PWD",  "SHELL",    "TERM", "USER"};
  return name.starts_with("LC_") || name.starts_with("XDG_") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Whether results must not contain the value.
bool is_secret(std::string_view name) {
  for (const std::string_view part : {"SECRET", "TOKEN", "PASSW", "CREDENTIAL", "PRIVATE", "_KEY"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

// "NAME=value" as a shell reads it. A secret refers to the user's variable of this name.
std::string assignment(const std::string& variable) {
  const std::string name(name_of(variable));
  return name + '=' + (is_secret(name) ? "\"$" + name + '"' : shell_word(variable.substr(name.size() + 1)));
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

// The elements of `variables` that may affect the plugin, sorted.
std::vector<std::string> for_plugin(std::vector<std::string> variables) {
  const std::set<std::string> read = control::variables_read();
  std::erase_if(variables, [&](const std::string& variable) {
    const std::string name(name_of(variable));
    return !is_for_networks(name) && (is_of_session(name) || !read.contains(name));
  });
  std::sort(variables.begin(), variables.end());
  return variables;
}

}  // namespace

std::vector<std::string> plugin_variables() {
  std::vector<std::string> variables = for_plugin(whole_environment());
  for (std::string& variable : variables) variable = without_secret(variable);
  return variables;
}

std::string without_secret(const std::string& variable) {
  const std::string name(name_of(variable));
  return is_secret(name) ? name + "=(secret)" : variable;
}

Command Command::add_subcommand(const std::string& name, const std::string& summary, const std::string& details) {
  CLI::App* const added = app_->add_subcommand(name, summary);
  added->footer(report::wrapped(details));
  return {added, chosen_};
}
void Command::require_subcommand() { app_->require_subcommand(1); }

template <typename Value>
void Command::add_option(const std::string& names, Value& value, const std::string& help,
                         const OptionProperties& properties) {
  // A constructor of CLI::Option is private: the callback gets its option later.
  const auto self = std::make_shared<CLI::Option*>(nullptr);
  const auto read = [&value, properties, self](const std::vector<std::string>& words) {
    const std::string name = (*self)->get_name();
    if (!kIsVector<Value> && words.size() != 1)
      throw BadValue(fmt::format("{}: takes exactly one value, {}", name, expected_value(**self)));
    if (words.size() > static_cast<std::size_t>((*self)->get_items_expected_max()))
      throw BadValue(fmt::format("{}: expected at most {}", name, (*self)->get_items_expected_max()));
    value = {};
    for (const std::string& word : words) {
      // An empty value usually comes from an unset variable in a script.
      if (word.empty()) throw BadValue(name + ": must not be empty");
      if (const std::string expected = store(word, properties, value); !expected.empty())
        throw BadValue(fmt::format("{} \"{}\": expected {}", name, word, expected));
    }
    return true;
  };
  const std::size_t space = std::min(names.find(' '), names.size());
  const std::string placeholder = names.substr(std::min(space + 1, names.size()));
  CLI::Option* const option = *self = app_->add_option(names.substr(0, space), read, help);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->type_name(placeholder);
  if (kIsVector<Value>) option->expected(CLI::detail::expected_max_vector_size);
  if (properties.max_values > 0) option->expected(1, properties.max_values);
  if (properties.delimiter != '\0') option->delimiter(properties.delimiter);
  if (!properties.excludes.empty()) option->excludes(properties.excludes);
  if (!properties.if_bare.empty())
    option->expected(0, 1)->default_str(properties.if_bare)->option_text("[" + placeholder + "]");
  option->required(properties.required)->configurable(properties.again);
}
#define PLUGFEST_VALUE(...) \
  template void Command::add_option(const std::string&, __VA_ARGS__&, const std::string&, const OptionProperties&);
PLUGFEST_VALUE(std::string)
PLUGFEST_VALUE(std::vector<std::string>)
PLUGFEST_VALUE(std::vector<int>)
PLUGFEST_VALUE(int)
PLUGFEST_VALUE(double)
PLUGFEST_VALUE(std::uint64_t)
PLUGFEST_VALUE(std::optional<std::uint64_t>)
#undef PLUGFEST_VALUE

void Command::add_flag(const std::string& names, bool& value, const std::string& help,
                       const OptionProperties& properties) {
  CLI::Option* const option = app_->add_flag(names, value, help)->configurable(properties.again);
  if (!properties.excludes.empty()) option->excludes(properties.excludes);
}

void Command::keep_rest() { app_->prefix_command(); }
std::vector<std::string> Command::rest() const { return app_->remaining(); }

void Command::set_body(Body body) {
  // The callback of a command runs after its subcommand's.
  app_->callback([app = app_, chosen = chosen_, body = std::move(body)] {
    if (app->get_subcommands().empty()) *chosen = body;
  });
}

CommandLine::CommandLine(const std::string& program, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, program)) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough(false);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(int argc, char** argv) {
  std::string problem;
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app_->exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = *selected(app_.get());
    if (lacks_subcommand(command, error)) {
      fmt::print("{}", app_->help());
      return 2;
    }
    problem = explain(command, error, argv[argc - 1]);
  } catch (const BadValue& error) {
    problem = error.what();
  }
  if (!problem.empty()) {
    fmt::print(stderr, "plugfest: {}; see {} --help\n", report::printable(problem), path_of(selected(app_.get())));
    return 2;
  }
  typed_environment = whole_environment();
  record(app_.get());
  return chosen_();
}

Again::Again() : given_(typed_options) {}

Again& Again::with(const std::string& option, const std::string& value) {
  without({option});
  given_.push_back({.name = option, .values = {value}});
  return *this;
}

Again& Again::without(std::initializer_list<std::string> options) {
  std::erase_if(given_, [&](const GivenOption& given) {
    return std::find(options.begin(), options.end(), given.name) != options.end();
  });
  return *this;
}

std::string Again::variables() {
  std::string text;
  for (const std::string& variable : for_plugin(typed_environment)) text += assignment(variable) + ' ';
  return text;
}

std::string Again::program() { return variables() + program_as_typed(); }

std::string Again::text() const { return variables() + command(); }

std::string Again::command() const {
  std::string text = program_as_typed();
  for (const std::string& word : typed_path) text += " " + word;
  for (const GivenOption& given : given_) {
    if (given.values.empty()) text += " " + given.name;
    for (const std::string& value : given.values) {
      const bool secret = given.name == "--env" && is_secret(name_of(value));
      text += (given.positional ? " " : " " + given.name + " ") + (secret ? assignment(value) : shell_word(value));
    }
  }
  return text;
}

}  // namespace plugfest::cli
