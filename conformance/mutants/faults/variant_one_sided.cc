// Variants of RMA v16: the mesh plugin's with one change, on which rules must pass (one_sided_shim.cc).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/one_sided.h"

namespace plugfest::mutants {
namespace {

using Word = std::uint64_t;

// Words of the data calls.
constexpr std::size_t kContext = 1, kSourceOffset = 2, kSourceMemory = 3, kSize = 4, kTargetOffset = 5,
                      kTargetMemory = 6, kRank = 7, kPutOptions = 8, kPutRequest = 9, kSignalMemory = 9,
                      kSignalOptions = 13, kSignalRequest = 14, kFlushMemory = 2;

// Requests of this plugin in front of the requests of the base plugin. Thread safety: any thread.
class OwnRequests {
 public:
  /// Makes progress with a request of a comm, and sets `done`.
  using Advance = std::function<Result(Word comm, bool& done)>;

  explicit OwnRequests(Calls& calls) : test_(calls["test"]) {
    calls["test"] = [this](Words& words) {
      const std::lock_guard lock(mutex_);
      const auto found = requests_.find(words[1]);
      if (found == requests_.end()) return test_(words);
      bool done = false;
      const Result result = found->second(words[0], done);
      at<int>(words[2]) = done ? 1 : 0;
      if (done || result != Result::kSuccess) requests_.erase(found);
      return result;
    };
  }

  /// Returns the request for the caller: a number that is not an address.
  Word add(Advance advance) {
    const std::lock_guard lock(mutex_);
    requests_.emplace(++last_, std::move(advance));
    return last_;
  }

  /// Tests a request of the base plugin, from an Advance.
  Result test(Word comm, Word posted, bool& done) {
    int value = 0;
    Words words = {comm, posted, reinterpret_cast<Word>(&value)};
    const Result result = test_(words);
    done = value != 0;
    return result;
  }

 private:
  Calls::mapped_type test_;
  std::mutex mutex_;
  std::map<Word, Advance> requests_;
  Word last_ = Word{1} << 40;  // the base plugin's requests are below
};

// The signals that a rank has received and has not added to the registered memory. Peers add to `received` instead.
// Thread safety: any thread.
class QueuedSignals {
 public:
  void install(Calls& calls) {
    calls["regMrSym"] = [this, good = calls["regMrSym"]](Words& words) {
      const Result result = good(words);
      if (result != Result::kSuccess || (words[4] & abi::kForceStrictOrder) == 0) return result;
      auto queue = std::make_unique<Queue>();
      queue->comm = words[0];
      queue->memory = reinterpret_cast<Word*>(words[1]);
      queue->added.resize(words[2] / sizeof(Word));
      queue->received.resize(words[2] / sizeof(Word));
      queue->of = at<Word>(words[5]);
      Words same_size = words;
      same_size[1] = reinterpret_cast<Word>(queue->received.data());
      same_size[5] = reinterpret_cast<Word>(&queue->mhandle);
      const Result queued = good(same_size);
      const std::lock_guard lock(mutex_);
      queues_.push_back(std::move(queue));
      return queued;
    };
    calls["deregMrSym"] = [this, good = calls["deregMrSym"]](Words& words) {
      const std::lock_guard lock(mutex_);
      const auto queue = queue_of(words[1]);
      if (queue != queues_.end()) {
        Words also = {words[0], (*queue)->mhandle};
        good(also);
        queues_.erase(queue);
      }
      return good(words);
    };
    calls["iputSignal"] = [this, good = calls["iputSignal"]](Words& words) {
      {
        const std::lock_guard lock(mutex_);
        const auto queue = queue_of(words[kSignalMemory]);
        if (queue != queues_.end()) words[kSignalMemory] = (*queue)->mhandle;
      }
      return good(words);
    };
    after_call(calls, "closeColl", [this](Words& words) {
      const std::lock_guard lock(mutex_);
      std::erase_if(queues_, [comm = words[0]](const auto& queue) { return queue->comm == comm; });
    });
    after_call(calls, "rmaProgress", [this](Words&) { add(); });
  }

