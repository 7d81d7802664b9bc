#include "fabric/guest/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "fabric/system/exit_code.h"

namespace plugfest::guest {
namespace {

[[noreturn]] void throw_failed(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_failed("pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(read_end);
    close_write_end();
  }
  void close_write_end() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

// Reads two pipes until end of file.
void drain(const Pipe& output, std::string& output_text, const Pipe& errors, std::string& errors_text) {
  pollfd events[] = {{output.read_end, POLLIN, 0}, {errors.read_end, POLLIN, 0}};
  std::string* texts[] = {&output_text, &errors_text};
  char buffer[65536];
  while (events[0].fd >= 0 || events[1].fd >= 0) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) throw_failed("poll");
    for (int i = 0; i < 2; ++i) {
      if (events[i].fd < 0 || events[i].revents == 0) continue;
      const ssize_t got = read(events[i].fd, buffer, sizeof(buffer));
      if (got > 0) texts[i]->append(buffer, static_cast<std::size_t>(got));
      if (got == 0) events[i].fd = -1;
    }
  }
}

}  // namespace

Finished run_program(std::vector<std::string> argv, const std::string& folder) {
  Pipe output;
  Pipe errors;
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw_failed("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(output.write_end, 1);
    dup2(errors.write_end, 2);
    if (folder.empty() || chdir(folder.c_str()) == 0) execvp(pointers[0], pointers.data());
    _exit(127);
  }
  output.close_write_end();
  errors.close_write_end();
  Finished finished;
  drain(output, finished.output, errors, finished.errors);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  finished.exit_code = exit_code_of(status);
  return finished;
}

}  // namespace plugfest::guest
