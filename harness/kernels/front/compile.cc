#include "harness/kernels/front/compile.h"

#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/scratch_folder.h"
#include "harness/kernels/front/rewrite.h"

namespace plugfest::kernels::front {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error("nvcc: " + text); }

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The folder for intermediate files: the folder of --keep, or one that exists as long as this object.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& keep) : path_(keep) {
    if (keep.empty()) path_ = own_.emplace().path();
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) fail(fmt::format("--keep {}: {}", keep, error.message()));
  }

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::optional<ScratchFolder> own_;
  fs::path path_;
};

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

class Compilation {
 public:
  Compilation(const CommandLine& line, const Installation& installation)
      : line_(line), installation_(installation), work_(line.keep), cuda_(toolkit()) {}

  int run() {
    for (const std::string& input : line_.inputs)
      if (!is_file(input)) fail(fmt::format("{}: no such file", input));
    Words objects;
    for (std::size_t i = 0; i < line_.inputs.size(); ++i) {
      const fs::path input = line_.inputs[i];
      const std::string ending = input.extension().string();
      const bool is_cuda = ending == ".cu" || line_.all_are_cuda;
      const bool is_source =
          is_cuda || ending == ".cpp" || ending == ".cc" || ending == ".cxx" || ending == ".c" || ending == ".C";
      if (!is_source) {
        objects.push_back(input.string());
        continue;
      }
      std::string object = work_.file(fmt::format("{}-{}.o", i, input.stem().string()));
      if (line_.compile_only) object = line_.output.empty() ? input.stem().string() + ".o" : line_.output;
      if (!(is_cuda ? compile_cuda(input, object, i) : compile_other(input, object))) return 2;
      objects.push_back(object);
    }
    return line_.compile_only || link(objects) ? 0 : 2;
  }

 private:
  std::string toolkit() const {
    const auto has_headers = [](const std::string& folder) { return is_file(folder + "/cuda_runtime_api.h"); };
    const auto own = std::find_if(line_.include_folders.begin(), line_.include_folders.end(), has_headers);
    const std::string folder = own != line_.include_folders.end() ? *own : cuda_headers();
    if (folder.empty())
      fail(
          "no CUDA headers: install the toolkit or its package cuda-cudart-dev, and set CUDA_HOME to its folder, or "
          "name the folder of cuda_runtime_api.h with -I");
    return folder;
  }

  // Runs a command with this process's standard output and error. Returns whether it succeeded.
  bool execute(Words words) const {
    if (line_.print_commands) {
      std::string text;
      for (const std::string& word : words) text += shell_word(word) + ' ';
      text.back() = '\n';
      write_all(STDERR_FILENO, text);
    }
    const std::string program = words.front();
    pid_t child = -1;
    const std::vector<char*> argv = pointers_to(words);
    const int error = ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, argv.data(), environ);
    if (error == ENOENT || error == EACCES)  // EACCES: a folder of PATH cannot be searched
      fail(fmt::format("{}: no such compiler: install g++ (apt-get install g++), or name one with -ccbin", program));
    if (error != 0) fail(fmt::format("{}: {}", program, std::strerror(error)));
    return await_exit(child) == 0;
  }

  // Options of both passes, after the defaults that they may change.
  Words command() const {
    // Verdicts name the lines at which threads wait, which they find by the frames.
    Words words = {line_.compiler, "-std=c++17", "-O2", "-g", "-fno-omit-frame-pointer"};
    append(words, line_.compile);
    return words;
  }
  // The folders that the compiler searches after those of the command line. The headers of NCCL are in the folder of
  // CUDA, or below NCCL_HOME.
  Words last_folders() const {
    Words words;
    if (const char* home = std::getenv("NCCL_HOME"); home != nullptr && *home != '\0')
      words.push_back(fmt::format("-I{}/include", home));
    words.push_back("-I" + cuda_);
    words.push_back("-I" + cuda_ + "/cccl");
    return words;
  }

  bool compile_cuda(const fs::path& source, const std::string& object, std::size_t number) const {
    const std::string name = work_.file(fmt::format("{}-{}", number, source.stem().string()));
    const std::string preprocessed = name + ".preprocessed.ii", rewritten = name + ".ii";
    Words words = command();
    append(words, {"-x", "c++", "-E", "-I" + installation_.headers});
    append(words, line_.preprocess);
    append(words, last_folders());
    if (depends() && std::find(words.begin(), words.end(), "-MT") == words.end()) append(words, {"-MT", object});
    // Without -MF, the compiler derives the name from its output's name, which is a scratch file.
    if (depends() && std::find(words.begin(), words.end(), "-MF") == words.end())
      append(words, {"-MF", fs::path(object).replace_extension(".d").string()});
    append(words, {"-include", "cuda_runtime.h", source.string(), "-o", preprocessed});
    if (!execute(words)) return false;
    if (!replace_file(rewritten, rewrite(read_file(preprocessed))))
      fail(fmt::format("{}: cannot write: {}", rewritten, std::strerror(errno)));
    words = command();
    // CUDA's code reads memory as other types.
    append(words, {"-fno-strict-aliasing"});
    append(words, instrumentation());
    append(words, {"-x", "c++-cpp-output", "-c", rewritten, "-o", object});
    return execute(words);
  }
  bool compiles_with_clang() const {
    return fs::path(line_.compiler).filename().string().find("clang") != std::string::npos;
  }
  // Makes the compiler call the functions of plugfest/accesses.h before each access to memory.
  Words instrumentation() const {
    if (compiles_with_clang()) return {"-fsanitize=thread", "-mllvm", "-tsan-distinguish-volatile=1"};
    return {"-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "-Wno-tsan"};
  }
  bool depends() const {
    const Words& words = line_.preprocess;
    return std::find(words.begin(), words.end(), "-MD") != words.end() ||
           std::find(words.begin(), words.end(), "-MMD") != words.end();
  }

  bool compile_other(const fs::path& source, const std::string& object) const {
    Words words = command();
    if (source.extension() == ".c") append(words, {"-x", "c"}), std::erase(words, "-std=c++17");
    append(words, line_.preprocess);
    append(words, last_folders());
    append(words, {"-c", source.string(), "-o", object});
    return execute(words);
  }

  bool link(const Words& objects) const {
    const std::string emulation = installation_.libraries + "/libplugfest-cuda.so";
    if (!is_file(emulation)) fail(fmt::format("{}: no such file; in a clone, scripts/plugfest builds it", emulation));
    Words words = command();
    append(words, objects);
    append(words, line_.link);
    append(words, {emulation, "-Wl,-rpath," + installation_.libraries});
    if (compiles_with_clang()) append(words, {"-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"});
    if (!installation_.nccl.empty())
      append(words, {"-Wl,--as-needed", installation_.nccl, "-Wl,--no-as-needed",
                     "-Wl,-rpath," + fs::absolute(installation_.nccl).parent_path().string()});
    append(words, {"-pthread", "-o", line_.output.empty() ? "a.out" : line_.output});
    return execute(words);
  }

  const CommandLine& line_;
  const Installation& installation_;
  WorkFolder work_;
  std::string cuda_;
};

}  // namespace

std::string cuda_headers() {
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') roots.emplace_back(root);
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots)
    if (is_file(root + "/include/cuda_runtime_api.h")) return root + "/include";
  return "";
}

int compile(const CommandLine& line, const Installation& installation) { return Compilation(line, installation).run(); }

}  // namespace plugfest::kernels::front
