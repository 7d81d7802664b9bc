// Repeats a one-sided operation of GIN or RMA, and measures the time.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

// A plugin function and the words of its arguments.
class Function {
 public:
  Function(const std::string& name, const std::vector<std::uint64_t>& words) : count_(words.size()) {
    if (name.empty()) return;
    const plugin::SlotLayout* const slot = library().layout().find(name);
    function_ = library().function(name);
    if (slot == nullptr || function_ == nullptr || slot->parameters.size() != words.size())
      throw WireError(fmt::format("a call of {} that the interface does not have", name));
    name_ = slot->name.data();
    std::copy(words.begin(), words.end(), words_.begin());
  }

  explicit operator bool() const { return function_ != nullptr; }
  const char* name() const { return name_; }
  Words& words() { return words_; }
  void operator()() const {
    call_plugin(name_, [this] { return call_words(function_, words_, count_); });
  }

 private:
  const char* name_ = "";
  plugin::Library::AnyFunction function_ = nullptr;
  std::size_t count_;
  Words words_{};
};

// `words` and the address of the output, which is the last parameter.
std::vector<std::uint64_t> with_output(std::vector<std::uint64_t> words, const void* output) {
  words.push_back(number(output));
  return words;
}

class Loop {
 public:
  Loop(const OneSided& plan, bool& stalled)
      : plan_(plan),
        stalled_(stalled),
        repeated_(plan.repeated.function, with_output(plan.repeated.words, &request_)),
        last_(plan.last.function, with_output(plan.last.words, &request_)),
        test_("test", {plan.coll_comm, 0, number(&done_)}),
        progress_(plan.progress, {plan.context != 0 ? plan.context : plan.coll_comm}),
        stall_(plan.timeout_ns) {}

  void run(std::vector<std::uint32_t>& times) {
    if (plan_.signal_address != 0)
      exchange(times);
    else
      repeat(times);
    if (last_) post(last_);
    until([&] { return requests_.empty(); }, "an operation never completed");
  }

 private:
  void repeat(std::vector<std::uint32_t>& times) {
    for (std::uint64_t i = 0; i < plan_.count; ++i) {
      until([&] { return requests_.size() < plan_.window; }, "an operation never completed");
      const std::int64_t start = now_ns();
      post(repeated_);
      if (plan_.window > 1) continue;
      until([&] { return requests_.empty(); }, "an operation never completed");
      times.push_back(short_duration(now_ns() - start));
    }
  }

  // Operations and signals in turn.
  void exchange(std::vector<std::uint32_t>& times) {
    const std::atomic_ref signal(*static_cast<std::uint64_t*>(pointer(plan_.signal_address)));
    std::int64_t start = now_ns();
    for (std::uint64_t i = 0; i < plan_.count; ++i) {
      if (plan_.starts) post(repeated_);
      until([&] { return signal.load(std::memory_order_acquire) > i; }, "a signal never arrived");
      if (!plan_.starts && repeated_) post(repeated_);
      const std::int64_t now = now_ns();
      times.push_back(short_duration((now - start) / 2));
      start = now;
    }
  }

  void post(const Function& function) {
    request_ = nullptr;
    function();
    if (request_ == nullptr) throw MeasurementFailed(fmt::format("{} stored the request NULL", function.name()));
    requests_.push_back(number(request_));
  }

  // Waits, with the progress function and test of the oldest request in each turn, as NCCL's proxy does.
  template <typename Condition>
  void until(const Condition& condition, const char* otherwise) {
    wait_until(condition, otherwise, stall_, stalled_, [&] {
      if (progress_) progress_();
      bool moved = false;
      while (!requests_.empty() && oldest_is_done()) {
        requests_.pop_front();
        moved = true;
      }
      return moved;
    });
  }

  bool oldest_is_done() {
    done_ = 0;
    test_.words()[1] = requests_.front();
    test_();
    return done_ != 0;
  }

  const OneSided& plan_;
  bool& stalled_;
  void* request_ = nullptr;
  int done_ = 0;
  Function repeated_, last_, test_, progress_;
  std::deque<std::uint64_t> requests_;
  StallTimer stall_;
};

}  // namespace

OneSidedAnswer execute(const OneSided& request) {
  OneSidedAnswer answer;
  if (request.window == 0) throw WireError("a loop without a window");
  std::vector<std::uint32_t> times;
  answer.start_ns = now_ns();
  try {
    Loop(request, answer.stalled).run(times);
  } catch (const MeasurementFailed& failed) {
    answer.broken = failed.what();
  }
  answer.end_ns = now_ns();
  answer.median_ns = median_duration(times);
  return answer;
}

}  // namespace plugfest::rank
