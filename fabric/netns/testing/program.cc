#include "fabric/netns/testing/program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

namespace plugfest::netns {

std::string beside_this_test(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

SandboxExecCopy::SandboxExecCopy() {
  if (chmod(folder_.path().c_str(), 0755) != 0) throw_errno("change the mode of " + folder_.path().string());
  std::filesystem::copy_file(beside_this_test("sandbox-exec"), path());
}

Program::Program(std::vector<std::string> argv, const std::function<void()>& before_exec) {
  Pipe output = make_pipe();
  const std::vector<char*> arguments = pointers_to(argv);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(output.write_end.get(), STDOUT_FILENO);
    dup2(output.write_end.get(), STDERR_FILENO);
    before_exec();
    execv(arguments[0], arguments.data());
    _exit(126);
  }
  output_ = std::move(output.read_end);
}

Program::~Program() {
  if (waited_) return;
  kill(pid_, SIGKILL);
  exit_code();
}

std::string Program::read_line() {
  std::string line;
  for (char c; read(output_.get(), &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

int Program::exit_code() {
  waited_ = true;
  return await_exit(pid_);
}

Program in_sandbox(const std::string& script) {
  return Program({beside_this_test("sandbox-exec"), "sh", "-c", script});
}

std::string output_in_sandbox(const std::string& script) {
  Program program = in_sandbox(script);
  const std::string output = program.read_rest();
  EXPECT_EQ(program.exit_code(), 0);
  return output;
}

void become_ordinary_user() {
  constexpr unsigned kNobody = 65534;
  if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(125);
}

}  // namespace plugfest::netns
