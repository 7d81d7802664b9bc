// The workloads Replay and ReplayRegistrations: the loop of the proxies of a rank, and registrations at the same time.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "harness/rank/memory.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"
#include "harness/rank/workloads/replay/gpu.h"
#include "harness/rank/workloads/replay/proxy.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kMemory = 1024 * 1024;
constexpr std::size_t kMaxRegistered = 12;
constexpr std::uint64_t kMaxPauseUs = 400;

std::mutex ends_mutex;
std::condition_variable ended;
std::uint64_t last_ended_run = 0;

// Waits; true if the replay has ended.
bool has_ended(std::uint64_t run, std::uint64_t microseconds) {
  std::unique_lock lock(ends_mutex);
  return ended.wait_for(lock, std::chrono::microseconds(microseconds), [run] { return last_ended_run >= run; });
}

// From a few bytes, of which several registrations share a page, to many pages.
Range draw_range(const Mapping& memory, std::uint64_t number) {
  const std::uint64_t size = 1 + (number >> 20) % (std::uint64_t{1} << (6 + number % 14));
  return {memory.address + (number >> 40) % (kMemory - size), size};
}

struct Registered {
  std::uint64_t comm = 0;
  std::uint64_t mhandle = 0;
};

// Ends ReplayRegistrations of the same run when it goes out of scope.
class ReplayEndNotice {
 public:
  explicit ReplayEndNotice(std::uint64_t run) : run_(run) {}
  ~ReplayEndNotice() {
    {
      const std::lock_guard lock(ends_mutex);
      last_ended_run = run_;
    }
    ended.notify_all();
  }
  ReplayEndNotice(const ReplayEndNotice&) = delete;
  ReplayEndNotice& operator=(const ReplayEndNotice&) = delete;

 private:
  std::uint64_t run_;
};

// Rounds after which new operations begin although others make progress (NCCL_PROGRESS_APPENDOP_FREQ).
constexpr std::uint64_t kRoundsUntilAppend = 8;
// Kernels whose proxy operations may begin before the kernel runs, at most.
constexpr std::uint64_t kMaxAhead = 4;
constexpr std::uint64_t kSleepOneIn = 512;
constexpr std::uint64_t kMaxSleepUs = 100;

class ReplayLoop {
 public:
  explicit ReplayLoop(const Replay& request) : request_(request), calls_(request), stall_(request.timeout_ns) {
    ends_.reserve(request.connections.size());
    for (const ReplayConnection& connection : request.connections) ends_.emplace_back(connection);
    for (const ReplayStream& stream : request.streams) {
      streams_.emplace_back(request_, stream, ends_, mix(request.seed, streams_.size()));
      appended_.push_back(0);
    }
  }

  ReplayAnswer run() {
    ReplayAnswer answer;
    answer.start_ns = now_ns();
    ReplayReport& report = answer.report;
    try {
      loop();
    } catch (const ReplayFailed& failed) {
      report.broken = failed.what;
    }
    calls_.finish(report);
    report.stalled = stalled_;
    for (const ReplayEnd& end : ends_) {
      report.steps.push_back(end.step);
      report.messages.push_back(end.messages);
    }
    if (!streams_.empty()) report.kernel_ends_ns = streams_.front().ends_ns();
    answer.end_ns = now_ns();
    return answer;
  }