 private:
  struct Queue {
    Word comm = 0, of = 0, mhandle = 0;
    Word* memory = nullptr;
    std::vector<Word> received, added;
  };
  using Queues = std::vector<std::unique_ptr<Queue>>;

  Queues::iterator queue_of(Word mhandle) {
    return std::find_if(queues_.begin(), queues_.end(), [&](const auto& queue) { return queue->of == mhandle; });
  }

  // Reads until nothing changes, because a signal must not be visible before an earlier one.
  void add() {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<Word>> received, before;
    do {
      before = std::move(received);
      received.clear();
      for (const auto& queue : queues_) {
        received.emplace_back();
        for (Word& word : queue->received) received.back().push_back(std::atomic_ref(word).load());
      }
    } while (received != before);
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      Queue& queue = *queues_[i];
      for (std::size_t word = 0; word < queue.added.size(); ++word) {
        const Word more = received[i][word] - std::exchange(queue.added[word], received[i][word]);
        if (more != 0) std::atomic_ref(queue.memory[word]).fetch_add(more);
      }
    }
  }

  std::mutex mutex_;
  Queues queues_;  // in the order of registration
};

// A thread makes progress on all contexts.
class ProgressThread final : public PluginThread {
 public:
  explicit ProgressThread(Calls& calls) : progress_(calls["rmaProgress"]) {
    after_call(calls, "createContext", [this](Words& words) {
      const std::lock_guard lock(mutex_);
      if (const Word context = at<Word>(words[2]); context != 0) comms_[context] = words[0];
      changed_.notify_all();
    });
    const auto forget = [this](auto matches) {
      const std::lock_guard lock(mutex_);
      std::erase_if(comms_, matches);
    };
    calls["destroyContext"] = [forget, good = calls["destroyContext"]](Words& words) {
      forget([context = words[0]](const auto& one) { return one.first == context; });
      return good(words);
    };
    calls["closeColl"] = [forget, good = calls["closeColl"]](Words& words) {
      forget([comm = words[0]](const auto& one) { return one.second == comm; });
      return good(words);
    };
    for (const char* const name : {"iput", "iputSignal", "iget", "iflush", "test", "rmaProgress"}) {
      calls[name] = [this, good = calls[name]](Words& words) {
        const std::lock_guard lock(mutex_);
        return good(words);
      };
    }
  }

 private:
  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    for (const auto& [context, comm] : comms_) {
      Words words = {context};
      progress_(words);  // test reports its errors
    }
    using std::chrono::microseconds;
    if (!ending) changed_.wait_for(lock, comms_.empty() ? microseconds(1'000'000) : microseconds(100));
    return false;
  }

  Calls::mapped_type progress_;
  std::map<Word, Word> comms_;  // by context
};

}  // namespace

// The progress function and queryLastError are NULL.
VARIANT_OF(one_sided_without_progress, kRma) {
  calls.erase("rmaProgress");
  calls.erase("queryLastError");
}

// Its devices are those of the net, which NCCL initializes first.
VARIANT_OF(one_sided_needs_net, kRma) {
  before_call(calls, "init", [](Words&) { return net_is_initialized ? Result::kSuccess : Result::kSystemError; });
}

VARIANT_OF(one_sided_without_get, kRma) {
  calls.erase("iget");
  calls.erase("iflush");
}

// A rank that receives signals adds them to memory in its progress function only.
VARIANT_OF(one_sided_progress_adds_signals, kRma) { kept<QueuedSignals>().install(calls); }

// test reports a finished request only at its third call.
VARIANT_OF(one_sided_completes_late, kRma) {
  auto& mutex = kept<std::mutex>();
  auto& looks = kept<std::map<std::pair<Word, Word>, int>>();  // by comm and request
  after_call(calls, "test", [&](Words& words) {
    int& done = at<int>(words[2]);
    if (done == 0) return;
    const std::lock_guard lock(mutex);
    const std::pair request(words[0], words[1]);
    if (++looks[request] < 3)
      done = 0;
    else
      looks.erase(request);
  });
}

// Each registration takes two exchanges.
VARIANT_OF(one_sided_registers_twice, kRma) {
  calls["regMrSym"] = [good = calls["regMrSym"], dereg = calls["deregMrSym"]](Words& words) {
    Words trial = words;
    std::uint64_t handle = 0;
    trial[5] = reinterpret_cast<std::uint64_t>(&handle);
    if (const Result result = good(trial); result != Result::kSuccess) return result;
    Words ended = {words[0], handle};
    dereg(ended);
    return good(words);
  };
}

