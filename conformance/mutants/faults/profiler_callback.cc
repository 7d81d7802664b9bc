// Mutants of the PF rules, and unusual plugins that break none: they change how the base plugin reports events to
// NCCL's profiler.
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/profiler.h"

namespace plugfest::mutants {
namespace {

// A call of a profiler callback.
struct Event {
  abi::ProfilerCallback callback;
  void** handle;
  int type;
  void* phandle = nullptr;
  std::int64_t id = 0;
  void* data = nullptr;

  bool starts() const { return type == abi::kProfilerNetStart; }
  bool stops() const { return type == abi::kProfilerNetStop; }
  Result report() const { return callback(handle, type, phandle, id, data); }
};

// The callbacks of the inits of this process, of which there are at most two, and the function that stands for them.
class Callbacks {
 public:
  // Makes the base plugin call `events()` instead of the callback of each init.
  static void install(Net& net) {
    events() = [](const Event& event) { return event.report(); };
    before(net.init, [](Init& init) {
      if (init.profiler == nullptr) return;
      last = init.profiler;
      const bool first = known[0] == nullptr || known[0] == init.profiler;
      known[first ? 0 : 1] = init.profiler;
      init.profiler = first ? stand_in<0> : stand_in<1>;
    });
  }
  static Function<Event>& events() {
    static auto& function = kept<Function<Event>>();
    return function;
  }
  // The callback of the last init; null if it had none.
  static inline std::atomic<abi::ProfilerCallback> last{nullptr};

 private:
  template <std::size_t kNumber>
  static Result stand_in(void** handle, int type, void* phandle, std::int64_t id, void* data) {
    return events()({known[kNumber], handle, type, phandle, id, data});
  }
  static inline std::array<std::atomic<abi::ProfilerCallback>, 2> known{};
};

// Makes the base plugin report its events with calls of the result.
Function<Event>& report_events(Net& net) {
  Callbacks::install(net);
  before(net.isend, [](Send& send) { send.base_phandle = send.phandle; });
  before(net.irecv, [](Receive& receive) { receive.base_phandles = receive.phandles; });
  return Callbacks::events();
}

// Reports an event that takes no time.
void report_moment(void* phandle) {
  if (Callbacks::last == nullptr) return;
  void* handle = nullptr;
  abi::ProfilerQueuePairEvent data = {};
  for (const int type : {abi::kProfilerNetStart, abi::kProfilerNetStop})
    Event{Callbacks::last, &handle, type, phandle, abi::kProfilerQueuePairId, &data}.report();
}

// A list that any thread may use.
template <typename Item>
class Later {
 public:
  void add(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
  }
  template <typename Action>
  void take_all(Action action) {
    const std::lock_guard lock(mutex_);
    for (const Item& item : items_) action(item);
    items_.clear();
  }

