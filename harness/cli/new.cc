// plugfest new: copies the example of a net plugin under a new name.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/command.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "nccl-net-";
constexpr std::size_t kMaxNameBytes = 64;
// Marks text that the new plugin does not get: a line, or a paragraph if the mark is in its first line.
constexpr std::string_view kOmitted = "only in the example";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_valid(const std::string& name) {
  const bool has_length = !name.empty() && name.size() <= kMaxNameBytes && is_letter(name.front());
  return has_length && std::all_of(name.begin(), name.end(), [](char c) {
           return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

// Removes the lines and paragraphs that are marked with kOmitted.
std::string without_omitted(const std::string& text) {
  std::istringstream lines(text);
  std::string kept, line;
  bool first = true, omits_paragraph = false;
  while (std::getline(lines, line)) {
    const bool is_marked = line.find(kOmitted) != line.npos;
    if (first) omits_paragraph = is_marked;
    first = line.empty();
    if (!is_marked && !omits_paragraph) kept += line + '\n';
  }
  return kept;
}

// The content of a file of the example for the plugin `name`.
std::string renamed(std::string text, const std::string& name) {
  std::string space = "net_" + name;
  std::replace(space.begin(), space.end(), '-', '_');
  text = without_omitted(text);
  text = replaced(std::move(text), "nccl-net-example", std::string(kPrefix) + name);
  text = replaced(std::move(text), "NET/example", "NET/" + name);
  text = replaced(std::move(text), "\"Example\"", '"' + name + '"');
  text = replaced(std::move(text), "namespace example", "namespace " + space);
  text = replaced(std::move(text), "example::", space + "::");
  return text;
}

// The files of a plugin that does not exist yet. They are moved to the target folder when they are complete.
class NewFolder {
 public:
  explicit NewFolder(fs::path target) : target_(std::move(target)) {
    partial_ = target_.parent_path() / fmt::format(".{}.{}", target_.filename().string(), getpid());
    if (fs::symlink_status(target_).type() != fs::file_type::not_found) fail(EEXIST);
    std::error_code error;
    if (!fs::create_directory(partial_, error)) fail(error ? error.value() : EEXIST);
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  void add(const fs::path& name, const std::string& content) {
    errno = 0;
    std::ofstream file(partial_ / name, std::ios::binary);
    file << content;
    file.close();
    if (!file) fail(errno == 0 ? EIO : errno);
  }
  void finish() {
    if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) return;
    // Some network file systems know no flags. rename() replaces only an empty folder.
    if (errno != EINVAL || rename(partial_.c_str(), target_.c_str()) != 0) fail(errno);
  }

 private:
  [[noreturn]] void fail(int error) const {
    if (error == EEXIST || error == ENOTEMPTY)
      throw std::runtime_error(fmt::format("{}: it exists: name a new folder", target_.string()));
    throw_file_error(target_, "create", error);
  }

  fs::path target_;
  fs::path partial_;
};

// The option with which CMake finds this plugfest; empty if CMake finds it by itself. `example`: its real path.
std::string cmake_option(const fs::path& example) {
  const fs::path clone = example.parent_path().parent_path() / "cmake";
  if (fs::exists(clone / "plugfestConfig.cmake")) return " -Dplugfest_DIR=" + shell_word(clone.string());
  // PREFIX/share/doc/plugfest-dev/examples/socket-plugin
  const fs::path prefix = (example / "../../../../..").lexically_normal().parent_path();
  if (prefix == "/usr" || prefix == "/usr/local") return "";
  return " -Dplugfest_DIR=" + shell_word((prefix / "lib/cmake/plugfest").string());
}

int create(const std::string& path) {
  fs::path target = fs::path(path).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  std::string name = target.filename().string();
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  if (!is_valid(name)) {
    throw std::runtime_error(
        fmt::format("\"{}\": expected a name of at most {} letters, digits, - and _ that starts with a letter, as in "
                    "my-plugin",
                    path, kMaxNameBytes));
  }
  std::error_code error;
  const std::string skeleton = bed::library_folder() + "/skeleton";
  const fs::path example = fs::canonical(skeleton, error);
  if (error) throw std::runtime_error(skeleton + ": no such folder: install the package plugfest-dev");

  NewFolder folder(target);
  for (const fs::directory_entry& file : fs::directory_iterator(example)) {
    const std::string file_name = file.path().filename().string();
    if (file.is_regular_file() && !file_name.starts_with('.'))
      folder.add(file_name, renamed(read_file(file.path().string()), name));
  }
  folder.finish();

  const std::string source = shell_word(target.string()), build = shell_word((target / "build").string());
  const fs::path library = target / "build" / fmt::format("lib{}{}.so", kPrefix, name);
  fmt::print(
      "{}: a net plugin over TCP sockets that passes every rule; start at plugin.cc. Build and test it:\n"
      "    cmake -S {} -B {}{}\n"
      "    cmake --build {}\n"
      "    ctest --test-dir {} --output-on-failure\n"
      "Test it after each build:\n"
      "    {} run --plugin {} --watch\n",
      target.string(), source, build, cmake_option(example), build, build, Again::program(),
      shell_word(library.string()));
  return 0;
}

}  // namespace

void add_new(Command program) {
  Command command = program.add_subcommand(
      "new", "Create a net plugin with CMake and tests",
      "Copies the example that is installed with plugfest: a plugin over TCP sockets that passes every rule. The last "
      "part of FOLDER is the plugin's name.");
  auto folder = std::make_shared<std::string>();
  command.add_option("FOLDER", *folder, "The new folder, such as my-plugin", {.required = true});
  command.set_body([folder] { return create(*folder); });
}

}  // namespace plugfest::cli
