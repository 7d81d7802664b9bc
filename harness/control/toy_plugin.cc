// A small plugin over Unix sockets between processes of one machine, with one device and maxRecvs 1.
//
// TOY_FAULT selects a fault: see the uses of `fault`. Without it the plugin is correct.
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness/abi/net.h"
#include "harness/abi/profiler.h"

extern "C" __attribute__((visibility("default"))) plugfest::abi::v11::Net ncclNetPlugin_v11;

namespace {

using plugfest::abi::DeviceHandle;
using plugfest::abi::Logger;
using plugfest::abi::ProfilerCallback;
using plugfest::abi::Result;
namespace v11 = plugfest::abi::v11;

constexpr std::size_t kMaxRequests = 32;

Logger logger = nullptr;
ProfilerCallback profiler = nullptr;
// Whether init returns an error.
bool refuses = false;

bool fault(const char* name) {
  const char* wanted = std::getenv("TOY_FAULT");
  return wanted != nullptr && std::strcmp(wanted, name) == 0;
}

// Writes to unmapped memory. The assembly hides the address from the compiler.
void crash_at(std::uintptr_t address) {
  asm volatile("" : "+r"(address));
  *reinterpret_cast<volatile int*>(address) = 1;
}

[[noreturn]] void hang() {
  for (;;) pause();
}

void write_to_closed_pipe() {
  int fds[2];
  if (pipe(fds) != 0 || close(fds[0]) != 0 || write(fds[1], "", 1) != 1) close(fds[1]);
}

template <typename Action>
void repeat(int times, Action action) {
  for (int i = 0; i < times; ++i) action(i);
}

pid_t start_process() {
  const pid_t child = fork();
  if (child == 0) hang();
  return child;
}

// Starts a process in a new session, whose parent has exited.
void start_daemon() {
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() != 0) _exit(0);
    setsid();
    hang();
  }
  waitpid(parent, nullptr, 0);
}

int descriptor_of_parent() { return static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)); }

// Makes the calls that are refused on plugfest on this process and its child.
bool affects_itself() {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  char byte = 0, other = 1;
  iovec to = {&byte, 1}, from = {&other, 1};
  rlimit limit = {};
  return WIFSTOPPED(status) && ptrace(PTRACE_CONT, child, nullptr, nullptr) == 0 &&
         process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 1 && prlimit(0, RLIMIT_CORE, nullptr, &limit) == 0 &&
         prlimit(getpid(), RLIMIT_CORE, &limit, nullptr) == 0 &&
         prlimit(getppid(), RLIMIT_CORE, nullptr, &limit) == 0 && fcntl(3, F_SETOWN, getpid()) == 0 &&
         fcntl(3, F_SETOWN, 0) == 0;
}

// Whether getifaddrs() returns the interface lo, which a host of --nic loopback lacks.
bool sees_lo() {
  ifaddrs* list = nullptr;
  bool found = false;
  if (getifaddrs(&list) != 0) return false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    found = found || std::strcmp(entry->ifa_name, "lo") == 0;
  freeifaddrs(list);
  return found;
}