 private:
  std::mutex mutex_;
  std::deque<Item> items_;
};

template <typename Action>
void before_close(Net& net, Action action) {
  before(net.close_send, [action](void*) { action(); });
  before(net.close_recv, [action](void*) { action(); });
}

}  // namespace

// A send without a phandle also has an event.
MUTANT(event_without_phandle, breaks("PF-01")) {
  static char none;
  before(report_events(net), [](Event& event) {
    if (event.phandle == &none) event.phandle = nullptr;
  });
  before(net.isend, [](Send& send) {
    if (send.phandle == nullptr) send.phandle = &none;
  });
}

// irecv reads the array of phandles, which may be NULL.
MUTANT(phandles_read_without_check, breaks("PF-01")) {
  report_events(net);
  before(net.irecv, [](Receive& receive) { static_cast<void>(*static_cast<void* volatile*>(receive.phandles)); });
}

// The first test of a receive reads the array that irecv got.
MUTANT(phandles_read_after_irecv, breaks("PF-02").also("PF-01", "PF-10")) {
  Callbacks::install(net);
  auto& arrays = kept<PointerMap<void**>>();
  on_success(net.irecv, [&](Receive receive) { arrays.put(*receive.request, receive.phandles); });
  before(net.test, [&](Test test) {
    const auto phandles = arrays.take(test.request);
    if (phandles && *phandles != nullptr) report_moment((*phandles)[0]);
  });
}

// All events use one handle.
MUTANT(one_event_handle, breaks("PF-03").also("PF-04")) {
  static void* handle = nullptr;
  before(report_events(net), [](Event& event) { event.handle = &handle; });
}

// The handle of an event is not initialized.
MUTANT(event_handle_uninitialized, breaks("PF-03")) {
  before(report_events(net), [](Event& event) {
    if (event.starts()) *event.handle = reinterpret_cast<void*>(0x5eed);
  });
}

// A stop passes NULL as the address of the handle.
MUTANT(stop_without_handle, breaks("PF-03").also("PF-04")) {
  before(report_events(net), [](Event& event) {
    if (event.stops()) event.handle = nullptr;
  });
}

// The plugin clears the handle before it stops the event.
MUTANT(event_handle_cleared, breaks("PF-03")) {
  before(report_events(net), [](Event& event) {
    if (event.stops()) *event.handle = nullptr;
  });
}

// Each event is stopped twice.
MUTANT(event_stopped_twice, breaks("PF-04")) {
  after(report_events(net), [](Event event, Result result) { return event.stops() ? event.report() : result; });
}

// Events are not stopped.
MUTANT(event_never_stopped, breaks("PF-04").also("PF-03")) {
  refuse(report_events(net), Result::kSuccess, [](Event event) { return event.stops(); });
}

// Events are stopped when the comm is closed.
MUTANT(events_stopped_at_close, breaks("PF-04").also("PF-03")) {
  auto& stops = kept<Later<Event>>();
  refuse(report_events(net), Result::kSuccess, [&](Event event) {
    if (event.stops()) stops.add(event);
    return event.stops();
  });
  before_close(net, [&] { stops.take_all([](const Event& event) { event.report(); }); });
}

// The events of sends are reported together when the comm is closed.
MUTANT(events_reported_at_close, breaks("PF-04").also("PF-10")) {
  Callbacks::install(net);
  auto& phandles = kept<Later<void*>>();
  on_success(net.isend, [&](Send send) {
    if (send.phandle != nullptr) phandles.add(send.phandle);
  });
  before_close(net, [&] { phandles.take_all(report_moment); });
}

// A start has no data.
MUTANT(event_without_data, breaks("PF-05")) {
  before(report_events(net), [](Event& event) {
    if (event.starts()) event.data = nullptr;
  });
}

// finalize reports an event.
MUTANT(event_in_finalize, breaks("PF-06")) {
  report_events(net);
  before(net.finalize, [](void*) { report_moment(nullptr); });
}

// init reports an event.
MUTANT(event_in_init, breaks("PF-06")) {
  report_events(net);
  on_success(net.init, [](Init) { report_moment(nullptr); });
}

// isend returns the result of the callback.
MUTANT(callback_result_returned, breaks("PF-07")) {
  static thread_local Result failed = Result::kSuccess;
  after(report_events(net), [](const Event&, Result result) { return failed = result; });
  before(net.isend, [](Send) { failed = Result::kSuccess; });
  after(net.isend, [](const Send&, Result result) { return result == Result::kSuccess ? failed : result; });
}

// All events of a group have the phandle of its first buffer.
MUTANT(group_has_one_phandle, breaks("PF-09")) {
  report_events(net);
  before(net.irecv, [](Receive& receive) {
    static thread_local std::array<void*, abi::kMaxReceiveBuffers> phandles;
    phandles.fill(receive.phandles == nullptr ? nullptr : receive.phandles[0]);
    receive.phandles = phandles.data();
  });
}

// All contexts use the callback of the last init.
MUTANT(one_callback_for_all_contexts, breaks("PF-10")) {
  before(report_events(net), [](Event& event) { event.callback = Callbacks::last; });
}

// The id of events has no version.
MUTANT(event_id_without_version, breaks("PF-11")) {
  before(report_events(net), [](Event& event) { event.id &= ~std::int64_t{0xffff}; });
}

// Each event is reported by a thread of the plugin.
VARIANT(events_from_a_thread) {
  Function<Event>& events = report_events(net);
  events = [next = events](Event event) {
    Result result = Result::kSuccess;
    std::thread([&] { result = next(event); }).join();
    return result;
  };
}

// Each event begins with another one, which is updated and then updated and stopped in one call.
VARIANT(several_events_per_message) {
  before(report_events(net), [](const Event& event) {
    if (!event.starts()) return;
    void* handle = nullptr;
    Event other = event;
    other.handle = &handle;
    for (const int type : {abi::kProfilerNetStart, abi::kProfilerNetUpdate, abi::kProfilerNetUpdateAndStop}) {
      other.type = type;
      other.report();
    }
  });
}

// The data of events are constants, in memory that cannot be written, and have an id that no profiler knows.
VARIANT(constant_event_data) {
  static constexpr int kData = 1;
  before(report_events(net), [](Event& event) {
    event.id = 0x77 << 16 | 3;
    event.data = const_cast<int*>(&kData);
  });
}

// Like NCCL's IB transport: an event begins with the handle of an earlier one, and a stop has no id.
MUTANT(event_handles_kept, breaks().also("PF-03")) {
  auto& handles = kept<PointerMap<void*>>();
  Function<Event>& events = report_events(net);
  before(events, [&](Event& event) {
    if (event.starts()) *event.handle = handles.find(event.handle).value_or(nullptr);
    if (event.stops()) event.id = 0;
  });
  after(events, [&](const Event& event, Result result) {
    if (event.starts()) handles.put(event.handle, *event.handle);
    return result;
  });
}

}  // namespace plugfest::mutants
