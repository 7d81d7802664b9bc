// Trials in child processes: a sandbox, a virtual processor, and the libraries of NCCL and CUDA.
#include "harness/doctor/trials.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kvm.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/netem.h>
#include <netlink/route/tc.h>
#include <netlink/socket.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "fabric/loopback/layout.h"
#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/topology/graph.h"
#include "harness/doctor/verbs_device.h"
#include "harness/plugin/nccl.h"

namespace plugfest::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLibrarySeconds = 10;  // libraries have hundreds of megabytes, and disks may be slow
constexpr double kKvmSeconds = 2;
constexpr double kAnswerSeconds = 2;
constexpr double kSandboxSeconds = 10;

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

// Reads `fd` until its end; std::nullopt after `deadline`.
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

template <typename Trial>
std::string encoded(const Trial& trial) {
  const std::vector<std::byte> bytes = wire::encode(trial);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The result of `work` in a child process, or `failed`.
template <typename Trial, typename Work>
Trial try_in_child(double seconds, const Trial& failed, const Work& work) {
  const std::optional<std::string> answer = run_in_child(seconds, work);
  try {
    return answer ? wire::decode<Trial>(std::as_bytes(std::span(*answer))) : failed;
  } catch (const wire::WireError&) {
    return failed;
  }
}

NcclTrial try_nccl() {
  const NcclTrial failed{.path = plugin::find_nccl(), .version = 0, .problem = "loading it crashes or takes too long"};
  if (failed.path.empty()) return {};
  return try_in_child(kLibrarySeconds, failed, [trial = failed]() mutable {
    trial.problem.clear();
    void* const library = dlopen(trial.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    using GetVersion = int (*)(int*);
    const auto get_version =
        library == nullptr ? nullptr : reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
    if (library == nullptr) {
      trial.problem = dlerror();
      // The message begins with the path, which the finding already contains.
      const std::string start = trial.path + ": ";
      if (trial.problem.starts_with(start)) trial.problem.erase(0, start.size());
    } else if (get_version == nullptr || get_version(&trial.version) != 0) {
      trial.problem = "it has no ncclGetVersion";
    }
    return encoded(trial);
  });
}

CudaTrial try_cuda() {
  const CudaTrial failed{
      .library = true, .version = 0, .devices = 0, .problem = "libcuda.so.1 crashes or takes too long"};
  return try_in_child(kLibrarySeconds, failed, [] {
    CudaTrial trial;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return encoded(trial);
    trial.library = true;
    const auto function = [&](const char* name) { return reinterpret_cast<int (*)(int*)>(dlsym(library, name)); };
    const auto get_version = function("cuDriverGetVersion");
    const auto count_devices = function("cuDeviceGetCount");
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
    if (get_version != nullptr) get_version(&trial.version);
    const int error = init == nullptr || count_devices == nullptr ? -1 : init(0);
    if (error == 0) count_devices(&trial.devices);
    if (error != 0) trial.problem = fmt::format("cuInit returns {}", error);
    return encoded(trial);
  });
}

int require(int result, const char* step) {
  if (result < 0) throw std::runtime_error(fmt::format("{}: {}", step, std::strerror(errno)));
  return result;
}

#if defined(__x86_64__)
void run_one_instruction(int kvm, int machine) {
  constexpr std::size_t kPage = 4096;
  constexpr unsigned char kHalt = 0xf4;
  void* const memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  *static_cast<unsigned char*>(memory) = kHalt;
  kvm_userspace_memory_region region{};
  region.guest_phys_addr = kPage;
  region.memory_size = kPage;
  region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
  require(ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
  const int processor = require(ioctl(machine, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
  const int bytes = require(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
  void* const shared = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, processor, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no memory of the virtual processor");
  kvm_sregs segments{};
  require(ioctl(processor, KVM_GET_SREGS, &segments), "KVM_GET_SREGS");
  segments.cs.base = 0;
  segments.cs.selector = 0;
  require(ioctl(processor, KVM_SET_SREGS, &segments), "KVM_SET_SREGS");
  kvm_regs registers{};
  registers.rip = kPage;
  registers.rflags = 2;  // the bit that is always set
  require(ioctl(processor, KVM_SET_REGS, &registers), "KVM_SET_REGS");
  require(ioctl(processor, KVM_RUN, 0), "KVM_RUN");
  const auto reason = static_cast<const kvm_run*>(shared)->exit_reason;
  if (reason != KVM_EXIT_HLT) throw std::runtime_error(fmt::format("KVM_RUN ended for reason {}", reason));
}
#else
void run_one_instruction(int, int machine) { require(ioctl(machine, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU"); }
#endif

// Runs a virtual machine with one page of memory whose processor executes HLT. On some machines with /dev/kvm it hangs.
KvmTrial run_virtual_processor() {
  const int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
  if (kvm < 0) {
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) return {};
    if (errno == EACCES || errno == EPERM) return {.state = KvmTrial::State::kNoAccess};
    return {.state = KvmTrial::State::kFails, .reason = fmt::format("/dev/kvm: {}", std::strerror(errno))};
  }
  try {
    run_one_instruction(kvm, require(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM"));
    return {.state = KvmTrial::State::kRuns};
  } catch (const std::runtime_error& error) {
    return {.state = KvmTrial::State::kFails, .reason = error.what()};
  }
}

// Whether the kernel accepts a netem queue on the loopback interface of this namespace.
bool takes_netem() {
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket(nl_socket_alloc(), nl_socket_free);
  const std::unique_ptr<rtnl_qdisc, void (*)(rtnl_qdisc*)> queue(rtnl_qdisc_alloc(), rtnl_qdisc_put);
  if (!socket || !queue || nl_connect(socket.get(), NETLINK_ROUTE) != 0) return false;
  rtnl_tc_set_ifindex(TC_CAST(queue.get()), 1);
  rtnl_tc_set_parent(TC_CAST(queue.get()), TC_H_ROOT);
  if (rtnl_tc_set_kind(TC_CAST(queue.get()), "netem") != 0) return false;
  rtnl_netem_set_limit(queue.get(), 1000);
  return rtnl_qdisc_add(socket.get(), queue.get(), NLM_F_CREATE) == 0;
}

std::string make_two_hosts(bool netem) {
  SandboxTrial trial;
  try {
    if (netns::enter_sandbox()) return "";  // the process inside the sandbox answers
    const netns::Fabric fabric(topology::named("pair"));
    const int first_process = 2;  // process 1 is the sandbox's init
    trial.own_pid_namespace = getpid() == first_process;
    if (netem) trial.netem = takes_netem();
  } catch (const netns::NamespacesForbidden& error) {
    trial.restriction = Restriction{error.restriction};
  } catch (const std::exception& error) {
    trial.restriction = Restriction{{.cause = error.what(), .command = {}, .alternative = {}}};
  }
  return encoded(trial);
}

SandboxTrial try_sandbox(bool netem) {
  const auto start = Clock::now();
  const std::string late = fmt::format("creating two hosts failed or took more than {:g} s", kSandboxSeconds);
  SandboxTrial trial = try_in_child(
      kSandboxSeconds, SandboxTrial{.restriction = Restriction{{.cause = late, .command = {}, .alternative = {}}}},
      [netem] { return make_two_hosts(netem); });
  trial.milliseconds =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
  return trial;
}

std::optional<unsigned> try_priorities(const std::string& interface) {
  return try_in_child(kAnswerSeconds, std::optional<unsigned>(),
                      [&] { return encoded(std::optional<unsigned>(doctor::paused_priorities(interface))); });
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
  if (await_exit(child) != 0) return std::nullopt;
  return answer;
}

Trials Trials::real() {
  const KvmTrial hangs{KvmTrial::State::kFails, "a virtual processor did not execute one instruction"};
  return {
      .sandbox = try_sandbox,
      .loopback = try_loopback,
      .kvm = [hangs] { return try_in_child(kKvmSeconds, hangs, [] { return encoded(run_virtual_processor()); }); },
      .nccl = try_nccl,
      .cuda = try_cuda,
      .paused_priorities = try_priorities,
  };
}

}  // namespace plugfest::doctor
