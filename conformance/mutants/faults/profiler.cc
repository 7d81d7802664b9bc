// Mutants of the rules of profiler plugins, and unusual profilers that break no rule. calls_shim.cc applies them to the
// toy of conformance/interfaces.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/profiler.h"

namespace plugfest::mutants {
namespace {

// Members of the descriptor of startEvent, v5 and later.
std::uint64_t type_of(const Words& start) { return at<std::uint64_t>(start[2]); }
std::uint64_t parent_of(const Words& start) { return at<std::uint64_t>(start[2] + 8); }
int process_of(const Words& start) { return at<int>(start[2] + 24); }
std::uint64_t& handle_of(const Words& start) { return at<std::uint64_t>(start[1]); }

void read_at(std::uint64_t address) { [[maybe_unused]] const char byte = at<volatile char>(address); }

void* key(std::uint64_t handle) { return reinterpret_cast<void*>(handle); }

}  // namespace

// recordEventState is NULL.
MUTANT_OF(profiler_without_states, kProfiler, breaks("PI-01").also("PI-*").as_v(6)) { calls.erase("recordEventState"); }

// Writes an activation mask of 64 bits, the width of event types.
MUTANT_OF(profiler_wide_mask, kProfiler, breaks("PI-02").also("PI-01", "PI-03").as_v(6)) {
  after_call(calls, "init", [](Words& words) { at<std::uint64_t>(words[2]) = 1; });
}

// Asks for all events, including events of later versions.
MUTANT_OF(profiler_asks_for_all_events, kProfiler, breaks("PI-02").as_v(6)) {
  after_call(calls, "init", [](Words& words) { at<int>(words[2]) = -1; });
}

// Finalizes contexts only in the order in which they were opened.
MUTANT_OF(profiler_finalizes_in_order, kProfiler, breaks("PI-03").also("PI-15").as_v(6)) {
  static std::vector<std::uint64_t> open;
  after_call(calls, "init", [](Words& words) { open.push_back(at<std::uint64_t>(words[0])); });
  calls["finalize"] = [good = calls["finalize"]](Words& words) {
    if (open.empty() || open.front() != words[0]) return Result::kInvalidUsage;
    open.erase(open.begin());
    return good(words);
  };
}

// Frees an event when it is stopped, and reads it when a child starts.
MUTANT_OF(profiler_frees_parent_at_stop, kProfiler, breaks("PI-04").also("PI-*").as_v(6)) {
  auto& ended = kept<PointerSet>();
  before_call(calls, "startEvent", [&ended](Words& words) {
    if (ended.contains(key(parent_of(words)))) std::abort();
  });
  before_call(calls, "stopEvent", [&ended](Words& words) { ended.insert(key(words[0])); });
}

// Reads the event that it stops, even if there is none.
MUTANT_OF(profiler_stops_null, kProfiler, breaks("PI-05").as_v(6)) {
  before_call(calls, "stopEvent", [](Words& words) {
    if (words[0] == 0) std::abort();
  });
}

// Reads the event whose state changes, even if there is none.
MUTANT_OF(profiler_updates_null, kProfiler, breaks("PI-05").as_v(6)) {
  before_call(calls, "recordEventState", [](Words& words) {
    if (words[0] == 0) std::abort();
  });
}

// Ignores the events of the proxy's thread that belong to no operation.
MUTANT_OF(profiler_leaves_handle, kProfiler, breaks("PI-06").as_v(6)) {
  calls["startEvent"] = [good = calls["startEvent"]](Words& words) {
    return type_of(words) == abi::kProfileProxyCtrl ? Result::kSuccess : good(words);
  };
}

// Requires that an event of the net plugin has a parent.
MUTANT_OF(profiler_reads_step, kProfiler, breaks("PI-06").as_v(6)) {
  before_call(calls, "startEvent", [](Words& words) {
    if (type_of(words) == abi::kProfileNetPlugin && parent_of(words) == 0) std::abort();
  });
}

// Takes the state for an index.
MUTANT_OF(profiler_counts_states, kProfiler, breaks("PI-07").as_v(6)) {
  before_call(calls, "recordEventState", [](Words& words) {
    if (words[1] > 30) std::abort();
  });
}

// Writes no handle for events of later versions.
MUTANT_OF(profiler_leaves_unknown_handle, kProfiler, breaks("PI-07").as_v(6)) {
  calls["startEvent"] = [good = calls["startEvent"]](Words& words) {
    return type_of(words) > 0x7fff ? Result::kSuccess : good(words);
  };
}

// The output of the last call, of any thread, gets the handle.
MUTANT_OF(profiler_shares_output, kProfiler, breaks("PI-08").as_v(6)) {
  static std::atomic<std::uint64_t> output, call;
  before_call(calls, "startEvent", [](Words& words) {
    output = words[1];
    if (++call % 64 == 0) ::sched_yield();  // lets another thread in
    words[1] = output;
  });
}

// Expects that all events have ended in finalize.
MUTANT_OF(profiler_finalizes_no_open_events, kProfiler, breaks("PI-09").also("PI-15").as_v(6)) {
  static std::atomic<int> open;
  after_call(calls, "startEvent", [](Words& words) { open += handle_of(words) != 0; });
  before_call(calls, "stopEvent", [](Words& words) { open -= words[0] != 0; });
  before_call(calls, "finalize", [](Words&) {
    if (open != 0) std::abort();
  });
}

// The second init of a process fails, and leaves a context behind.
MUTANT_OF(profiler_opens_once, kProfiler, breaks("PI-10").also("PI-*").as_v(6)) {
  static int opened = 0;
  calls["init"] = [good = calls["init"]](Words& words) {
    if (opened++ == 0) return good(words);
    at<std::uint64_t>(words[0]) = 1;
    return Result::kInternalError;
  };
}

// Does not free events.
MUTANT_OF(profiler_leaks_events, kProfiler, breaks("PI-11").as_v(6)) {
  before_call(calls, "startEvent", [](Words&) { leak(48); });
}

// Reads the parent of a proxy operation of another process.
MUTANT_OF(profiler_reads_foreign_parent, kProfiler, breaks("PI-12").also("PI-08").as_v(6)) {
  before_call(calls, "startEvent", [](Words& words) {
    if (type_of(words) == abi::kProfileProxyOp && process_of(words) != ::getpid()) read_at(parent_of(words));
  });
}

// Reads the arguments of each state.
MUTANT_OF(profiler_reads_arguments, kProfiler, breaks("PI-13").also("PI-*").as_v(6)) {
  before_call(calls, "recordEventState", [](Words& words) { read_at(words[2]); });
}

// Computes for a while at the start of an event. The rules with many events take long then.
MUTANT_OF(profiler_is_slow, kProfiler, breaks("PI-14").also("PI-08", "PI-11").as_v(6)) {
  before_call(calls, "startEvent", [](Words&) {
    for (int i = 0; i < 50'000; ++i) asm volatile("");
  });
}

// finalize ends the events of all communicators.
MUTANT_OF(profiler_finalizes_all, kProfiler, breaks("PI-15").as_v(6)) {
  static std::array<std::atomic<int>, 4096> finalizes_at_start;  // by handle, which the toy counts
  static std::atomic<int> finalizes;
  after_call(calls, "startEvent",
             [](Words& words) { finalizes_at_start[handle_of(words) % finalizes_at_start.size()] = finalizes.load(); });
  for (const char* const function : {"recordEventState", "stopEvent"})
    before_call(calls, function, [](Words& words) {
      if (words[0] != 0 && finalizes_at_start[words[0] % finalizes_at_start.size()] != finalizes) std::abort();
    });
  before_call(calls, "finalize", [](Words&) { ++finalizes; });
}

// Reads the name of the communicator.
MUTANT_OF(profiler_needs_name, kProfiler, breaks("PI-16").as_v(6)) {
  before_call(calls, "init", [](Words& words) { read_at(words[3]); });
}

// Records no event.
MUTANT_OF(profiler_stores_null, kProfiler, breaks().as_v(6)) {
  after_call(calls, "startEvent", [](Words& words) { handle_of(words) = 0; });
}

// Is switched off: init succeeds and stores no context, as NVIDIA's Inspector does unless its variable is set.
MUTANT_OF(profiler_switched_off, kProfiler, breaks().as_v(6)) {
  calls["init"] = [](Words& words) {
    at<std::uint64_t>(words[0]) = 0;
    return Result::kSuccess;
  };
  before_call(calls, "finalize", [](Words&) { std::abort(); });
}

// init fails, so that NCCL continues without a profiler.
MUTANT_OF(profiler_init_fails, kProfiler, breaks().as_v(6)) {
  calls["init"] = [](Words&) { return Result::kSystemError; };
}

// Changes the activation mask with every event, as an application that profiles some of its steps.
MUTANT_OF(profiler_changes_mask, kProfiler, breaks().as_v(6)) {
  static std::atomic<int*> mask;
  after_call(calls, "init", [](Words& words) { mask = &at<int>(words[2]); });
  before_call(calls, "startEvent",
              [](Words& words) { std::atomic_ref(*mask.load()) = type_of(words) % 2 == 0 ? 0x7fff : 0xfff; });
}

// Handles are addresses in a ring, which is never freed.
MUTANT_OF(profiler_has_addresses, kProfiler, breaks().as_v(6)) {
  static std::array<std::atomic<std::uint64_t>, 4096> ring;
  static std::atomic<std::size_t> next;
  after_call(calls, "startEvent", [](Words& words) {
    if (handle_of(words) == 0) return;
    std::atomic<std::uint64_t>& place = ring[next++ % ring.size()];
    place = handle_of(words);
    handle_of(words) = reinterpret_cast<std::uint64_t>(&place);
  });
  for (const char* const function : {"recordEventState", "stopEvent"})
    before_call(calls, function, [](Words& words) {
      if (words[0] != 0) words[0] = at<std::atomic<std::uint64_t>>(words[0]);
    });
}

// A thread stops the events.
MUTANT_OF(profiler_stops_in_thread, kProfiler, breaks().as_v(6)) {
  class Stopper : public PluginThread {
   public:
    explicit Stopper(std::function<Result(Words&)> stop) : stop_(std::move(stop)) {}
    void add(std::uint64_t handle) {
      const std::lock_guard lock(mutex_);
      ended_.push_back(handle);
      changed_.notify_all();
    }

   private:
    bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
      if (ended_.empty() && !ending) changed_.wait(lock);
      if (ended_.empty()) return false;
      Words words = {ended_.front()};
      ended_.pop_front();
      stop_(words);
      return !ended_.empty();
    }
    std::function<Result(Words&)> stop_;
    std::deque<std::uint64_t> ended_;
  };
  auto& stopper = *new Stopper(calls["stopEvent"]);
  PluginThread::install(calls, stopper);
  calls["stopEvent"] = [&stopper](Words& words) {
    stopper.add(words[0]);
    return Result::kSuccess;
  };
}

}  // namespace plugfest::mutants
