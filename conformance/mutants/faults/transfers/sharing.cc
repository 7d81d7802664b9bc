// Mutants of the XF rules about memory and time that transfers share with other transfers, threads and processes.
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/posted_receive.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// The last byte of a message of 5000 bytes arrives with the call after the test that reports done.
MUTANT(last_byte_late, breaks("XF-17").also("CN-20", "XF-05", "XF-09", "XF-12", "XF-22", "XF-43")) {
  struct Late {
    char* byte = nullptr;
    char value = 0;
  };
  auto late = std::make_shared<PointerMap<Late>>();
  when_receive_done(net, good, [late](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr || sizes[0] != 5000) return;
    char* const byte = static_cast<char*>(receive.data[0]) + sizes[0] - 1;
    late->put(nullptr, {byte, *byte});
    *byte = static_cast<char>(~*byte);
  });
  net.test = [late, test = net.test](void* request, int* done, int* sizes) {
    if (const auto last = late->find(nullptr)) {
      *last->byte = last->value;
      late->erase(nullptr);
    }
    return test(request, done, sizes);
  };
}

namespace {

/// A message that the plugin received into memory of its own.
struct OwnCopy {
  void* comm;
  char* data;
  std::vector<char> memory;
  void* mhandle = nullptr;
  bool arrived = false;
  int size = 0;
  /// Bytes that are not copied to `data` yet.
  std::size_t left = 0;
};

/// Receives messages of 128 KiB into memory of the plugin. `copy` runs in each test after a message has arrived, until
/// it has set `left` to 0; the receive is done then.
void receive_into_own_memory(Net& net, const Net& good, std::function<void(OwnCopy&)> copy) {
  auto copies = std::make_shared<PointerMap<std::shared_ptr<OwnCopy>>>();
  net.irecv = [&good, copies](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    if (n != 1 || sizes[0] != 128 * 1024) return good.irecv(comm, n, data, sizes, tags, mhandles, request);
    auto own_copy = std::make_shared<OwnCopy>(OwnCopy{comm, static_cast<char*>(data[0]), std::vector<char>(sizes[0])});
    good.reg_mr(comm, own_copy->memory.data(), sizes[0], abi::kPointerHost, &own_copy->mhandle);
    void* own = own_copy->memory.data();
    const Result result = good.irecv(comm, 1, &own, sizes, tags, &own_copy->mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) {
      copies->put(*request, own_copy);
    } else {
      good.dereg_mr(comm, own_copy->mhandle);
    }
    return result;
  };
  net.test = [&good, copies, copy = std::move(copy)](void* request, int* done, int* sizes) {
    const auto found = copies->find(request);
    if (!found) return good.test(request, done, sizes);
    OwnCopy& message = **found;
    if (!message.arrived) {
      const Result result = good.test(request, done, &message.size);
      if (result != Result::kSuccess || *done == 0) return result;
      message.arrived = true;
      message.left = static_cast<std::size_t>(message.size);
      good.dereg_mr(message.comm, message.mhandle);
    }
    copy(message);
    *done = message.left == 0 ? 1 : 0;
    if (*done == 1 && sizes != nullptr) *sizes = message.size;
    if (*done == 1) copies->erase(request);
    return Result::kSuccess;
  };
}

constexpr std::size_t kPage = 4096, kHalfWord = 4;

/// Copies the bytes `begin` to `end` of each page of the message in ascending order, which memcpy need not do.
void copy_part_of_pages(OwnCopy& message, std::size_t begin, std::size_t end) {
  for (std::size_t page = 0; page < message.left; page += kPage) {
    for (std::size_t i = page + begin; i < std::min(page + end, message.left); ++i) {
      std::atomic_ref(message.data[i]).store(message.memory[i], std::memory_order_release);
    }
  }
}

}  // namespace

// Copies from the end to the start, 10,000 bytes in each test.
MUTANT(message_copied_backwards, breaks("XF-18")) {
  receive_into_own_memory(net, good, [](OwnCopy& message) {
    const std::size_t part = std::min<std::size_t>(message.left, 10000);
    message.left -= part;
    std::memcpy(message.data + message.left, message.memory.data() + message.left, part);
  });
}

