#include "harness/cli/manual/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace plugfest::cli {
namespace {

bool names_a_file(const std::string& value) {
  return value == "FILE" || value == "PATH" || value == "PLUGIN" || value == "FAULTS" || value.ends_with("|FILE");
}

/// The arguments of the program that print the possible values of an option; empty: no list.
std::string listing(const std::string& command, const OptionText& option) {
  if (option.value != "PATTERN") return "";
  return command == "mutants" ? "mutants --list" : "run --list";
}

/// Calls `visit` for each command with the words that name it: "", "run", "fabric", "fabric up".
using Visit = std::function<void(const CommandText& command, const std::string& path)>;
void for_each_command(const CommandText& command, const std::string& path, const Visit& visit) {
  visit(command, path);
  for (const CommandText& each : command.subcommands) {
    for_each_command(each, path.empty() ? each.name : path + " " + each.name, visit);
  }
}

/// Names of the options of `command` that `wanted` accepts, with `separator` between them.
std::string names_of(const CommandText& command, const char* separator,
                     const std::function<bool(const OptionText& option)>& wanted) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    if (!option.positional && wanted(option)) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("{}", fmt::join(names, separator));
}

/// Variables that tell the function for bash what it can complete after the words of `path`.
std::string bash_case(const CommandText& command, const std::string& path) {
  std::vector<std::string> subcommands;
  for (const CommandText& each : command.subcommands) subcommands.push_back(each.name);
  std::string lists;
  for (const OptionText& option : command.options) {
    const std::string list = listing(path, option);
    if (!list.empty()) lists = list;
  }
  return fmt::format(
      "  '{}')\n    subcommands='{}'\n    options='{}'\n    files='{}' listed='{}' list='{}'\n    valued='{}' ;;\n",
      path, fmt::join(subcommands, " "), names_of(command, " ", [](const OptionText&) { return true; }),
      names_of(command, "|", [](const OptionText& option) { return names_a_file(option.value); }),
      names_of(command, "|", [&](const OptionText& option) { return !listing(path, option).empty(); }), lists,
      names_of(command, "|", [](const OptionText& option) { return !option.value.empty(); }));
}

/// Quotes text for zsh: within '…', with `[`, `]` and `:` escaped for _arguments and _describe.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

/// The name of the function that completes the command at `path`.
std::string zsh_function(std::string path) {
  std::replace(path.begin(), path.end(), ' ', '_');
  return path.empty() ? "_plugfest" : "_plugfest_" + path;
}

std::string zsh_specifications(const CommandText& command, const std::string& path) {
  std::string text;
  for (const OptionText& option : command.options) {
    if (option.positional) continue;
    const std::string list = listing(path, option);
    const std::string action = names_a_file(option.value) ? "_files"
                               : list.empty()             ? ""
                                                          : fmt::format("($($service {} 2>/dev/null))", list);
    const std::string value = option.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.value), action);
    for (const std::string& name : option.names) {
      const std::string exclusive = option.repeatable ? "*" : fmt::format("({})", fmt::join(option.names, " "));
      text += fmt::format("    '{}{}[{}]{}' \\\n", exclusive, name, zsh_text(option.help), value);
    }
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandText& program) {
  std::string commands, cases;
  for_each_command(program, "", [&](const CommandText& command, const std::string& path) {
    if (!path.empty()) commands += fmt::format("{}'{}'", commands.empty() ? "" : " | ", path);
    cases += bash_case(command, path);
  });
  return fmt::format(
      R"bash(# bash completion for {0}. Made by the build from what --help shows.
_{0}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= i
  local subcommands options files listed list valued
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{command:+$command }}${{COMP_WORDS[i]}} in
    {1}) command=${{command:+$command }}${{COMP_WORDS[i]}} ;;
    esac
  done
  case $command in
{2}  esac
  COMPREPLY=()
  if [[ "|$listed|" == *"|$previous|"* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${{COMP_WORDS[0]}}" $list 2>/dev/null)" -- "$word")
  elif [[ $word == -* && "|$valued|" != *"|$previous|"* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -n $subcommands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$subcommands" -- "$word")
  elif [[ "|$files|" == *"|$previous|"* || "|$valued|" != *"|$previous|"* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -F _{0} {0}
)bash",
      program.name, commands, cases);
}

std::string zsh_completion(const CommandText& program) {
  std::string functions;
  for_each_command(program, "", [&](const CommandText& command, const std::string& path) {
    const std::string function = zsh_function(path);
    std::string body = zsh_specifications(command, path);
    if (command.subcommands.empty()) {
      functions += fmt::format("{}() {{\n  _arguments -s \\\n{}    '*:file:_files'\n}}\n", function, body);
      return;
    }
    std::string list, cases;
    for (const CommandText& each : command.subcommands) {
      list += fmt::format(" '{}:{}'", each.name, zsh_text(each.summary));
      cases +=
          fmt::format("    {}) {} ;;\n", each.name, zsh_function(path.empty() ? each.name : path + " " + each.name));
    }
    functions += fmt::format(
        "{0}() {{\n  local curcontext=$curcontext state line\n  local -a commands=({1})\n  _arguments -C \\\n{2}"
        "    '1:subcommand:->subcommand' \\\n    '*::argument:->argument' && return\n  case $state in\n"
        "  subcommand) _describe subcommand commands ;;\n  argument)\n    case $line[1] in\n{3}    esac ;;\n  "
        "esac\n}}\n",
        function, list, body, cases);
  });
  return fmt::format(
      "#compdef {0}\n# zsh completion for {0}. Made by the build from what --help shows.\n{1}_{0} \"$@\"\n",
      program.name, functions);
}

}  // namespace plugfest::cli