// Leaves no address space for another thread.
void limit_memory() {
  std::size_t pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  const rlimit limit = {pages * 4096 + (std::size_t{1} << 20), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

// The faults that init has.
struct InitFault {
  const char* name;
  void (*act)();
};

const InitFault kInitFaults[] = {
    {"print", [] { std::printf("toy plugin prints\n"); }},
    {"print a lot", [] { repeat(100000, [](int i) { std::printf("line %d of the output\n", i); }); }},
    {"log a lot",
     [] {
       repeat(5000, [](int i) { logger(3, plugfest::abi::kLogInit, "toy_plugin.cc", 3, "step %d", i); });
       repeat(5000, [](int) { logger(3, plugfest::abi::kLogInit, "toy_plugin.cc", 2, "retry"); });
     }},

    // Attacks on the process that has started this one.
    {"kill the parent", [] { kill(getppid(), SIGKILL); }},
    {"kill the parent by its descriptor",
     [] { syscall(SYS_pidfd_send_signal, descriptor_of_parent(), SIGKILL, nullptr, 0); }},
    {"stop the parent by its descriptor",
     [] { syscall(SYS_pidfd_send_signal, descriptor_of_parent(), SIGSTOP, nullptr, 0); }},
    {"kill the parent's group", [] { kill(-getpgid(getppid()), SIGTERM); }},
    {"kill process 2", [] { kill(2, SIGKILL); }},
    {"kill everything", [] { kill(-1, SIGKILL); }},
    {"kill itself", [] { kill(0, SIGKILL); }},
    {"kill with signals blocked",
     [] {
       sigset_t all;
       sigfillset(&all);
       pthread_sigmask(SIG_SETMASK, &all, nullptr);
       kill(-1, SIGKILL);
     }},
    {"trace the parent", [] { ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr); }},
    {"write to the parent",
     [] {
       char byte = 0;
       iovec memory = {&byte, 1};
       process_vm_writev(getppid(), &memory, 1, &memory, 1, 0);
     }},
    {"limit the parent",
     [] {
       const rlimit limit = {1, 1};
       prlimit(getppid(), RLIMIT_CPU, &limit, nullptr);
     }},
    {"direct signals to the parent", [] { fcntl(0, F_SETOWN, getppid()); }},
    {"reboot", [] { reboot(RB_AUTOBOOT); }},
    {"write to the parent's memory",
     [] {
       char path[64];
       std::snprintf(path, sizeof path, "/proc/%d/mem", getppid());
       refuses = open(path, O_RDWR) >= 0;
     }},

    // Calls on processes of the plugin, which are allowed.
    {"ask for the parent", [] { refuses = kill(getppid(), 0) != 0; }},
    {"affect itself", [] { refuses = !affects_itself(); }},
    {"stop a child",
     [] {
       const pid_t child = start_process();
       kill(child, SIGKILL);
       waitpid(child, nullptr, 0);
       const pid_t writer = fork();
       if (writer == 0) {
         write_to_closed_pipe();
         _exit(0);
       }
       waitpid(writer, nullptr, 0);
     }},

    {"leave a process", [] { start_process(); }},
    {"leave a daemon", start_daemon},
    {"start many processes", [] { repeat(300, [](int) { start_process(); }); }},
    {"start many daemons", [] { repeat(300, [](int) { start_daemon(); }); }},
    // A thread that runs until the process ends, even after the library is unloaded.
    {"endless thread",
     [] {
       static std::atomic<bool> runs{false};
       std::thread([] {
         runs = true;
         while (usleep(100) == 0) continue;
       }).detach();
       while (!runs) sched_yield();
     }},

    {"handle SIGSEGV, then crash in isend",
     [] {
       struct sigaction action {};
       action.sa_handler = [](int) { _exit(1); };
       sigaction(SIGSEGV, &action, nullptr);
     }},

    {"close descriptors", [] { repeat(61, [](int i) { close(3 + i); }); }},
    {"open many descriptors",
     [] {
       const rlimit limit = {64, 64};
       setrlimit(RLIMIT_NOFILE, &limit);
       while (dup(0) >= 0) continue;
     }},
    {"limit memory", limit_memory},
    {"write past the heap",
     [] {
       auto* bytes = static_cast<volatile char*>(std::malloc(8));
       bytes[8] = 1;
       std::free(const_cast<char*>(bytes));
     }},
    {"race",
     [] {
       int value = 0;
       std::thread other([&] { ++value; });
       ++value;
       other.join();
     }},
    {"rename in init", [] { ncclNetPlugin_v11.name = "Renamed"; }},
    {"crash at exit", [] { std::atexit([] { crash_at(0x30); }); }},
    {"exit in init", [] { std::exit(3); }},
    {"exit in init and leave a process",
     [] {
       start_process();
       std::exit(3);
     }},
    {"init fails",
     [] {
       logger(2, plugfest::abi::kLogInit, "toy_plugin.cc", 1, "no device");
       refuses = true;
     }},
    {"refuse random addresses", [] { refuses = (personality(0xffffffff) & ADDR_NO_RANDOMIZE) == 0; }},
    {"refuse lo", [] { refuses = sees_lo(); }},
};

struct Request;
struct Comm {
  int fd = -1;
  std::deque<Request*> queue;
};
struct Request {
  Comm* comm;
  char* data;
  std::size_t size;
  bool sends;
  std::uint64_t header = 0;
  std::size_t moved = 0;  // bytes of header and payload
  bool done = false;
  bool failed = false;
};

sockaddr_un address(const char* name, socklen_t& length) {
  sockaddr_un result{};
  result.sun_family = AF_UNIX;
  std::strncpy(result.sun_path + 1, name, sizeof result.sun_path - 2);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  return result;
}

Result init(void** context, std::uint64_t, v11::CommConfig*, Logger log, ProfilerCallback callback) {
  logger = log;
  profiler = callback;
  logger(3, plugfest::abi::kLogInit, __FILE__, __LINE__, "toy plugin version %d", 1);
  for (const auto& [name, act] : kInitFaults)
    if (fault(name)) act();
  if (refuses) return Result::kSystemError;
  static int contexts = 0;
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(0x100 + contexts++));
  return Result::kSuccess;
}

