#include "fabric/guest/machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <stdexcept>

#include "fabric/guest/protocol.h"
#include "fabric/system/descriptor_passing.h"
#include "fabric/system/process.h"

namespace plugfest::guest {
namespace {

constexpr const char* kQemu = "qemu-system-x86_64";

// An anonymous file, which QEMU opens under /proc/self/fd.
Descriptor memory_file(const std::string& content) {
  Descriptor file(memfd_create("initial-files", 0));
  if (!file) throw_errno("create a memory file for the guest");
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t written = write(file.get(), content.data() + done, content.size() - done);
    if (written < 0) throw_errno("write the initial files of the guest");
    done += static_cast<std::size_t>(written);
  }
  return file;
}

std::vector<std::string> arguments(const Kernel& kernel, Acceleration acceleration, int initial_files, int port,
                                   int console) {
  const bool kvm = acceleration == Acceleration::kKvm;
  return {kQemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "2048", "-smp", "2",
          "-accel", kvm ? "kvm" : "tcg,thread=multi", "-cpu", kvm ? "host" : "max", "-kernel", kernel.image.string(),
          "-initrd", fmt::format("/proc/self/fd/{}", initial_files),
          // Host and guest trust each other, and mitigations are slow in emulation. The timer check panics if a busy
          // host does not run the emulated timer in time.
          "-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on no_timer_check", "-chardev",
          fmt::format("socket,id=console,fd={}", console), "-serial", "chardev:console", "-device", "virtio-serial-pci",
          "-chardev", fmt::format("socket,id=port,fd={}", port), "-device",
          fmt::format("virtserialport,chardev=port,name={}", kPortName), "-virtfs",
          "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"};
}

void require_qemu() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access(fmt::format("{}/{}", folder, kQemu).c_str(), X_OK) == 0) return;
  throw std::runtime_error(fmt::format("{} is not installed: run sudo apt-get install qemu-system-x86", kQemu));
}

// `inherited`: the descriptors that QEMU keeps. `messages`: the one that gets its output.
[[noreturn]] void exec_qemu(std::vector<std::string>& argv, std::initializer_list<int> inherited, int messages,
                            pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setsid();  // a Ctrl-C of the terminal must not reach QEMU
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int fd : inherited) fcntl(fd, F_SETFD, 0);
  dup2(open("/dev/null", O_RDONLY), 0);
  dup2(messages, 1);
  dup2(messages, 2);
  execvp(argv[0].c_str(), pointers_to(argv).data());
  const std::string why = fmt::format("cannot execute {}: {}", kQemu, std::strerror(errno));
  (void)!write(messages, why.data(), why.size());
  _exit(127);
}

}  // namespace

Machine::Machine(const Kernel& kernel, const std::string& initial_files, Acceleration acceleration) {
  require_qemu();
  const Descriptor files = memory_file(initial_files);
  auto [port, port_of_qemu] = make_socket_pair("make a socket pair for the guest");
  auto [console, console_of_qemu] = make_socket_pair("make a socket pair for the guest");
  std::vector<std::string> argv =
      arguments(kernel, acceleration, files.get(), port_of_qemu.get(), console_of_qemu.get());
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) exec_qemu(argv, {port_of_qemu.get(), console_of_qemu.get()}, console_of_qemu.get(), parent);
  if (pid_ < 0) throw_errno("fork a process for the guest");
  port_ = std::move(port);
  console_ = std::move(console);
}

Machine::~Machine() {
  kill(pid_, SIGKILL);
  await_exit(pid_);
}

}  // namespace plugfest::guest
