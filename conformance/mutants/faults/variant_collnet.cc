// Variants of a CollNet plugin: rules must pass on them.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/mutant.h"
#include "harness/abi/coll_net.h"

namespace plugfest::mutants {
namespace {

using Word = std::uint64_t;

// The collectives, with the position of *request among their arguments.
constexpr std::pair<const char*, std::size_t> kCollectives[] = {
    {"iallreduce", 8}, {"iallgather", 8}, {"ireducescatter", 10}};

// Refuses two of three attempts to post a collective: the call succeeds and stores NULL.
void defer_collectives(Calls& calls) {
  static int attempts = 0;
  for (const auto& [name, position] : kCollectives) {
    calls[name] = [request = position, good = calls[name]](Words& words) {
      if (++attempts % 3 == 0) return good(words);
      at<Word>(words[request]) = 0;
      return Result::kSuccess;
    };
  }
}

bool is_refused(Word type_word, Word op_word) {
  const int type = static_cast<int>(type_word), op = static_cast<int>(op_word);
  return type == abi::kFloat16 || type == abi::kInt64 || op == abi::kProd;
}

// Makes progress with the requests of collectives in a thread; test only looks at them.
class ProgressThread final : public PluginThread {
 public:
  explicit ProgressThread(Calls& calls) : test_(calls["test"]) {
    for (const auto& [name, position] : kCollectives) {
      calls[name] = [this, request = position, good = calls[name]](Words& words) {
        const std::lock_guard lock(mutex_);
        const Result result = good(words);
        Word& posted = at<Word>(words[request]);
        if (result != Result::kSuccess || posted == 0) return result;
        auto own = std::make_unique<Request>(Request{.comm = words[0], .posted = posted});
        posted = reinterpret_cast<Word>(own.get());
        requests_.emplace(posted, std::move(own));
        changed_.notify_all();
        return result;
      };
    }
    calls["test"] = [this](Words& words) {
      const std::lock_guard lock(mutex_);
      const auto found = requests_.find(words[0]);
      if (found == requests_.end()) return test_(words);  // a flush
      Request& request = *found->second;
      at<int>(words[1]) = request.done ? 1 : 0;
      if (words[2] != 0 && request.done) at<int>(words[2]) = request.size;
      const Result result = request.result;
      if (request.done || result != Result::kSuccess) requests_.erase(found);
      return result;
    };
    calls["closeColl"] = [this, good = calls["closeColl"]](Words& words) {
      const std::lock_guard lock(mutex_);
      std::erase_if(requests_, [comm = words[0]](const auto& one) { return one.second->comm == comm; });
      return good(words);
    };
    for (const char* const name : {"regMr", "deregMr", "iflush"}) {
      calls[name] = [this, good = calls[name]](Words& words) {
        const std::lock_guard lock(mutex_);
        return good(words);
      };
    }
  }

 private:
  struct Request {
    Word comm = 0;
    Word posted = 0;
    bool done = false;
    int size = 0;
    Result result = Result::kSuccess;
  };

  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    bool open = false;
    for (auto& [handle, request] : requests_) {
      if (request->done || request->result != Result::kSuccess) continue;
      int done = 0;
      Words words = {request->posted, reinterpret_cast<Word>(&done), reinterpret_cast<Word>(&request->size)};
      request->result = test_(words);
      request->done = done != 0;
      open = true;
    }
    if (ending) return false;
    // Open requests make progress on each pass; other calls need the lock in between.
    using std::chrono::microseconds;
    changed_.wait_for(lock, open ? microseconds(20) : microseconds(1'000'000));
    return false;
  }

  Calls::mapped_type test_;
  std::map<Word, std::unique_ptr<Request>> requests_;
};

}  // namespace

VARIANT_OF(collnet_defers_collectives, kCollNet) { defer_collectives(calls); }

// Two of three tests of a request make no progress.
VARIANT_OF(collnet_needs_many_tests, kCollNet) {
  static auto& tests = kept<std::map<Word, int>>();  // by request
  calls["test"] = [good = calls["test"]](Words& words) {
    if (++tests[words[0]] % 3 == 0) return good(words);
    at<int>(words[1]) = 0;
    return Result::kSuccess;
  };
}

VARIANT_OF(collnet_has_a_thread, kCollNet) {
  static auto& thread = *new ProgressThread(calls);
  PluginThread::install(calls, thread);
}

// Supports neither products nor two of the types.
VARIANT_OF(collnet_refuses_single_types, kCollNet) {
  calls["reduceSupport"] = [good = calls["reduceSupport"]](Words& words) {
    const Result result = good(words);
    if (is_refused(words[0], words[1])) at<int>(words[2]) = 0;
    return result;
  };
  calls["iallreduce"] = [good = calls["iallreduce"]](Words& words) {
    return is_refused(words[4], words[5]) ? Result::kInvalidArgument : good(words);
  };
}

// Has no functions that NCCL calls for allgather and reduce-scatter.
VARIANT_OF(collnet_only_reduces, kCollNet) {
  calls.erase("iallgather");
  calls.erase("ireducescatter");
}

VARIANT_OF(collnet_supports_gpu_memory, kCollNet) {
  after_call(calls, "getProperties",
             [](Words& words) { at<abi::newest::Properties>(words[1]).ptrSupport |= abi::kPointerCuda; });
}

// Reads the first byte of its own block even if the block lies outside the window.
VARIANT_OF(collnet_reads_own_block, kCollNet) {
  for (const auto& [name, block] : {std::pair("iallgather", 1), std::pair("ireducescatter", 3)}) {
    calls[name] = [block = static_cast<std::size_t>(block), good = calls[name]](Words& words) {
      static_cast<void>(at<std::atomic<char>>(words[block]).load());
      return good(words);
    };
  }
}

// init succeeds, and devices fails, so that NCCL uses the net only.
VARIANT_OF(collnet_devices_fail, kCollNet) {
  calls["devices"] = [](Words&) { return Result::kSystemError; };
}

// A process has one communicator at a time.
VARIANT_OF(collnet_one_communicator, kCollNet) {
  static int open = 0;
  calls["connect"] = [good = calls["connect"]](Words& words) {
    if (open != 0) return Result::kInvalidUsage;
    const Result result = good(words);
    open += result == Result::kSuccess ? 1 : 0;
    return result;
  };
  after_call(calls, "closeColl", [](Words&) { --open; });
}

}  // namespace plugfest::mutants
