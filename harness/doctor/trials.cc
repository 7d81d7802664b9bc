#include "harness/doctor/trials.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>

#include "fabric/loopback/layout.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "harness/doctor/modes/kvm.h"
#include "harness/doctor/modes/priority_flow.h"
#include "harness/doctor/modes/sandbox.h"
#include "harness/plugin/nccl.h"

namespace plugfest::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLibrarySeconds = 10;  // libraries have hundreds of megabytes, disks may be slow
constexpr double kKvmSeconds = 2;
constexpr double kAnswerSeconds = 2;

[[noreturn]] void run_child(int answer, const std::function<std::string()>& work) {
  setpgid(0, 0);
  // Keeps the libraries' output off the user's terminal.
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {0, 1, 2}) dup2(nothing, stream);
  std::string text;
  try {
    text = work();
  } catch (const std::exception&) {
    _exit(1);
  }
  const bool written = ::write(answer, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(written ? 0 : 1);
}

/// Reads `fd` until its end; std::nullopt after `deadline`.
std::optional<std::string> read_until(int fd, Clock::time_point deadline) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left <= 0 ? 0 : poll(&wanted, 1, static_cast<int>(left));
    if (ready == 0) return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t got = ready < 0 ? -1 : ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) return std::nullopt;
  }
}

std::string try_loopback() {
  try {
    const loopback::Layout layout(topology::named("pair"));
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

NcclTrial try_nccl() {
  NcclTrial trial;
  trial.path = plugin::find_nccl();
  if (trial.path.empty()) return trial;
  const auto answer = run_in_child(kLibrarySeconds, [&]() -> std::string {
    void* const library = dlopen(trial.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return dlerror();
    using GetVersion = int (*)(int*);
    const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
    int version = 0;
    if (get_version == nullptr || get_version(&version) != 0) return "it has no ncclGetVersion";
    return fmt::format("{}", version);
  });
  if (!answer) {
    trial.problem = "loading it crashes or takes too long";
  } else if (answer->find_first_not_of("0123456789") == std::string::npos && !answer->empty()) {
    trial.version = std::stoi(*answer);
  } else {
    // dlerror begins with the path, which the finding names already.
    const std::string start = trial.path + ": ";
    trial.problem = answer->starts_with(start) ? answer->substr(start.size()) : *answer;
  }
  return trial;
}

CudaTrial try_cuda() {
  const auto answer = run_in_child(kLibrarySeconds, []() -> std::string {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "";
    const auto function = [&](const char* name) { return reinterpret_cast<int (*)(int*)>(dlsym(library, name)); };
    const auto get_version = function("cuDriverGetVersion");
    const auto count_devices = function("cuDeviceGetCount");
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    int version = 0, devices = 0;
    if (get_version != nullptr) get_version(&version);
    const int error = init == nullptr || count_devices == nullptr ? -1 : init(0);
    if (error == 0) count_devices(&devices);
    return fmt::format("{} {} {}", version, devices, error);
  });
  CudaTrial trial;
  if (answer && answer->empty()) return trial;
  trial.library = true;
  int error = 0;
  if (!answer || std::sscanf(answer->c_str(), "%d %d %d", &trial.version, &trial.devices, &error) != 3) {
    trial.problem = "libcuda.so.1 crashes or takes too long";
  } else if (error != 0) {
    trial.problem = fmt::format("cuInit returns {}", error);
  }
  return trial;
}

}  // namespace

std::optional<std::string> run_in_child(double seconds, const std::function<std::string()>& work) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) run_child(writing.get(), work);
  setpgid(child, child);  // the child does the same: either may run first
  writing = Descriptor();
  std::optional<std::string> answer = read_until(reading.get(), deadline);
  if (!answer) kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return answer;
}

Trials Trials::real() {
  return {
      .sandbox = [](bool netem) { return try_sandbox(netem); },
      .loopback = try_loopback,
      .kvm =
          [] {
            const auto answer = run_in_child(kKvmSeconds, run_virtual_processor);
            return answer ? read_kvm_answer(*answer)
                          : KvmTrial{KvmTrial::State::kFails, "a virtual processor did not execute one instruction"};
          },
      .nccl = try_nccl,
      .cuda = try_cuda,
      .paused_priorities = [](const std::string& interface) -> std::optional<unsigned> {
        const auto answer = run_in_child(kAnswerSeconds, [&] {
          const auto paused = doctor::paused_priorities(interface);
          return paused ? fmt::format("{}", *paused) : std::string();
        });
        if (!answer || answer->empty()) return std::nullopt;
        return static_cast<unsigned>(std::stoul(*answer));
      },
  };
}

}  // namespace plugfest::doctor
