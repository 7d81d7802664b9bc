// plugfest manual: writes manual pages and completion, for the installation.
#include "harness/cli/manual/completion.h"

#include <filesystem>
#include <memory>

#include "harness/cli/command.h"
#include "harness/cli/manual/man_page.h"
#include "harness/report/output_file.h"
#include "version.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  report::OutputFile(path.string()).write(content);
}

void write_pages(const fs::path& folder, const CommandText& command, const std::string& path) {
  std::string name = path;
  for (char& c : name) c = c == ' ' ? '-' : c;
  write(folder / (name + ".1"), man_page(command, path, PLUGFEST_VERSION));
  for (const CommandText& each : command.subcommands) write_pages(folder, each, path + " " + each.name);
}

int write_manual(CommandText program, const fs::path& folder) {
  program.name = "plugfest";  // not the path by which the build calls it
  write_pages(folder / "man" / "man1", program, program.name);
  write(folder / "bash-completion" / "completions" / "plugfest", bash_completion(program));
  write(folder / "zsh" / "vendor-completions" / "_plugfest", zsh_completion(program));
  return 0;
}

}  // namespace

void add_manual(CommandLine& line) {
  Command command = line.program().add_subcommand("manual", "Write manual pages and shell completion");
  command.hide();
  auto folder = std::make_shared<std::string>();
  command.add_option("FOLDER", *folder, "Where to write them").required();
  command.set_body([&line, folder] { return write_manual(line.describe(), *folder); });
}

}  // namespace plugfest::cli
