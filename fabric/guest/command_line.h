// The command that a guest runs, and its form on the way into the guest.
#pragma once

#include <string>
#include <vector>

namespace plugfest::guest {

struct CommandLine {
  std::vector<std::string> argv;
  std::string program;                   ///< file to execute; argv[0] is only what it is called
  std::vector<std::string> environment;  ///< NAME=value, all of it
  std::string working_directory;
  /// Absolute paths of files that the command writes, to be brought out. The guest has the host's file system as it is
  /// but for these, which do not exist at first.
  std::vector<std::string> results;
};

/// Name of the file of the first file system that holds the command.
constexpr const char* kCommandFile = "command";

/// One text out of the command line; each list is its length followed by its words, each word ends with a zero byte.
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

/// Back again.
inline CommandLine command_line(const std::string& text) {
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
