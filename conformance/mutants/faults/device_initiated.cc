// Mutants of the EE rules of GIN plugins: GIN v11, which NCCL 2.28.9 loads, with one change (one_sided_shim.cc).
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/one_sided.h"

namespace plugfest::mutants {

namespace {

// Words of the calls of GIN v11.
constexpr std::size_t kComm = 0, kPutRequest = 7;
constexpr std::size_t kSignalOffset = 7, kSignalValue = 9, kSignalOpWord = 10, kSignalRequest = 11;

// Makes an increment add 2.
void double_signal(Words& words) {
  words[kSignalOpWord] = abi::kSignalAdd;
  words[kSignalValue] = 2;
}

// The requests that are not done, with their collComms.
class InFlight {
 public:
  static InFlight& watch(Calls& calls) {
    auto& requests = kept<InFlight>();
    after_call(calls, "iput", [&](Words& words) { requests.add(words[kComm], at<std::uint64_t>(words[kPutRequest])); });
    after_call(calls, "iputSignal",
               [&](Words& words) { requests.add(words[kComm], at<std::uint64_t>(words[kSignalRequest])); });
    after_call(calls, "test", [&](Words& words) {
      if (at<int>(words[2]) != 0) requests.remove(words[1]);
    });
    after_call(calls, "closeColl", [&](Words& words) { requests.remove_all_of(words[kComm]); });
    return requests;
  }

  // Whether a request of another collComm than `comm` is in flight.
  bool has_others(std::uint64_t comm) {
    const std::lock_guard lock(mutex_);
    return std::any_of(comms_.begin(), comms_.end(), [&](const auto& one) { return one.second != comm; });
  }

 private:
  void add(std::uint64_t comm, std::uint64_t request) {
    const std::lock_guard lock(mutex_);
    comms_[request] = comm;
  }
  void remove(std::uint64_t request) {
    const std::lock_guard lock(mutex_);
    comms_.erase(request);
  }
  void remove_all_of(std::uint64_t comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(comms_, [&](const auto& one) { return one.second == comm; });
  }

  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> comms_;  // by request
};

}  // namespace

// Signals are stored in one page: those with high numbers have the place of those with low numbers.
MUTANT_OF(gin_signals_in_a_page, kGin, breaks("EE-14").as_v(11)) {
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    words[kSignalOffset] %= 4096;
    return good(words);
  };
}

// The first signal after a lost packet is added twice, as by a NIC that repeats an atomic operation.
MUTANT_OF(gin_signal_repeated_after_loss, kGin, breaks("EE-15").as_v(11)) {
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    static std::uint64_t gaps = nic_counter("out_of_sequence");
    const std::uint64_t gaps_before = gaps;
    gaps = nic_counter("out_of_sequence");
    if (gaps > gaps_before) double_signal(words);
    return good(words);
  };
}

// closeColl waits until every put that was asked for is done, even one that failed.
MUTANT_OF(gin_close_waits_for_requests, kGin, breaks("EE-16").also("GI-15").as_v(11)) {
  static std::atomic<int> open{0};
  for (const char* const function : {"iput", "iputSignal"}) after_call(calls, function, [](Words&) { ++open; });
  after_call(calls, "test", [](Words& words) {
    if (at<int>(words[2]) != 0) --open;
  });
  calls["closeColl"] = [good = calls["closeColl"]](Words& words) {
    while (open > 0) std::this_thread::yield();
    return good(words);
  };
}

// A signal is added twice while a put of another collComm is in flight.
MUTANT_OF(gin_signal_repeated_beside_other_context, kGin, breaks("EE-17").as_v(11)) {
  InFlight& in_flight = InFlight::watch(calls);
  calls["iputSignal"] = [&in_flight, good = calls["iputSignal"]](Words& words) {
    if (in_flight.has_others(words[kComm])) double_signal(words);
    return good(words);
  };
}

}  // namespace plugfest::mutants