Result devices(int* count) {
  if (!fault("devices writes nothing")) *count = 1;
  return Result::kSuccess;
}

Result get_properties(int device, v11::Properties* properties) {
  static char name[] = "toy_eth0";
  if (device != 0) return Result::kInternalError;
  if (!fault("one field unwritten")) properties->forceFlush = 0;
  properties->name = name;
  properties->pciPath = nullptr;
  properties->guid = 1;
  properties->ptrSupport = 1;
  properties->regIsGlobal = 0;
  properties->speed = 10000;
  properties->port = 0;
  properties->latency = 1.5f;
  properties->maxComms = 1024;
  properties->maxRecvs = 1;
  properties->netDeviceType = 0;
  properties->netDeviceVersion = 0;
  properties->vProps.ndevs = 1;
  properties->vProps.devs[0] = 0;
  properties->maxP2pBytes = std::size_t{1} << 30;
  properties->maxCollBytes = std::size_t{1} << 30;
  properties->maxMultiRequestSize = 1;
  return Result::kSuccess;
}

// Reads from a pipe to which nobody writes.
void wait_for_data() {
  int fds[2];
  char byte = 0;
  if (pipe(fds) == 0) [[maybe_unused]]
    const ssize_t ignored = read(fds[0], &byte, 1);
}

Result listen(void*, int, void* handle, void** listener) {
  if (fault("hang in listen and connect")) wait_for_data();
  static std::atomic<int> next{0};
  char name[64];
  std::snprintf(name, sizeof name, "toy-%d-%d", getpid(), next++);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  const sockaddr_un where = address(name, length);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), length) != 0 || ::listen(fd, 64) != 0)
    return Result::kSystemError;
  std::memset(handle, 0, 128);
  std::memcpy(handle, name, sizeof name);
  if (fault("write past the handle")) static_cast<volatile char*>(handle)[128] = 1;
  if (fault("write before the handle")) static_cast<volatile char*>(handle)[-1] = 1;
  *listener = new Comm{fd, {}};
  return Result::kSuccess;
}

Result connect(void*, int, void* handle, void** comm, DeviceHandle**) {
  if (fault("hang in connect") || fault("hang in listen and connect")) hang();
  while (fault("sleep in connect")) usleep(20000);
  if (fault("slow connect")) usleep(500000);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  const sockaddr_un where = address(static_cast<const char*>(handle), length);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    close(fd);
    return errno == EAGAIN ? Result::kSuccess : Result::kRemoteError;
  }
  *comm = new Comm{fd, {}};
  return Result::kSuccess;
}

Result accept(void* listener, void** comm, DeviceHandle**) {
  const int fd = accept4(static_cast<Comm*>(listener)->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno == EAGAIN ? Result::kSuccess : Result::kSystemError;
  *comm = new Comm{fd, {}};
  return Result::kSuccess;
}

Result reg_mr(void*, void* data, std::size_t, int type, void** mhandle) {
  if (type != 1) return Result::kInternalError;
  *mhandle = data;
  return Result::kSuccess;
}
Result reg_mr_dmabuf(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return Result::kInternalError; }
Result dereg_mr(void*, void*) { return Result::kSuccess; }

Result post(Comm* comm, void* data, std::size_t size, bool sends, void** request) {
  if (comm->queue.size() == kMaxRequests) {
    *request = nullptr;
    return Result::kSuccess;
  }
  auto* made = new Request{comm, static_cast<char*>(data), size, sends, size};
  comm->queue.push_back(made);
  *request = made;
  return Result::kSuccess;
}

// Starts an event and stops it.
void report_event(void* phandle) {
  void* handle = nullptr;
  void** const event = fault("report unreadable events") ? reinterpret_cast<void**>(0x10) : &handle;
  plugfest::abi::ProfilerQueuePairEvent data = {};
  profiler(event, plugfest::abi::kProfilerNetStart, phandle, plugfest::abi::kProfilerQueuePairId, &data);
  profiler(event, plugfest::abi::kProfilerNetStop, nullptr, 0, nullptr);
}

Result isend(void* comm, void* data, std::size_t size, int, void*, void* phandle, void** request) {
  if (phandle != nullptr) report_event(phandle);
  if (fault("crash in isend") || fault("handle SIGSEGV, then crash in isend")) crash_at(0x10);
  if (fault("read past the buffer")) (void)static_cast<volatile char*>(data)[size];
  if (fault("write to a closed pipe in isend")) write_to_closed_pipe();
  if (fault("abort in isend")) std::abort();
  if (fault("throw in isend")) throw std::runtime_error("out of the plugin");
  if (fault("crash in a thread")) std::thread([] { crash_at(0x20); }).join();
  return post(static_cast<Comm*>(comm), data, size, true, request);
}

Result irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void**, void** phandles, void** request) {
  if (n != 1) return Result::kInternalError;
  if (phandles[0] != nullptr) std::thread([&] { report_event(phandles[0]); }).join();
  if (fault("change tags")) tags[0] = 99;
  if (fault("write past sizes")) sizes[n] = 1;
  return post(static_cast<Comm*>(comm), data[0], sizes[0], false, request);
}

