#include "fabric/system/load_clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>
#include <cinttypes>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fabric/system/file.h"

namespace plugfest {
namespace {

constexpr Nanoseconds kWindow = 100'000'000;

/// The beginning of a file; "" if it cannot be read.
std::string read_start(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t length = file.get() < 0 ? -1 : ::read(file.get(), text, sizeof(text));
  return length <= 0 ? std::string() : std::string(text, static_cast<std::size_t>(length));
}

/// The state of a thread. `stat`: the beginning of its file of that name: "12 (name) R 1 …".
char state_of(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

}  // namespace

Nanoseconds LoadClock::at(Nanoseconds monotonic) {
  if (read_at_ == 0 || monotonic - read_at_ >= kWindow) read(monotonic);
  const double since = static_cast<double>(monotonic - read_at_) * speed_;
  return latest_ = std::max(latest_, elapsed_ + static_cast<Nanoseconds>(since));
}

void LoadClock::read(Nanoseconds monotonic) {
  const Nanoseconds window = monotonic - read_at_;
  Nanoseconds waited = 0;
  for (auto& [process, threads] : watched_)
    waited = std::max(waited, longest_wait(proc_ + "/" + std::to_string(process), threads, window));
  for (WatchedMeter& watched : meters_) {
    // Waits that are reported late count in the next windows.
    const Nanoseconds fresh = std::min(window, watched.meter->load() - watched.counted);
    watched.counted += fresh;
    waited = std::max(waited, fresh);
  }
  if (own_ == Own::kProcess) {
    waited = std::max(waited, longest_wait(proc_ + "/self", own_threads_, window));
  } else {
    const pid_t self = gettid();
    const bool known = own_threads_.count(self) != 0;
    if (!known) own_threads_.clear();
    const Nanoseconds own = wait_of(proc_ + "/thread-self", own_threads_[self], true, window);
    if (known) waited += own;
  }
  if (read_at_ != 0) {
    const Nanoseconds counted = std::max(window / kSlowest, window - waited);
    speed_ = static_cast<double>(counted) / static_cast<double>(window);
    elapsed_ += counted;
  }
  read_at_ = monotonic;
}

Nanoseconds LoadClock::longest_wait(const std::string& process, Threads& threads, Nanoseconds window) {
  const std::string folder = process + "/task/";
  DIR* const list = opendir(folder.c_str());
  Threads present;
  const pid_t self = gettid();
  Nanoseconds longest = 0;
  while (const dirent* const entry = list == nullptr ? nullptr : readdir(list)) {
    const pid_t thread = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (thread == 0) continue;
    const auto known = threads.find(thread);
    Usage& usage = present[thread] = known == threads.end() ? Usage() : known->second;
    // Files in `folder` are slow to release: see thread_folder().
    longest = std::max(longest, wait_of(proc_ + "/" + entry->d_name, usage, thread == self, window));
    if (known != threads.end()) ran_ += static_cast<Nanoseconds>(usage.ran_ns - known->second.ran_ns);
  }
  if (list != nullptr) closedir(list);
  threads = std::move(present);
  return longest;
}

Nanoseconds LoadClock::wait_of(const std::string& folder, Usage& usage, bool is_own, Nanoseconds window) const {
  Usage now;
  if (std::sscanf(read_start(folder + "/schedstat").c_str(), "%" SCNu64 " %" SCNu64 " %" SCNu64, &now.ran_ns,
                  &now.waited_ns, &now.turns) != 3)
    return 0;
  if (!is_own) now.state = state_of(read_start(folder + "/stat"));
  const Usage before = std::exchange(usage, now);
  // The kernel counts a wait when it ends, and does not count waits for its locks. A thread that was runnable at both
  // readings and got no processor between them is still waiting. A thread that is runnable now may have just woken up.
  const bool still_waits = now.state == 'R' && before.state == 'R' && now.turns == before.turns;
  const Nanoseconds ran = static_cast<Nanoseconds>(now.ran_ns - before.ran_ns);
  const Nanoseconds waited = still_waits || now.state == 'D'
                                 ? window - std::min(window, ran)
                                 : static_cast<Nanoseconds>(now.waited_ns - before.waited_ns);
  return std::min(window, waited);
}

}  // namespace plugfest
