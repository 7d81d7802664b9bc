// The program plugfest: runs one subcommand. Prints each error and exits with code 2.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>

#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/stop.h"
#include "harness/control/call.h"
#include "harness/report/text.h"
#include "version.h"

namespace plugfest::cli {
namespace {

std::string version_text() {
  const std::string commit = PLUGFEST_COMMIT;
  return fmt::format("plugfest {}{}", PLUGFEST_VERSION, commit.empty() ? "" : fmt::format(" ({})", commit));
}

int run(int argc, char** argv) {
  CommandLine line(program_as_typed(), "Tests NCCL network plugins on a software RDMA fabric.", version_text());
#define PLUGFEST_ADD(name) add_##name(line.program());
  PLUGFEST_SUBCOMMANDS(PLUGFEST_ADD)
#undef PLUGFEST_ADD
  return line.run(argc, argv);
}

// Opens each of the descriptors 0 to 2 that the caller has closed, so that no other file gets their numbers. Reads
// and writes fail as on a closed descriptor; messages on standard error are lost.
void reserve_standard_descriptors() {
  for (const int fd : {0, 1, 2}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", fd == 0 ? O_WRONLY : fd == 1 ? O_RDONLY : O_RDWR) != fd) std::_Exit(2);
  }
}

// Whether standard output is a pipe whose reader has ended, as in `plugfest run | head`.
bool reader_has_ended() {
  pollfd output = {STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

// Writes the rest of standard output. Returns the error of this or of an earlier write, or "".
std::string output_error() {
  if (reader_has_ended()) return "";
  if (std::fflush(stdout) == 0) {
    if (std::ferror(stdout) == 0) return "";
    // The reason of an earlier error is lost, but devices and closed descriptors repeat it.
    if (write(STDOUT_FILENO, "", 0) == 0) return "standard output: cannot write all of it";
  }
  return fmt::format("standard output: cannot write: {}", std::strerror(errno));
}

}  // namespace
}  // namespace plugfest::cli

int main(int argc, char** argv) {
  plugfest::cli::reserve_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of ulimit -f then fails like others
  int exit_code = 2;
  std::string error;
  try {
    exit_code = plugfest::cli::run(argc, argv);
  } catch (const plugfest::control::Interrupted&) {
    exit_code = plugfest::cli::exit_code_unless_stopped(2);  // before the command had results
  } catch (const std::system_error& failed) {
    // fmt::print() throws if standard output cannot be written.
    error = std::ferror(stdout) == 0 ? failed.what() : "standard output: cannot write: " + failed.code().message();
  } catch (const std::exception& failed) {
    error = failed.what();
  }
  if (error.empty()) error = plugfest::cli::output_error();
  if (error.empty()) return exit_code;
  if (error.ends_with(std::strerror(EFBIG))) error += ": see ulimit -f";
  error = plugfest::report::printable(plugfest::shortened_lines(error, 4000, 100), "\t\n");
  std::fputs(fmt::format("plugfest: {}\n", error).c_str(), stderr);
  return 2;
}