// Sends or receives one part of a message; true when it is complete.
bool move(Request& request, char* part, std::size_t before, std::size_t size) {
  while (request.moved < before + size) {
    const std::size_t at = request.moved - before;
    const ssize_t moved = request.sends ? send(request.comm->fd, part + at, size - at, MSG_NOSIGNAL)
                                        : recv(request.comm->fd, part + at, size - at, 0);
    if (moved <= 0) {
      request.failed = moved == 0 || errno != EAGAIN;
      return false;
    }
    request.moved += static_cast<std::size_t>(moved);
  }
  return true;
}

void progress(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& request = *comm.queue.front();
    const std::size_t room = request.size;
    if (!move(request, reinterpret_cast<char*>(&request.header), 0, sizeof request.header)) return;
    if (request.header > room) request.failed = true;
    if (request.failed || !move(request, request.data, sizeof request.header, request.header)) return;
    request.done = true;
    comm.queue.pop_front();
  }
}

Result test(void* pointer, int* done, int* sizes) {
  auto* request = static_cast<Request*>(pointer);
  if (request == nullptr) return Result::kInternalError;
  if (fault("hang in test")) hang();
  if (fault("test fails")) return Result::kInternalError;
  progress(*request->comm);
  if (request->failed) return Result::kRemoteError;
  if (fault("done unwritten")) return Result::kSuccess;
  *done = request->done ? 1 : 0;
  if (!request->done) return Result::kSuccess;
  if (sizes != nullptr) sizes[0] = static_cast<int>(request->header) + (fault("wrong size") ? 1 : 0);
  if (fault("corrupt") && !request->sends && request->header > 2) request->data[2] ^= 1;
  if (sizes != nullptr && fault("write past 64 sizes")) sizes[64] = 1;
  delete request;
  return Result::kSuccess;
}

Result iflush(void*, int, void**, int*, void**, void**) { return Result::kInternalError; }

void wait_for_end(int fd) {
  shutdown(fd, SHUT_WR);
  fcntl(fd, F_SETFL, 0);
  for (char byte = 0; read(fd, &byte, 1) > 0;) continue;
}

Result close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr) return Result::kSuccess;
  if (fault("close fails")) return Result::kInternalError;
  for (Request* request : comm->queue) delete request;
  if (fault("close waits for the peer")) wait_for_end(comm->fd);
  close(comm->fd);
  delete comm;
  return Result::kSuccess;
}

Result finalize(void*) { return Result::kSuccess; }

}  // namespace

#ifdef TOY_NEEDS
extern "C" void TOY_NEEDS();
extern "C" __attribute__((visibility("default"))) void (*toy_needs)();
void (*toy_needs)() = TOY_NEEDS;
#endif

v11::Net ncclNetPlugin_v11 = {
    .name = "Toy",
    .init = init,
    .devices = devices,
    .getProperties = get_properties,
    .listen = listen,
    .connect = connect,
    .accept = accept,
    .regMr = reg_mr,
    .regMrDmaBuf = reg_mr_dmabuf,
    .deregMr = dereg_mr,
    .isend = isend,
    .irecv = irecv,
    .iflush = iflush,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_comm,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
    .makeVDevice = nullptr,
    .finalize = finalize,
    .setNetAttr = nullptr,
};
