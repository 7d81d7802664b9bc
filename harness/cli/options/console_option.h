// --verbose, --quiet, --durations, --color: what a command prints.
#pragma once

#include <cstdio>
#include <string>

#include "harness/cli/command_line.h"
#include "harness/report/console.h"

namespace plugfest::cli {

class ConsoleOption {
 public:
  /// `with_details`: all options; else --color alone.
  void add_options(Command command, bool with_details);
  /// The style for text on `stream`. Errors: std::runtime_error if options contradict each other.
  report::Style style(std::FILE* stream = stdout) const;

 private:
  bool verbose_ = false;
  bool quiet_ = false;
  int durations_ = 0;
  std::string colour_ = "auto";
};

}  // namespace plugfest::cli
