#include "harness/cli/manual/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace plugfest::cli {
namespace {

/// Escapes text for troff: a minus sign that can be copied, no macro at the start of a line.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

/// "plugfest-fabric-up": the name of the page of "plugfest fabric up".
std::string page_name(std::string path) {
  std::replace(path.begin(), path.end(), ' ', '-');
  return path;
}

/// "\fB-p\fR, \fB--plugin\fR \fIPLUGIN\fR"
std::string heading(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(fmt::format("\\fB{}\\fR", escaped(name)));
  return fmt::format("{}{}{}", fmt::join(names, ", "),
                     option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", escaped(option.value)),
                     option.repeatable ? " ..." : "");
}

std::string synopsis(const CommandText& command, const std::string& path) {
  std::string text = fmt::format("\\fB{}\\fR [\\fIOPTIONS\\fR]", escaped(path));
  if (!command.subcommands.empty()) text += " \\fISUBCOMMAND\\fR";
  for (const OptionText& option : command.options) {
    if (option.positional) text += fmt::format(" \\fI{}\\fR", escaped(option.names.front()));
  }
  return text;
}

}  // namespace

std::string man_page(const CommandText& command, const std::string& path, const std::string& version) {
  std::string title = page_name(path);
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string page = fmt::format(".TH {} 1 \"\" \"plugfest {}\" \"User Commands\"\n", escaped(title), version);
  std::string summary = command.summary;
  if (summary.ends_with('.')) summary.pop_back();
  page += fmt::format(".SH NAME\n{} \\- {}\n", escaped(page_name(path)), escaped(summary));
  page += fmt::format(".SH SYNOPSIS\n{}\n", synopsis(command, path));
  if (!command.details.empty()) page += fmt::format(".SH DESCRIPTION\n{}\n", escaped(command.details));
  if (!command.subcommands.empty()) page += ".SH SUBCOMMANDS\n";
  for (const CommandText& each : command.subcommands) {
    page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(page_name(path + " " + each.name)), escaped(each.summary));
  }
  page += ".SH OPTIONS\n";
  for (const OptionText& option : command.options) {
    page += fmt::format(".TP\n{}\n{}\n", heading(option), escaped(option.help));
  }
  page +=
      ".SH EXIT STATUS\n0: passed. 1: the plugin broke a rule. 2: plugfest could not do its work. 130: Ctrl\\-C.\n"
      ".SH SEE ALSO\n";
  const std::size_t parent = path.rfind(' ');
  if (parent == std::string::npos) return page + "/usr/share/doc/plugfest/\n";
  return page + fmt::format("\\fB{}\\fR(1)\n", escaped(page_name(path.substr(0, parent))));
}

}  // namespace plugfest::cli
