// The command that a guest runs, and its serialization.
#pragma once

#include <string>
#include <vector>

namespace plugfest::guest {

struct CommandLine {
  std::vector<std::string> argv;
  std::string program;                   ///< the file to execute; argv[0] is only its name
  std::vector<std::string> environment;  ///< the complete environment, as NAME=value
  std::string working_directory;
  /// Absolute paths of files that the command writes and that are copied to the host. At the start these files do not
  /// exist in the guest; all other files of the host do.
  std::vector<std::string> results;
};

/// The file in the initial file system that contains the command.
constexpr const char* kCommandFile = "command";

/// Serializes a command line. Each word ends with a zero byte; each list begins with its length.
inline std::string to_text(const CommandLine& command) {
  std::string text;
  const auto add = [&](const std::string& word) { text.append(word).push_back('\0'); };
  add(command.program);
  add(command.working_directory);
  for (const auto* list : {&command.argv, &command.environment, &command.results}) {
    add(std::to_string(list->size()));
    for (const std::string& word : *list) add(word);
  }
  return text;
}

/// The inverse of to_text().
inline CommandLine parse_command_line(const std::string& text) {
  std::size_t at = 0;
  const auto take = [&] {
    const std::string word = text.c_str() + at;
    at += word.size() + 1;
    return word;
  };
  CommandLine command;
  command.program = take();
  command.working_directory = take();
  for (auto* list : {&command.argv, &command.environment, &command.results}) {
    const std::size_t count = std::stoul(take());
    for (std::size_t i = 0; i < count; ++i) list->push_back(take());
  }
  return command;
}

}  // namespace plugfest::guest
