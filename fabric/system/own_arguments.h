// The command line of this process.
#pragma once

#include <fstream>
#include <string>
#include <vector>

namespace plugfest {

inline std::vector<std::string> own_arguments() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace plugfest
