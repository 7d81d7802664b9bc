// Declares subcommands, options and flags, and repeats command lines. Only command_line.cc includes CLI11, which takes
// seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace plugfest::cli {

/// Runs a subcommand and returns the program's exit code. Errors: std::runtime_error with a text for the user; the exit
/// code is then 2.
using Body = std::function<int()>;

/// Constraints on an option's value.
struct Accepted;

/// Refers to an option, a flag or a positional argument. Copies refer to the same option.
class Option {
 public:
  Option(CLI::Option* option, std::shared_ptr<Accepted> accepted) : option_(option), accepted_(std::move(accepted)) {}

  /// Placeholder of the value in --help: "FILE". "N" and "X" also name a whole number and a number in errors.
  Option& type_name(const std::string& name);
  Option& required();
  /// Number of values.
  Option& expected(int least, int most);
  /// Splits each value at `character`.
  Option& delimiter(char character);
  /// Accepts whole numbers from 1 to `most`, or numbers above 0 up to `most`.
  Option& at_most(double most);
  Option& one_of(std::initializer_list<std::string> values);
  /// Forbids the option together with the option `name`.
  Option& excludes(const std::string& name);
  /// Makes the value optional; `value` is used if the user omits it. Call it after type_name().
  Option& value_if_bare(const std::string& value);
  /// Omits this option from Again: it chooses output files, or the amount of work.
  Option& not_again();

 private:
  CLI::Option* option_;
  std::shared_ptr<Accepted> accepted_;
};

/// Refers to a subcommand or the program itself. Copies refer to the same subcommand.
class Command {
 public:
  Command(CLI::App* app, Body* chosen) : app_(app), chosen_(chosen) {}

  /// `summary`: shown in the list of subcommands. `details`: shown at the end of the subcommand's --help.
  Command add_subcommand(const std::string& name, const std::string& summary, const std::string& details = "");
  /// Refuses a command line that names no subcommand of this one.
  void require_subcommand();

  /// Adds an option "-t,--topology" or a positional argument "NAME". `value` must live until the program ends. `Value`:
  /// std::string, int, double, std::uint64_t, std::optional<std::uint64_t>, or a vector of strings or ints. An empty
  /// value on the command line is an error.
  template <typename Value>
  Option add_option(const std::string& names, Value& value, const std::string& help);
  Option add_flag(const std::string& names, bool& value, const std::string& help);

  /// Stores the first word that is not an option, and all words after it, in rest().
  void keep_rest();
  std::vector<std::string> rest() const;

  /// Sets the function that runs if the user names this subcommand.
  void set_body(Body body);

 private:
  CLI::App* app_;
  Body* chosen_;
};

class CommandLine {
 public:
  /// `program`: the command with which the user started the program, for texts that the user may type again.
  CommandLine(const std::string& program, const std::string& description, const std::string& version);
  ~CommandLine();

  Command program() { return {app_.get(), &chosen_}; }

  /// Parses the words and runs the subcommand that they name. Handles --help, --version and errors itself. Returns the
  /// program's exit code. Errors: those of the subcommand's body.
  int run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  Body chosen_;
};

struct GivenOption {
  std::string name;
  bool positional = false;
  std::vector<std::string> values = {};  ///< none: a flag
};

/// The command that repeats this run: the user's command line with changed options. Valid in the body of a subcommand.
class Again {
 public:
  Again();

  /// Replaces the user's value of an option by `value`, at the end of the command.
  Again& with(const std::string& option, const std::string& value);
  Again& without(std::initializer_list<std::string> options);
  /// The command as a user would type it, with NCCL's environment variables: "NCCL_DEBUG=INFO plugfest run --seed 7".
  std::string text() const;

  /// The program as typed, preceded by NCCL's environment variables.
  static std::string program();

 private:
  std::vector<GivenOption> given_;
};

}  // namespace plugfest::cli
