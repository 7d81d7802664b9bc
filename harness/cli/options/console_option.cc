#include "harness/cli/options/console_option.h"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>

#include "harness/cli/options/numbers.h"

namespace plugfest::cli {

void ConsoleOption::add_options(Command command, bool with_details) {
  if (with_details) {
    command.add_flag("-v,--verbose", verbose_, "Print each rule, and the details of each failure");
    command.add_flag("-q,--quiet", quiet_, "Print only the failed rules and the summary");
    check_count(command.add_option("--durations", durations_, "Also print the N slowest rules"), 1000).type_name("N");
  }
  command
      .add_option("--color", colour_,
                  "auto, always or never; auto: on a terminal, or with FORCE_COLOR set; never with NO_COLOR set")
      .type_name("WHEN")
      .check([](const std::string& when) {
        const bool known = when == "auto" || when == "always" || when == "never";
        return known ? "" : fmt::format("\"{}\": expected auto, always or never", when);
      });
}

report::Style ConsoleOption::style(std::FILE* stream) const {
  if (quiet_ && verbose_) throw std::runtime_error("--quiet: leave out --verbose");
  report::Style style = report::Style::of(stream, colour_);
  if (verbose_) style.detail = report::Detail::kVerbose;
  if (quiet_) style.detail = report::Detail::kQuiet;
  if (quiet_) style.progress = false;
  style.durations = static_cast<std::size_t>(durations_);
  return style;
}

}  // namespace plugfest::cli