VARIANT_OF(one_sided_has_a_thread, kRma) {
  static auto& thread = *new ProgressThread(calls);
  PluginThread::install(calls, thread);
}

// A put of more than 64 KiB becomes two puts.
VARIANT_OF(one_sided_splits_puts, kRma) {
  auto& requests = *new OwnRequests(calls);
  calls["iput"] = [&requests, good = calls["iput"]](Words& words) {
    constexpr Word kFirst = 64 * 1024;
    if (words[kSize] <= kFirst) return good(words);
    Words first = words, second = words;
    Word posted[2] = {};
    first[kSize] = kFirst;
    first[kPutRequest] = reinterpret_cast<Word>(&posted[0]);
    second[kSize] -= kFirst;
    second[kSourceOffset] += kFirst;
    second[kTargetOffset] += kFirst;
    second[kPutRequest] = reinterpret_cast<Word>(&posted[1]);
    Result result = good(first);
    if (result == Result::kSuccess) result = good(second);
    if (result != Result::kSuccess) return result;
    at<Word>(words[kPutRequest]) =
        requests.add([&requests, open = std::vector(posted, posted + 2)](Word comm, bool& done) mutable {
          while (!open.empty()) {
            const Result tested = requests.test(comm, open.back(), done);
            if (tested != Result::kSuccess || !done) return tested;
            open.pop_back();
          }
          return Result::kSuccess;
        });
    return result;
  };
}

// The signal of a put is posted by test, once the put is done.
VARIANT_OF(one_sided_signals_from_test, kRma) {
  auto& requests = *new OwnRequests(calls);
  calls["iputSignal"] = [&requests, put = calls["iput"], signal = calls["iputSignal"]](Words& words) {
    if (words[kSize] == 0) return signal(words);
    Word posted = 0;
    Words data = words, alone = words;
    data[kPutOptions] = 0;
    data[kPutRequest] = reinterpret_cast<Word>(&posted);
    alone[kSize] = 0;
    alone[kSignalOptions] = 0;
    const Result result = put(data);
    if (result != Result::kSuccess) return result;
    at<Word>(words[kSignalRequest]) =
        requests.add([&requests, signal, alone, posted, signaled = false](Word comm, bool& done) mutable {
          Result tested = requests.test(comm, posted, done);
          if (tested != Result::kSuccess || !done || signaled) return tested;
          done = false;
          signaled = true;
          alone[kSignalRequest] = reinterpret_cast<Word>(&posted);
          return signal(alone);
        });
    return result;
  };
}

// All contexts of a createContext share the queue pairs of one.
VARIANT_OF(one_sided_shares_queue_pairs, kRma) {
  calls["createContext"] = [good = calls["createContext"]](Words& words) {
    abi::RmaConfig one = at<abi::RmaConfig>(words[1]);
    one.nContexts = 1;
    Words changed = words;
    changed[1] = reinterpret_cast<Word>(&one);
    return good(changed);
  };
  for (const char* const name : {"iput", "iputSignal", "iget", "iflush"})
    calls[name] = [good = calls[name]](Words& words) {
      words[kContext] = 0;
      return good(words);
    };
}

// Handles of memory are not addresses.
VARIANT_OF(one_sided_handles_are_numbers, kRma) {
  for (const std::pair<const char*, std::size_t> function : {std::pair("regMrSym", 5u), {"regMrSymDmaBuf", 7u}})
    after_call(calls, function.first, [position = function.second](Words& words) {
      if (Word& handle = at<Word>(words[position]); handle != 0) ++handle;
    });
  const std::map<std::string, std::vector<std::size_t>> uses = {
      {"iput", {kSourceMemory, kTargetMemory}},
      {"iputSignal", {kSourceMemory, kTargetMemory, kSignalMemory}},
      {"iget", {kSourceMemory, kTargetMemory}},
      {"iflush", {kFlushMemory}},
      {"deregMrSym", {1}}};
  for (const auto& [name, positions] : uses)
    calls[name] = [positions = positions, good = calls[name]](Words& words) {
      for (const std::size_t position : positions)
        if (words[position] != 0) --words[position];
      return good(words);
    };
}

