#include "fabric/system/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace plugfest {
namespace {

// Appends available bytes. Returns false at the end of the file.
bool read_some(int fd, std::string& text) {
  char buffer[65536];
  const ssize_t got = read(fd, buffer, sizeof(buffer));
  if (got < 0 && errno != EINTR) throw_errno("read a descriptor");
  if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
  return got != 0;
}

}  // namespace

std::string signal_name(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

std::string end_text(int status) {
  return WIFSIGNALED(status) ? "was ended by " + signal_name(WTERMSIG(status))
                             : "ended with code " + std::to_string(WEXITSTATUS(status));
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

int await_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

int await_exit(pid_t child) {
  const int status = await_status(child);
  return status < 0 ? -1 : exit_code_of(status);
}

std::optional<int> reap(pid_t main_child) {
  std::optional<int> exit_code;
  int status = 0;
  for (pid_t exited; (exited = waitpid(-1, &status, WNOHANG)) > 0;)
    if (exited == main_child) exit_code = exit_code_of(status);
  return exit_code;
}

std::optional<ProcessEntry> process_entry(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line, '\0');
  // "12 (any name) S 34 56 …": state, parent, process group.
  const std::size_t name = line.find('(') + 1, name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  ProcessEntry entry{.name = line.substr(name, name_end - name)};
  const char* const rest = line.c_str() + name_end;
  if (std::sscanf(rest, ") %c %d %d", &entry.state, &entry.parent, &entry.group) != 3) return std::nullopt;
  return entry;
}

std::int64_t cpu_time_of(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) processes.push_back(std::stoi(name));
  }
  return processes;
}

Pipe make_pipe(const std::string& action) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(action);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Descriptor make_memory_file(const char* name) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file) throw_errno(std::string("create the memory file ") + name);
  return file;
}

std::string read_all(int fd) {
  std::string text;
  while (read_some(fd, text)) continue;
  return text;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::optional<std::string>>>& changes) {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) lines.emplace_back(*line);
  for (const auto& [name, value] : changes) {
    const std::string start = name + "=";
    std::erase_if(lines, [&](const std::string& line) { return line.starts_with(start); });
    if (value) lines.push_back(start + *value);
  }
  return lines;
}

Finished run_program(std::vector<std::string> argv, const std::string& folder, const std::function<void()>& in_child) {
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  const std::vector<char*> pointers = pointers_to(argv);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw_errno("start " + argv[0]);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(output.write_end.get(), STDOUT_FILENO);
    dup2(errors.write_end.get(), STDERR_FILENO);
    if (in_child) in_child();
    if (folder.empty() || chdir(folder.c_str()) == 0) execvp(pointers[0], pointers.data());
    _exit(127);
  }
  output.write_end.close();
  errors.write_end.close();
  Finished finished;
  pollfd events[] = {{output.read_end.get(), POLLIN, 0}, {errors.read_end.get(), POLLIN, 0}};
  while (events[0].fd >= 0 || events[1].fd >= 0) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) throw_errno("wait for the output of " + argv[0]);
    if (events[0].revents != 0 && !read_some(events[0].fd, finished.output)) events[0].fd = -1;
    if (events[1].revents != 0 && !read_some(events[1].fd, finished.errors)) events[1].fd = -1;
  }
  finished.exit_code = await_exit(child);
  return finished;
}

std::vector<std::string> own_arguments() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  return words;
}

std::string program_as_typed() {
  const std::vector<std::string> words = own_arguments();
  return shell_word(words.empty() ? "plugfest" : words.front());
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '-' || c == '_' || c == ':' || c == ',' || c == '+';
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace plugfest