 private:
  void loop() {
    for (const ReplayEnd& end : ends_) {
      if (end.plan().sends) continue;
      const std::string problem = calls::leave_consumption_to_caller(end.plan().comm);
      if (!problem.empty()) throw ReplayFailed{"the replay " + problem};
    }
    append();
    for (std::uint64_t round = 0; !finished(); ++round) {
      bool idle = true;
      for (auto& operation : active_) idle &= !progress(*operation);
      remove_finished();
      bool moved = false;
      for (GpuStream& stream : streams_) moved |= stream.progress();
      if ((idle || round % kRoundsUntilAppend == 0) && !append() && idle) sched_yield();
      if (request_.pauses && draw() % kSleepOneIn == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % kMaxSleepUs));
      if (!idle || moved) {
        stall_.restart();
      } else if (stall_.expired()) {
        stalled_ = true;
        throw ReplayFailed{stall()};
      }
    }
  }

  // A kernel that only sends can end before its operations have begun.
  bool finished() const {
    if (!active_.empty()) return false;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (appended_[i] < request_.streams[i].kernels.size()) return false;
    return std::all_of(streams_.begin(), streams_.end(), [](const GpuStream& stream) { return stream.finished(); });
  }

  // Begins the operations of kernels that run soon; true if there were any.
  bool append() {
    bool appended = false;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const auto& kernels = request_.streams[i].kernels;
      const std::uint64_t ahead = request_.pauses ? 1 + mix(request_.seed, appended_[i]) % kMaxAhead : kMaxAhead;
      while (appended_[i] < kernels.size() && appended_[i] < streams_[i].kernel() + ahead) {
        const ReplayKernel& kernel = kernels[appended_[i]++];
        for (const ReplayOperation& operation : kernel.operations) append(kernel, operation);
        appended = true;
      }
    }
    return appended;
  }

  void append(const ReplayKernel& kernel, const ReplayOperation& plan) {
    std::unique_ptr<ProxyOperation> operation;
    if (unused_.empty()) {
      operation = std::make_unique<ProxyOperation>();
    } else {
      operation = std::move(unused_.back());
      unused_.pop_back();
    }
    operation->kernel = &kernel;
    operation->sends = plan.sends;
    operation->queue = plan.queue;
    operation->nsubs = plan.subs.size();
    if (operation->nsubs == 0 || operation->nsubs > kSharedSteps)
      throw std::invalid_argument("an operation has 1 to 16 subs");
    for (std::size_t i = 0; i < plan.subs.size(); ++i) {
      ProxySub& sub = operation->subs[i];
      sub.end = &ends_.at(plan.subs[i].connection);
      sub.nsteps = plan.subs[i].nsteps;
      sub.nbytes = plan.subs[i].nbytes;
    }
    operation->ready = true;
    operation->finished_subs = 0;
    const auto [queue, first] = queues_.try_emplace(plan.queue);
    if (first)
      active_.push_back(std::move(operation));
    else
      queue->second.push_back(std::move(operation));
  }

  // True if it was not idle.
  bool progress(ProxyOperation& operation) {
    if (operation.sends)
      progress_send(operation, calls_);
    else
      progress_receive(operation, calls_, request_.limit_posted_size, request_.most_buffers);
    return !operation.idle;
  }

  // Replaces each finished operation by the next one of its queue.
  void remove_finished() {
    for (auto operation = active_.begin(); operation != active_.end();) {
      if (!(*operation)->finished()) {
        ++operation;
        continue;
      }
      const auto queue = queues_.find((*operation)->queue);
      unused_.push_back(std::move(*operation));
      if (queue->second.empty()) {
        queues_.erase(queue);
        operation = active_.erase(operation);
      } else {
        *operation = std::move(queue->second.front());
        queue->second.pop_front();
        ++operation;
      }
    }
  }

  std::string stall() const {
    for (const GpuStream& stream : streams_)
      if (!stream.suspect().empty()) return stream.suspect();
    for (const auto& operation : active_) {
      const std::string what = operation->waits_for();
      if (!what.empty()) return what;
    }
    for (const GpuStream& stream : streams_) {
      const std::string what = stream.waits_for();
      if (!what.empty()) return what;
    }
    return "nothing moves";
  }

  std::uint64_t draw() { return mix(~request_.seed, draws_++); }

  const Replay& request_;
  ReplayCalls calls_;
  StallTimer stall_;
  std::vector<ReplayEnd> ends_;
  std::vector<GpuStream> streams_;
  // Kernels of each stream whose operations have begun.
  std::vector<std::size_t> appended_;
  std::vector<std::unique_ptr<ProxyOperation>> active_;
  // Operations that wait for the active one of their queue.
  std::map<std::uint32_t, std::deque<std::unique_ptr<ProxyOperation>>> queues_;
  // The last one is reused first; its request slots keep their values.
  std::vector<std::unique_ptr<ProxyOperation>> unused_;
  bool stalled_ = false;
  std::uint64_t draws_ = 0;
};

}  // namespace

ReplayRegistrationsAnswer execute(const ReplayRegistrations& request) {
  ReplayRegistrationsAnswer answer;
  answer.start_ns = now_ns();
  const Mapping memory = map_guarded(kMemory, false);
  std::deque<Registered> registered;
  StallTimer alive(request.timeout_ns);
  const auto remove_oldest = [&] {
    const Registered oldest = registered.front();
    registered.pop_front();
    const CallAnswer call = calls::dereg_mr(oldest.comm, oldest.mhandle);
    if (call.code != 0)
      answer.broken =
          fmt::format("deregMr(comm 0x{:x}) during transfers returned {}", oldest.comm, code_text(call.code));
  };
  for (std::uint64_t draws = 0; answer.broken.empty() && !request.comms.empty();) {
    const std::uint64_t number = mix(request.seed, draws++);
    if (has_ended(request.run, number % kMaxPauseUs)) break;
    alive.restart();
    if (registered.size() == kMaxRegistered || (!registered.empty() && (number >> 8) % 3 == 0)) {
      remove_oldest();
      continue;
    }
    const Range range = draw_range(memory, mix(request.seed, draws++));
    const std::uint64_t comm = request.comms[(number >> 16) % request.comms.size()];
    const PointerAnswer call = calls::reg_mr(comm, range.address, range.size, 0);
    if (call.code != 0) {
      answer.broken = fmt::format("regMr(comm 0x{:x}, {} bytes) during transfers returned {}", comm, range.size,
                                  code_text(call.code));
      break;
    }
    registered.push_back({comm, call.value});
    ++answer.registrations;
  }
  while (answer.broken.empty() && !registered.empty()) remove_oldest();
  if (answer.broken.empty()) unmap_guarded(memory);
  answer.end_ns = now_ns();
  return answer;
}

ReplayAnswer execute(const Replay& request) {
  const ReplayEndNotice notice(request.run);
  return ReplayLoop(request).run();
}

}  // namespace plugfest::rank