// test posts a get in four pieces, one after the other.
VARIANT_OF(one_sided_gets_in_pieces, kRma) {
  auto& requests = *new OwnRequests(calls);
  calls["iget"] = [&requests, good = calls["iget"]](Words& words) {
    constexpr Word kPieces = 4;
    if (words[kSize] < kPieces) return good(words);
    const auto post = [good](Words piece, Word begin, Word end, Word& posted) {
      piece[kSourceOffset] += begin;
      piece[kTargetOffset] += begin;
      piece[kSize] = end - begin;
      piece[kPutRequest] = reinterpret_cast<Word>(&posted);
      return good(piece);
    };
    const Word all = words[kSize], step = (all + kPieces - 1) / kPieces;
    Word posted = 0;
    const Result result = post(words, 0, step, posted);
    if (result != Result::kSuccess) return result;
    at<Word>(words[kPutRequest]) =
        requests.add([&requests, post, words, all, step, end = step, posted](Word comm, bool& done) mutable {
          const Result tested = requests.test(comm, posted, done);
          if (tested != Result::kSuccess || !done || end >= all) return tested;
          done = false;
          const Word begin = std::exchange(end, std::min(end + step, all));
          return post(words, begin, end, posted);
        });
    return result;
  };
}

// Failed requests stay open: only queryLastError reports the error.
VARIANT_OF(one_sided_errors_by_query, kRma) {
  calls["test"] = [good = calls["test"]](Words& words) {
    if (good(words) != Result::kSuccess) at<int>(words[2]) = 0;
    return Result::kSuccess;
  };
}

// Has places for 32 puts and signals to each rank: as many as NCCL has in flight if maxRecvs is 1.
VARIANT_OF(one_sided_limits_requests, kRma) {
  using Peer = std::pair<Word, Word>;  // the comm and the rank
  struct Places {
    std::mutex mutex;
    std::map<Word, Peer> taken;  // by request
  };
  static auto& places = kept<Places>();
  after_call(calls, "getProperties", [](Words& words) { at<abi::newest::Properties>(words[1]).maxRecvs = 1; });
  for (const auto& [name, position] : {std::pair("iput", kPutRequest), std::pair("iputSignal", kSignalRequest)}) {
    calls[name] = [request = position, good = calls[name]](Words& words) {
      const Peer peer = {words[0], words[kRank]};
      std::unique_lock lock(places.mutex);
      if (std::count_if(places.taken.begin(), places.taken.end(),
                        [&](const auto& one) { return one.second == peer; }) == 32)
        return Result::kInternalError;
      lock.unlock();
      const Result result = good(words);
      lock.lock();
      if (result == Result::kSuccess && at<Word>(words[request]) != 0) places.taken[at<Word>(words[request])] = peer;
      return result;
    };
  }
  after_call(calls, "test", [](Words& words) {
    const std::lock_guard lock(places.mutex);
    if (at<int>(words[2]) != 0) places.taken.erase(words[1]);
  });
  before_call(calls, "closeColl", [](Words& words) {
    const std::lock_guard lock(places.mutex);
    std::erase_if(places.taken, [&](const auto& one) { return one.second.first == words[0]; });
  });
}

// init stores NULL, and finalize of NULL ends the newest context.
VARIANT_OF(one_sided_without_context, kRma) {
  static auto& contexts = kept<std::vector<Word>>();
  after_call(calls, "init", [](Words& words) { contexts.push_back(std::exchange(at<Word>(words[0]), 0)); });
  before_call(calls, "listen", [](Words& words) { words[0] = contexts.back(); });
  before_call(calls, "finalize", [](Words& words) {
    words[0] = contexts.back();
    contexts.pop_back();
  });
}

// The end of contexts and comms takes time.
VARIANT_OF(one_sided_closes_slowly, kRma) {
  for (const char* const name : {"destroyContext", "closeColl"})
    calls[name] = [good = calls[name]](Words& words) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return good(words);
    };
}

}  // namespace plugfest::mutants
