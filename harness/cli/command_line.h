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
}  // namespace CLI

namespace plugfest::cli {

/// Runs a subcommand and returns the program's exit code. Errors: std::runtime_error with a text for the user; the exit
/// code is then 2.
using Body = std::function<int()>;

/// The values that an option accepts, and its role in Again.
struct OptionProperties {
  double at_most = 0;                    ///< accepts whole numbers from 1, or numbers above 0, up to this; 0: any
  std::vector<std::string> one_of = {};  ///< the accepted values; empty: any
  char delimiter = '\0';                 ///< splits each value
  std::string excludes = {};             ///< forbids the option together with the option of this name
  std::string if_bare = {};              ///< makes the value optional; this one is used if the user omits it
  int max_values = 0;                    ///< of a positional argument; 2: the name of a fabric may precede the value;
                                         ///< 0: any number for a vector, otherwise one
  bool required = false;
  bool again = true;  ///< false: omitted from Again, since it selects output files, or the amount of work
};

/// Refers to a subcommand or the program itself. Copies refer to the same subcommand.
class Command {
 public:
  Command(CLI::App* app, Body* chosen) : app_(app), chosen_(chosen) {}

  /// `summary`: shown in the list of subcommands. `details`: shown at the end of the subcommand's --help.
  Command add_subcommand(const std::string& name, const std::string& summary, const std::string& details = "");
  /// Refuses a command line that names no subcommand of this one.
  void require_subcommand();

  /// `names`: "-t,--topology TOPOLOGY" with the placeholder of the value in --help, or a positional argument "NAME".
  /// The placeholders "N" and "X" also name a whole number and a number in errors. `value` must live until the program
  /// ends. `Value`: std::string, int, double, std::uint64_t, std::optional<std::uint64_t>, or a vector of strings or
  /// ints. An empty value on the command line is an error. Flags use only `excludes` and `again` of their properties.
  template <typename Value>
  void add_option(const std::string& names, Value& value, const std::string& help,
                  const OptionProperties& properties = {});
  void add_flag(const std::string& names, bool& value, const std::string& help,
                const OptionProperties& properties = {});

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
  /// program's exit code. Errors: whatever the body throws.
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
  /// The command as a user would type it, after variables(): "NCCL_DEBUG=INFO plugfest run --seed 7".
  std::string text() const;
  /// The command without variables. Secrets of --env refer to variables: --env KEY="$KEY".
  std::string command() const;

  /// The program as typed, after variables().
  static std::string program();
  /// The environment variables of the command line that may affect the plugin: variables of NCCL, of network
  /// libraries, and all that a plugin has read so far. In the form that precedes a command, "FI_PROVIDER=efa "; may be
  /// empty. A variable whose name says that it is a secret refers to itself: KEY="$KEY".
  static std::string variables();

 private:
  std::vector<GivenOption> given_;
};

/// The current variables of the kind that Again::variables() repeats, sorted: "NCCL_DEBUG=INFO", "MY_KEY=(secret)".
std::vector<std::string> plugin_variables();
/// "NCCL_DEBUG=INFO" unchanged; "MY_KEY=(secret)" if the name says that the value is a secret.
std::string without_secret(const std::string& variable);

}  // namespace plugfest::cli