// Copies all pages without their first four bytes, then these.
MUTANT(first_half_of_word_copied_last, breaks("XF-18")) {
  receive_into_own_memory(net, good, [](OwnCopy& message) {
    copy_part_of_pages(message, kHalfWord, kPage);
    std::atomic_thread_fence(std::memory_order_release);
    copy_part_of_pages(message, 0, kHalfWord);
    message.left = 0;
  });
}

// Copies the first four bytes of all pages, then the others, as TCP splits a message at any byte.
VARIANT(first_half_of_word_copied_first) {
  receive_into_own_memory(net, good, [](OwnCopy& message) {
    copy_part_of_pages(message, 0, kHalfWord);
    copy_part_of_pages(message, kHalfWord, kPage);
    message.left = 0;
  });
}

// irecv uses the first registration for all buffers of a group.
MUTANT(first_mhandle_for_group, breaks("XF-29").also("PR-*")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<void*> first(static_cast<std::size_t>(n), n > 0 ? mhandles[0] : nullptr);
    return good.irecv(comm, n, data, sizes, tags, first.data(), request);
  };
}

// isend fails for a buffer that another comm sends.
MUTANT(buffer_in_use_refused, breaks("XF-33")) {
  struct Sends {
    std::mutex mutex;
    std::map<void*, std::pair<void*, void*>> by_request;  // comm and buffer
  };
  auto sends = std::make_shared<Sends>();
  net.isend = [&good, sends](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const std::lock_guard lock(sends->mutex);
    for (const auto& [other, use] : sends->by_request) {
      if (use.first != comm && use.second == data && size != 0) return Result::kInvalidUsage;
    }
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) sends->by_request[*request] = {comm, data};
    return result;
  };
  net.test = [&good, sends](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) {
      const std::lock_guard lock(sends->mutex);
      sends->by_request.erase(request);
    }
    return result;
  };
  net.close_send = [&good, sends](void* comm) {
    {
      const std::lock_guard lock(sends->mutex);
      std::erase_if(sends->by_request, [&](const auto& entry) { return entry.second.first == comm; });
    }
    return good.close_send(comm);
  };
}

// isend returns InProgress where it should return NULL.
MUTANT(not_now_returned_as_in_progress, breaks("XF-35", "ER-01")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    return result == Result::kSuccess && *request == nullptr ? Result::kInProgress : result;
  };
}

// A thread of the plugin waits for events and takes the second interrupted wait since the last connect for a failure.
MUTANT(interrupted_wait_is_error, breaks("XF-36").also("LD-10", "LD-11", "TH-06", "TS-02", "XF-03", "XF-43")) {
  auto interrupted = std::make_shared<std::atomic<int>>(0);
  net.init = [&good, interrupted](auto... arguments) {
    std::thread([interrupted] {
      const int events = epoll_create1(EPOLL_CLOEXEC);
      epoll_event event{};
      while (epoll_wait(events, &event, 1, -1) < 0 && errno == EINTR) ++*interrupted;
      close(events);
    }).detach();
    return good.init(arguments...);
  };
  const auto begin = [interrupted](Result result) {
    *interrupted = 0;
    return result;
  };
  net.connect = [&good, begin](auto... arguments) { return begin(good.connect(arguments...)); };
  net.accept = [&good, begin](auto... arguments) { return begin(good.accept(arguments...)); };
  net.test = [&good, interrupted](void* request, int* done, int* sizes) {
    return *interrupted > 1 ? Result::kSystemError : good.test(request, done, sizes);
  };
}

// Writes to the socket of a dead peer without MSG_NOSIGNAL.
MUTANT(dead_peer_raises_sigpipe,
       breaks("XF-37", "TS-09").also("CL-04", "CL-11", "ER-01", "ER-02", "ER-04", "ER-05", "ER-07", "ER-09", "MR-12")) {
  const auto is_lost = [](Result result) { return result == Result::kRemoteError || result == Result::kSystemError; };
  net.test = [&good, is_lost](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (is_lost(result)) raise(SIGPIPE);
    return result;
  };
  net.isend = [&good, is_lost](auto... arguments) {
    const Result result = good.isend(arguments...);
    if (is_lost(result)) raise(SIGPIPE);
    return result;
  };
}

