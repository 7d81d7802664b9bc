// Declares subcommands, options and flags. command_line.cc alone includes CLI11, which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plugfest::cli {

/// Runs a subcommand and returns the program's exit code. Errors: std::runtime_error for what the user is told in one
/// line, with exit code 2.
using Body = std::function<int()>;

/// An option or a positional argument. A reference: copies mean the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  /// The word for the value in --help: "FILE". "N" and "X" stand for a whole number and a number.
  Option& type_name(const std::string& name);
  Option& required();
  /// Number of values.
  Option& expected(int least, int most);
  /// Splits each value at `character`.
  Option& delimiter(char character);
  Option& range(int least, int most);
  /// `why_not` returns what is wrong with a value, or "".
  Option& check(std::function<std::string(const std::string&)> why_not);
  /// Not together with the option `name`.
  Option& excludes(const std::string& name);
  /// The value of an option that may stand without one.
  Option& value_if_bare(const std::string& value);

 private:
  CLI::Option* option_;
};

/// A subcommand, or the program itself. A reference: copies mean the same subcommand.
class Command {
 public:
  Command(CLI::App* app, Body* chosen) : app_(app), chosen_(chosen) {}

  Command add_subcommand(const std::string& name, const std::string& help);
  /// The user must name a subcommand of this one.
  void require_subcommand();

  /// Adds an option, "-t,--topology", or a positional argument, "NAME". `value` must live until the program ends.
  Option add_option(const std::string& names, std::string& value, const std::string& help);
  Option add_option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Option add_option(const std::string& names, std::vector<int>& values, const std::string& help);
  Option add_option(const std::string& names, int& value, const std::string& help);
  Option add_option(const std::string& names, double& value, const std::string& help);
  Option add_option(const std::string& names, std::uint64_t& value, const std::string& help);
  Option add_option(const std::string& names, std::optional<std::uint64_t>& value, const std::string& help);
  void add_flag(const std::string& names, bool& value, const std::string& help);

  /// The first word that is no option, and all words behind it, belong to rest().
  void keep_rest();
  std::vector<std::string> rest() const;

  /// What runs when the user names this subcommand.
  void set_body(Body body);

 private:
  CLI::App* app_;
  Body* chosen_;
};

/// The program's command line.
class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& version);
  ~CommandLine();

  Command program() { return {app_.get(), &chosen_}; }

  /// Parses the words and runs the subcommand that they name. Prints what --help and --version ask for, and errors in
  /// one line. Returns the program's exit code. Errors: those of the subcommand's body.
  int run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  Body chosen_;
};

}  // namespace plugfest::cli
