// The command line of `plugfest nvcc`.
#pragma once

#include <string>
#include <vector>

namespace plugfest::kernels::front {

/// The options of nvcc that have an effect here.
struct CommandLine {
  std::vector<std::string> inputs;
  std::string output;                   ///< empty: a.out, or the input's name with .o
  std::string compiler = "g++";         ///< -ccbin
  std::string keep;                     ///< --keep: the folder for intermediate files; empty: none
  std::vector<std::string> preprocess;  ///< options of the compiler for its first pass: -I, -D, -MD …
  std::vector<std::string> compile;     ///< for both passes: -O, -g, -std, -f …
  std::vector<std::string> link;        ///< -L, -l, -Xlinker …
  std::vector<std::string> include_folders;
  bool compile_only = false;
  bool all_are_cuda = false;  ///< -x cu
  bool print_commands = false;
};

/// Reads the words after `plugfest nvcc`. Options that only choose a GPU or tune its code are ignored.
/// Errors: std::runtime_error for an unknown option, a missing value, no input, and contradictions.
CommandLine parse(const std::vector<std::string>& words);

}  // namespace plugfest::kernels::front