// Copies small messages whose receive is not posted, and drops the oldest of more than 64 copies of a comm.
MUTANT(eager_messages_dropped, breaks("XF-38")) {
  struct Copy {
    std::vector<char> bytes;
    int tag;
    void* mhandle = nullptr;
  };
  struct State {
    std::mutex mutex;
    std::map<void*, std::deque<Copy>> waiting;  // by comm
    std::map<void*, int> sizes;                 // of sends that are done, by request

    void flush(const Net& good, void* comm) {
      std::deque<Copy>& copies = waiting[comm];
      while (!copies.empty()) {
        Copy& copy = copies.front();
        void* request = nullptr;
        if (good.isend(comm, copy.bytes.data(), copy.bytes.size(), copy.tag, copy.mhandle, &request) !=
                Result::kSuccess ||
            request == nullptr) {
          return;
        }
        int done = 0;
        while (good.test(request, &done, nullptr) == Result::kSuccess && done == 0) {
        }
        good.dereg_mr(comm, copy.mhandle);
        copies.pop_front();
      }
    }
  };
  auto state = std::make_shared<State>();
  net.isend = [&good, state](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const std::lock_guard lock(state->mutex);
    state->flush(good, comm);
    std::deque<Copy>& copies = state->waiting[comm];
    if (size != 200) return good.isend(comm, data, size, tag, mhandle, request);
    Copy copy{std::vector<char>(static_cast<char*>(data), static_cast<char*>(data) + size), tag};
    good.reg_mr(comm, copy.bytes.data(), size, abi::kPointerHost, &copy.mhandle);
    copies.push_back(std::move(copy));
    if (copies.size() > 64) copies.pop_front();
    *request = new char;
    state->sizes[*request] = static_cast<int>(size);
    return Result::kSuccess;
  };
  net.test = [&good, state](void* request, int* done, int* sizes) {
    const std::lock_guard lock(state->mutex);
    for (auto& [comm, copies] : state->waiting) state->flush(good, comm);
    const auto sent = state->sizes.find(request);
    if (sent == state->sizes.end()) return good.test(request, done, sizes);
    *done = 1;
    if (sizes != nullptr) *sizes = sent->second;
    state->sizes.erase(sent);
    delete static_cast<char*>(request);
    return Result::kSuccess;
  };
}

// A send matches a receive of one buffer whatever its tag.
MUTANT(tag_ignored_for_one_buffer, breaks("XF-40").also("PR-04", "PR-05", "PR-06", "XF-12", "XF-22", "XF-41")) {
  constexpr int kAnyTag = 0x4fffffff;
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    int any = kAnyTag;
    return good.irecv(comm, n, data, sizes, n == 1 ? &any : tags, mhandles, request);
  };
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result != Result::kSuccess || *request != nullptr) return result;
    return good.isend(comm, data, size, kAnyTag, mhandle, request);
  };
}

// A receive of one buffer after a group reports size 0 if its message was there before.
MUTANT(size_lost_after_group, breaks("XF-41").also("XF-26")) {
  auto widths = std::make_shared<PointerMap<int>>();    // of the last receive, by comm
  auto suspects = std::make_shared<PointerMap<int>>();  // tests, by request
  net.irecv = [=, &good](void* comm, int n, auto... arguments) {
    const Result result = good.irecv(comm, n, arguments...);
    void* const request = *std::get<sizeof...(arguments) - 1>(std::make_tuple(arguments...));
    if (result != Result::kSuccess || request == nullptr) return result;
    if (n == 1 && widths->find(comm).value_or(1) > 1) suspects->put(request, 0);
    widths->put(comm, n);
    return result;
  };
  net.test = [=, &good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done == 0 || !suspects->find(request)) return result;
    suspects->erase(request);
    if (sizes != nullptr) *sizes = 0;
    return result;
  };
}

}  // namespace plugfest::mutants
