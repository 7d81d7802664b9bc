#include "fabric/roce/faults/fault_file_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <future>
#include <string>

namespace plugfest::roce {
namespace {

constexpr std::string_view kFile = "faults";

// The path of an open folder in any mount namespace.
std::filesystem::path path_of(const Descriptor& folder) { return "/proc/self/fd/" + std::to_string(folder.get()); }

}  // namespace

FaultFileGuard::~FaultFileGuard() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

// Returns whether the thread runs. The thread has its own current folder: the caller can change its mount namespace.
bool FaultFileGuard::start() {
  if (thread_.joinable()) return true;
  changes_ = Descriptor(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!changes_ || !stop_) return false;
  std::promise<void> ready;
  thread_ = std::thread([this, &ready] {
    unshare(CLONE_FS);
    ready.set_value();
    serve();
  });
  ready.get_future().wait();
  return true;
}

void FaultFileGuard::add(const std::filesystem::path& class_infiniband) {
  const std::lock_guard lock(mutex_);
  if (!start()) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(class_infiniband, ignored)) {
    Device device{Descriptor(open(entry.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), {}};
    const int watch = inotify_add_watch(changes_.get(), entry.path().c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE);
    if (device.folder && watch >= 0) devices_[watch] = std::move(device);
  }
}

void FaultFileGuard::serve() {
  alignas(inotify_event) char buffer[4096];
  for (;;) {
    pollfd events[] = {{changes_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(events, 2, -1);
    if (events[1].revents != 0) return;
    const ssize_t length = read(changes_.get(), buffer, sizeof(buffer));
    const std::lock_guard lock(mutex_);
    for (ssize_t at = 0; at < length;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const auto device = devices_.find(event->wd);
      if (device != devices_.end() && event->len != 0 && event->name == kFile) check(device->second);
    }
  }
}

void FaultFileGuard::check(Device& device) {
  const std::filesystem::path file = path_of(device.folder) / kFile;
  std::string text;
  try {
    if (std::filesystem::exists(file)) text = read_file(file.string());
    device.active = parse_fault_file(text, kFile);
  } catch (const std::exception& error) {
    std::string shown = std::string("# refused: ") + error.what() + '\n';
    for (const FaultPlan& plan : device.active) shown += text_of(plan) + '\n';
    // The folder is gone with its host, or the host has no memory left: the NICs report the invalid plan.
    replace_file(file, shown);
  }
}

}  // namespace plugfest::roce
