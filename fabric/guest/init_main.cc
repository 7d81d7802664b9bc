// Process 1 of the guest: loads modules, mounts the host's files as the root, runs the command, reports over the port.
//
// Linked statically, because the initial file system has no libraries.
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "fabric/guest/protocol.h"
#include "fabric/system/process.h"
#include "fabric/system/wait.h"

namespace {

using namespace plugfest::guest;

constexpr int kConsoleOnly = 2;  // before the port is open, messages go to the console
int port = kConsoleOnly;

[[noreturn]] void power_off() {
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

// Reports "cannot ACTION: REASON" with the text of the current errno, and powers off. `action`: a verb phrase.
[[noreturn]] void fail(const std::string& action) {
  const std::string message = "cannot " + action + ": " + std::strerror(errno);
  std::fprintf(stderr, "plugfest: guest: %s\n", message.c_str());
  if (port != kConsoleOnly) write_frame(port, FrameKind::kFailed, message);
  power_off();
}

void mount_or_fail(const char* source, const std::string& target, const char* type, const char* options,
                   unsigned long flags = 0) {
  if (mount(source, target.c_str(), type, flags, options) != 0) fail("mount " + std::string(type) + " on " + target);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = readdir(entries))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

std::string content_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::optional<std::string> find_port() {
  for (const std::string& device : names_in("/sys/class/virtio-ports"))
    if (content_of("/sys/class/virtio-ports/" + device + "/name") == std::string(kPortName) + "\n")
      return "/dev/" + device;
  return std::nullopt;
}

void open_port_if_present() {
  if (port != kConsoleOnly) return;
  const std::optional<std::string> device = find_port();
  if (!device) return;
  const int opened = open(device->c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return;
  port = opened;
  write_frame(port, FrameKind::kReady, {});
}

void load_modules() {
  open_port_if_present();  // the driver may be built in
  for (const std::string& name : names_in("/modules")) {
    const int file = open(("/modules/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || (syscall(SYS_finit_module, file, "", 0) != 0 && errno != EEXIST))
      std::fprintf(stderr, "plugfest: guest: cannot load the module %s: %s\n", name.c_str(), std::strerror(errno));
    if (file >= 0) close(file);
    open_port_if_present();
  }
  // The driver finds its ports some time after it was loaded.
  const bool opened = plugfest::wait_until([] {
    open_port_if_present();
    return port != kConsoleOnly;
  });
  if (!opened) fail("open the port to the host");
}

// Mounts an overlay of a tmpfs over the host's files as the root.
void enter_root() {
  mount_or_fail("root", "/lower", "9p", "trans=virtio,version=9p2000.L,msize=512000,cache=loose", MS_RDONLY);
  mount_or_fail("upper", "/upper", "tmpfs", "mode=755");
  mkdir("/upper/files", 0755);
  mkdir("/upper/work", 0755);
  mount_or_fail("root", "/root", "overlay", "lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work");
  mount_or_fail("proc", "/root/proc", "proc", nullptr);
  mount_or_fail("sys", "/root/sys", "sysfs", nullptr);
  mount_or_fail("dev", "/root/dev", "devtmpfs", nullptr);
  mkdir("/root/dev/pts", 0755);
  mkdir("/root/dev/shm", 01777);
  mount_or_fail("pts", "/root/dev/pts", "devpts", nullptr);
  mount_or_fail("shm", "/root/dev/shm", "tmpfs", "mode=1777");
  mount_or_fail("run", "/root/run", "tmpfs", "mode=755");
  // Links in /dev that user space, not the kernel, creates.
  (void)!symlink("/proc/self/fd", "/root/dev/fd");
  (void)!symlink("/proc/self/fd/0", "/root/dev/stdin");
  (void)!symlink("/proc/self/fd/1", "/root/dev/stdout");
  (void)!symlink("/proc/self/fd/2", "/root/dev/stderr");
  // Moves the mount to the root, so that mount namespaces created later do not see the initial file system.
  if (chdir("/root") != 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0 || chdir("/") != 0)
    fail("mount the host's files as the root");
}

void set_loopback_up() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) fail("set the loopback interface up");
  close(fd);
}

struct RunningCommand {
  pid_t pid = -1;
  int output = -1;
  int errors = -1;
};

RunningCommand start(CommandLine& command, const sigset_t& signals) {
  int output[2];
  int errors[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) fail("make a pipe");
  const pid_t child = fork();
  if (child < 0) fail("fork a process");
  if (child == 0) {
    setsid();
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    const int null_device = open("/dev/null", O_RDONLY);
    dup2(null_device, 0);
    dup2(output[1], 1);
    dup2(errors[1], 2);
    if (chdir(command.working_directory.c_str()) == 0)
      execve(command.program.c_str(), plugfest::pointers_to(command.argv).data(),
             plugfest::pointers_to(command.environment).data());
    std::fprintf(stderr, "plugfest: guest: cannot run %s in %s: %s\n", command.program.c_str(),
                 command.working_directory.c_str(), std::strerror(errno));
    _exit(2);
  }
  close(output[1]);
  close(errors[1]);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  fcntl(errors[0], F_SETFL, O_NONBLOCK);
  return {child, output[0], errors[0]};
}

// Sends all available bytes to the host. Returns false at end of file.
bool forward(int fd, FrameKind kind) {
  char buffer[65536];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) return got < 0 && errno == EAGAIN;
    write_frame(port, kind, {buffer, static_cast<std::size_t>(got)});
  }
}

int run(CommandLine& command) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int children = signalfd(-1, &signals, SFD_CLOEXEC);
  if (children < 0) fail("make a descriptor for signals");
  const RunningCommand running = start(command, signals);
  FrameReader from_host;
  pollfd events[] = {
      {children, POLLIN, 0}, {running.output, POLLIN, 0}, {running.errors, POLLIN, 0}, {port, POLLIN, 0}};
  for (;;) {
    if (poll(events, std::size(events), -1) < 0) continue;
    if (events[1].revents != 0 && !forward(running.output, FrameKind::kOutput)) events[1].fd = -1;
    if (events[2].revents != 0 && !forward(running.errors, FrameKind::kErrors)) events[2].fd = -1;
    if ((events[3].revents & POLLIN) != 0) {
      char buffer[4096];
      const ssize_t got = read(port, buffer, sizeof(buffer));
      if (got > 0) from_host.add({buffer, static_cast<std::size_t>(got)});
      while (const std::optional<Frame> frame = from_host.next())
        if (frame->kind == FrameKind::kSignal) kill(running.pid, std::atoi(frame->content.c_str()));
    }
    if (events[0].revents != 0) {
      signalfd_siginfo info;
      (void)!read(children, &info, sizeof(info));
      if (const std::optional<int> exit_code = plugfest::reap(running.pid)) {
        // The pipes hold the rest of its output. Its remaining children are not waited for.
        forward(running.output, FrameKind::kOutput);
        forward(running.errors, FrameKind::kErrors);
        return *exit_code;
      }
    }
  }
}

void send_results(const CommandLine& command) {
  for (const std::string& path : command.results) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    write_frame(port, FrameKind::kFile, path + '\0' + content_of(path));
  }
}

}  // namespace

int main() {
  mount_or_fail("proc", "/proc", "proc", nullptr);
  mount_or_fail("sys", "/sys", "sysfs", nullptr);
  mount_or_fail("dev", "/dev", "devtmpfs", nullptr);
  CommandLine command = parse_command_line(content_of(std::string("/") + kCommandFile));
  load_modules();
  enter_root();
  set_loopback_up();
  for (const std::string& path : command.results) {
    struct stat status {};
    if (lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) unlink(path.c_str());
  }
  const int exit_code = run(command);
  send_results(command);
  write_frame(port, FrameKind::kExit, std::to_string(exit_code));
  power_off();
}
