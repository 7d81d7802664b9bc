// Loads the plugin with NCCL's own loader in a rank process, and compares the outcome with our loader.
#include "harness/cli/run/nccl_loader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "fabric/system/descriptor.h"
#include "fabric/system/load_clock.h"
#include "fabric/system/text.h"
#include "harness/cli/stop.h"
#include "harness/plugin/nccl/nccl_loader.h"
#include "harness/rank/nccl_load.h"
#include "harness/wire/protocol.h"

namespace plugfest::cli {
namespace {

constexpr int kClockIntervalMs = 200;

/// Returns what a process writes until it closes `fd`; nothing after `seconds` in which it had a processor, or after a
/// signal to stop.
std::optional<std::string> read_answer(int fd, pid_t process, double seconds) {
  LoadClock clock(LoadClock::Own::kThread);
  clock.watch(process);
  std::string text;
  for (;;) {
    const double left = seconds - static_cast<double>(clock.now()) / 1e9;
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wanted, 1, kClockIntervalMs);
    if (stop_signal() != 0 || (ready == 0 && left <= 0)) return std::nullopt;
    if (ready == 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t got = ready < 0 ? -1 : ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "loader nccl");
  }
}

/// Returns NCCL's log as far as it was written.
std::string read_log(int fd) {
  std::string text(1 << 20, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return shortened_lines(text, 1000, 1000);
}

/// Returns how NCCL's loader deviates from the harness's; empty if it does not.
std::string deviation(const report::Loader& seen, int init, int finalize, int expected) {
  if (seen.api == 0) return fmt::format("NCCL {} takes no version of it", seen.nccl);
  if (seen.api != expected) {
    return fmt::format("NCCL {} takes v{}, expected v{}", seen.nccl, seen.api, expected);
  }
  if (init != 0) return fmt::format("NCCL {} initialised no network: {}", seen.nccl, rank::code_text(init));
  // The plugin may have changed its name in init.
  if (seen.network != seen.name && plugin::is_own_network(seen.network)) {
    return fmt::format("NCCL {} took v{}, whose init failed, and fell back to {}", seen.nccl, seen.api, seen.network);
  }
  if (finalize != 0) return fmt::format("NCCL {} could not finalize it: {}", seen.nccl, rank::code_text(finalize));
  return "";
}

}  // namespace

report::Loader ask_nccl(bed::TestBed& bed, const Plugin& plugin, double seconds) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const Descriptor log(::memfd_create("nccl-log", MFD_CLOEXEC));
  const Descriptor output(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const pid_t process =
      bed.launcher().launch({.rank = bed.paths().front().near,
                             .argv = {control::rank_program(), rank::kNcclLoadOption, plugin.load},
                             .environment = bed.subject(plugin.load, 0).environment,
                             .output_fd = output.get(),
                             .descriptors = {{writing.get(), rank::kControlFd}, {log.get(), rank::kLogFd}}});
  writing = Descriptor();
  const std::optional<std::string> answer = read_answer(reading.get(), process, seconds);
  if (!answer) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;

  report::Loader seen;
  seen.log = read_log(log.get());
  if (!answer) {
    seen.deviation = fmt::format("NCCL did not start and finalize the plugin within {} s", seconds);
    return seen;
  }
  if (answer->empty()) {
    seen.deviation =
        WIFSIGNALED(status)
            ? fmt::format(
                  "NCCL's process was ended by signal {}, in the plugin or in the network that NCCL falls back to",
                  WTERMSIG(status))
            : fmt::format("NCCL's process ended with code {}", WEXITSTATUS(status));
    return seen;
  }
  std::istringstream lines(*answer);
  std::string api, init, finalize, devices;
  std::getline(lines, seen.nccl);
  std::getline(lines, api);
  if (seen.nccl == "error") throw std::runtime_error(api);
  std::getline(lines, seen.name);
  std::getline(lines, seen.network);
  std::getline(lines, init);
  std::getline(lines, finalize);
  std::getline(lines, devices);
  seen.api = std::stoi(api);
  seen.devices = std::stoi(devices);
  int expected = 0;
  for (const int have : plugin.apis) {
    if (have <= plugin::kNewestNetOfNccl && have > expected) expected = have;
  }
  seen.deviation = shortened(deviation(seen, std::stoi(init), std::stoi(finalize), expected), 1000);
  seen.name = shortened(seen.name, 255);
  seen.network = shortened(seen.network, 255);
  return seen;
}

}  // namespace plugfest::cli
