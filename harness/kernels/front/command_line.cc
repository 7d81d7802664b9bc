#include "harness/kernels/front/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace plugfest::kernels::front {
namespace {

constexpr std::array<std::string_view, 29> kIgnoredFlags = {"--expt-relaxed-constexpr",
                                                            "-expt-relaxed-constexpr",
                                                            "--expt-extended-lambda",
                                                            "-expt-extended-lambda",
                                                            "--extended-lambda",
                                                            "-extended-lambda",
                                                            "--use_fast_math",
                                                            "-use_fast_math",
                                                            "-lineinfo",
                                                            "--generate-line-info",
                                                            "-restrict",
                                                            "--restrict",
                                                            "-m64",
                                                            "-v",
                                                            "--verbose",
                                                            "-w",
                                                            "--disable-warnings",
                                                            "-G",
                                                            "--device-debug",
                                                            "-dlto",
                                                            "-noeh",
                                                            "-allow-unsupported-compiler",
                                                            "--allow-unsupported-compiler",
                                                            "--source-in-ptx",
                                                            "-src-in-ptx",
                                                            "-forward-unknown-to-host-compiler",
                                                            "--forward-unknown-to-host-compiler",
                                                            "-pg",
                                                            "--resource-usage"};
// Their value is the next word, or follows =.
constexpr std::array<std::string_view, 37> kIgnoredWithValue = {"-arch",
                                                                "--gpu-architecture",
                                                                "-gencode",
                                                                "--generate-code",
                                                                "-code",
                                                                "--gpu-code",
                                                                "-rdc",
                                                                "--relocatable-device-code",
                                                                "-maxrregcount",
                                                                "--maxrregcount",
                                                                "-Xptxas",
                                                                "--ptxas-options",
                                                                "-Xcudafe",
                                                                "--cudafe-options",
                                                                "-Xnvlink",
                                                                "-Xfatbin",
                                                                "-ftz",
                                                                "-prec-div",
                                                                "-prec-sqrt",
                                                                "-fmad",
                                                                "--ftz",
                                                                "--prec-div",
                                                                "--prec-sqrt",
                                                                "--fmad",
                                                                "-t",
                                                                "--threads",
                                                                "-default-stream",
                                                                "--default-stream",
                                                                "-diag-suppress",
                                                                "--diag-suppress",
                                                                "-cudart",
                                                                "--cudart",
                                                                "-nvlink-options",
                                                                "--machine",
                                                                "-Werror",
                                                                "-opt-info",
                                                                "-split-compile"};
constexpr std::array<std::string_view, 5> kReplacedLibraries = {"cudart", "cudart_static", "cuda", "cudadevrt", "nccl"};
constexpr std::array<std::string_view, 9> kInputs = {".cu", ".cpp", ".cc", ".cxx", ".c", ".o", ".a", ".so", ".C"};

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error("nvcc: " + text); }

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& words) : words_(words) {}

  CommandLine run() {
    for (; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (word.size() > 1 && word.front() == '-')
        option(word);
      else
        input(word);
    }
    if (line_.inputs.empty()) fail("no input: name a source, as in plugfest nvcc kernel.cu -o kernel");
    if (line_.compile_only && !line_.output.empty() && line_.inputs.size() > 1)
      fail("-c with -o takes one source: compile each with a command of its own");
    return line_;
  }

 private:
  // The value of the option `name`, in the same word or in the next one.
  std::string value(const std::string& word, std::string_view name) {
    std::string rest = word.substr(name.size());
    if (rest.starts_with('=')) rest.erase(0, 1);
    if (!rest.empty()) return rest;
    if (at_ + 1 == words_.size()) fail(fmt::format("{}: expected a value after it", name));
    return words_[++at_];
  }
  // Whether the word is `name`, or `name` with a value after =.
  static bool named(const std::string& word, std::string_view name) {
    return word == name || (word.starts_with(name) && word[name.size()] == '=');
  }
  static bool any_named(const std::string& word, std::initializer_list<std::string_view> names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return named(word, name); });
  }

  void input(const std::string& word) {
    const bool is_known =
        line_.all_are_cuda ||
        std::any_of(kInputs.begin(), kInputs.end(), [&](std::string_view ending) { return word.ends_with(ending); }) ||
        word.find(".so.") != word.npos;
    if (!is_known) fail(fmt::format("{}: expected a source (.cu, .cpp, .cc, .c), an object or a library", word));
    line_.inputs.push_back(word);
  }

  void option(const std::string& word) {
    const auto name_of = [&] { return std::string_view(word).substr(0, word.find('=')); };
    if (word == "-c" || word == "--compile" || word == "-dc" || word == "--device-c")
      line_.compile_only = true;
    else if (word == "--print-commands")
      line_.print_commands = true;
    else if (any_named(word, {"-o", "--output-file"}))
      line_.output = value(word, name_of());
    else if (any_named(word, {"--keep"}))
      line_.keep = value(word, "--keep");
    else if (any_named(word, {"-ccbin", "--compiler-bindir"}))
      line_.compiler = value(word, name_of());
    else if (any_named(word, {"-x"}))
      language(value(word, "-x"));
    else if (any_named(word, {"-std", "--std"}))
      line_.compile.push_back("-std=" + value(word, name_of()));
    else if (any_named(word, {"-Xcompiler", "--compiler-options"}))
      pass(value(word, name_of()));
    else if (any_named(word, {"-Xlinker", "--linker-options"}))
      pass_to_linker(value(word, name_of()));
    else if (any_named(word, {"-include", "-isystem", "-MF", "-MT", "-MQ"}))
      two_words(word, name_of());
    else if (any_named(word, {"--include-path"}))
      include(value(word, "--include-path"));
    else if (any_named(word, {"--library"}))
      library(value(word, "--library"));
    else if (any_named(word, {"--library-path"}))
      line_.link.push_back("-L" + value(word, "--library-path"));
    else if (any_named(word, {"--define-macro"}))
      line_.preprocess.push_back("-D" + value(word, "--define-macro"));
    else if (any_named(word, {"--optimize"}))
      line_.compile.push_back("-O" + value(word, "--optimize"));
    else if (word == "-MD" || word == "-MMD" || word == "-MP")
      line_.preprocess.push_back(word);
    else if (word == "--debug")
      line_.compile.emplace_back("-g");
    else if (word == "--shared" || word == "-shared")
      line_.link.emplace_back("-shared");
    else if (contains(kIgnoredFlags, word))
      return;
    else if (contains(kIgnoredWithValue, name_of()))
      value(word, name_of());
    else if (word.starts_with("-I"))
      include(value(word, "-I"));
    else if (word.starts_with("-D") || word.starts_with("-U")) {
      const std::string name = word.substr(0, 2);
      line_.preprocess.push_back(name + value(word, name));
    } else if (word.starts_with("-L"))
      line_.link.push_back("-L" + value(word, "-L"));
    else if (word.starts_with("-l"))
      library(value(word, "-l"));
    else if (word.starts_with("-O"))
      line_.compile.push_back("-O" + value(word, "-O"));
    else if (word.starts_with("-Wl,") || word == "-static-libstdc++" || word == "-static-libgcc" || word == "-rdynamic")
      line_.link.push_back(word);
    else if (word.starts_with("-g") || word.starts_with("-f") || word.starts_with("-W") || word.starts_with("-m") ||
             word == "-pthread" || word == "-pedantic")
      line_.compile.push_back(word);
    else
      fail(fmt::format("{}: unknown option: see plugfest nvcc --help, and pass options of the compiler with -Xcompiler",
                       word));
  }

  void language(const std::string& name) {
    if (name != "cu") fail(fmt::format("-x {}: expected cu: the ending of each file says its language", name));
    line_.all_are_cuda = true;
  }
  void include(const std::string& folder) {
    line_.include_folders.push_back(folder);
    line_.preprocess.push_back("-I" + folder);
  }
  // libplugfest-cuda.so and libnccl.so.2 stand for these.
  void library(const std::string& name) {
    if (!contains(kReplacedLibraries, name)) line_.link.push_back("-l" + name);
  }
  void two_words(const std::string& word, std::string_view name) {
    const std::string given = value(word, name);
    if (name == "-isystem") line_.include_folders.push_back(given);
    line_.preprocess.emplace_back(name);
    line_.preprocess.push_back(given);
  }
  static std::vector<std::string> parts_of(const std::string& list) {
    std::vector<std::string> parts(1);
    for (const char c : list)
      if (c == ',')
        parts.emplace_back();
      else
        parts.back() += c;
    return parts;
  }
  void pass(const std::string& list) {
    for (const std::string& part : parts_of(list)) line_.compile.push_back(part);
  }
  void pass_to_linker(const std::string& list) {
    for (const std::string& part : parts_of(list)) {
      line_.link.emplace_back("-Xlinker");
      line_.link.push_back(part);
    }
  }

  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  CommandLine line_;
};

}  // namespace

CommandLine parse(const std::vector<std::string>& words) { return Parser(words).run(); }

}  // namespace plugfest::kernels::front
