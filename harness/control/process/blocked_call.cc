#include "harness/control/process/blocked_call.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>

#include "fabric/system/process.h"
#include "harness/control/process/stack.h"

namespace plugfest::control {

namespace {

// The time between two examinations of the thread.
constexpr Nanoseconds kInterval = 20'000'000;
// The limit of reads of a stack that shows no place in the plugin.
constexpr int kReads = 3;
// The limit is this many times longer while other threads of the ranks run.
constexpr int kWhileOthersRun = 4;
// The factor for calls that may wait for a retransmission, which TCP delays more and more.
constexpr int kForRetransmissions = 8;

// The time for which a thread has run, if it waits in the kernel for an event (state S).
std::optional<std::uint64_t> time_of_waiting_thread(pid_t thread) {
  const std::string folder = thread_folder(thread);
  std::string stat;
  std::getline(std::ifstream(folder + "/stat"), stat);
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || stat.substr(name_end, 3) != ") S") return std::nullopt;
  std::uint64_t ran_ns = 0;
  if (!(std::ifstream(folder + "/schedstat") >> ran_ns)) return std::nullopt;
  return ran_ns;
}

// The place in `library` at which a thread waits in the kernel; "" if it is not known.
std::string place_of(const std::vector<std::string>& stack, const std::string& library) {
  return !stack.empty() && stack.front().starts_with(kInSystemCall) ? place_in_plugin(stack, library) : "";
}

}  // namespace

void HangPlaces::add(const std::vector<std::string>& stack, const std::string& library) {
  const std::string place = place_of(stack, library);
  if (place.empty()) return;
  const std::lock_guard lock(mutex_);
  places_.insert(place);
  ++hangs_;
}

bool HangPlaces::knows(const std::string& place) const {
  const std::lock_guard lock(mutex_);
  return any_known() && places_.contains(place);
}

bool BlockedCall::hangs(pid_t process, const std::string& thread, std::uint32_t id, LoadClock& clock) {
  if (is(id)) return true;
  if (!places_.any_known()) return false;
  if (id != id_) {
    id_ = id;
    thread_ = 0;
    thread_ran_ns_ = 0;
    hangs_ = false;
    unreadable_ = 0;
    examined_.clear();
  }
  const Nanoseconds now = clock.now();
  if (now - looked_ < kInterval) return false;
  looked_ = now;
  if (thread_ == 0) thread_ = thread_named(process, thread);  // it may just have been started
  const std::optional<std::uint64_t> ran_ns = time_of_waiting_thread(thread_);
  if (!ran_ns || ran_ns != thread_ran_ns_) {
    thread_ran_ns_ = ran_ns.value_or(0);
    all_ran_ = clock.ran();
    since_ = now;
    return false;
  }
  // The call may wait for a peer that is running.
  const bool others_are_idle = clock.ran() - all_ran_ < (now - since_) / 10;
  const int factor = retransmits_ ? kForRetransmissions : others_are_idle ? 1 : kWhileOthersRun;
  if (now - since_ < factor * limit_) return false;
  waited_ = factor * limit_;
  std::string system_call;
  std::getline(std::ifstream(thread_folder(thread_) + "/syscall"), system_call);
  if (system_call == examined_) return false;
  stack_ = read_stack(process, thread_, StackPart::kWhole);
  const std::string place = place_of(stack_, library_);
  if (place.empty() && ++unreadable_ < kReads) {
    since_ = now;
    return false;
  }
  examined_ = std::move(system_call);
  return hangs_ = !place.empty() && places_.knows(place);
}

}  // namespace plugfest::control
