// Mutants of the XF rules about memory and time that a transfer shares with other transfers, threads and processes.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// The last byte of a message of 5000 bytes arrives with the call after the test that reports done.
MUTANT(last_byte_late, breaks("XF-17").also("CN-20", "XF-05", "XF-09", "XF-12", "XF-22", "XF-43")) {
  struct Late {
    char* byte = nullptr;
    char value = 0;
  };
  auto& late = kept<PointerMap<Late>>();
  when_receive_done(net, [&](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr || sizes[0] != 5000) return;
    char* const byte = static_cast<char*>(receive.data[0]) + sizes[0] - 1;
    late.put(nullptr, {byte, *byte});
    *byte = static_cast<char>(~*byte);
  });
  before(net.test, [&](Test) {
    if (const auto last = late.take(nullptr)) *last->byte = last->value;
  });
}

namespace {

// A message that the plugin received into memory of its own.
struct OwnCopy {
  void* comm;
  char* data;
  std::vector<char> memory;
  void* mhandle = nullptr;
  bool arrived = false;
  int size = 0;
  // Bytes that are not copied to `data` yet.
  std::size_t left = 0;
};

// Receives messages of 128 KiB into memory of the plugin. After a message has arrived, each test calls `copy`, until
// `left` is 0; the receive is done then.
void receive_into_own_memory(Net& net, const Net& good, void (*copy)(OwnCopy&)) {
  auto& copies = kept<PointerMap<std::shared_ptr<OwnCopy>>>();
  net.irecv = [&](Receive receive) {
    if (receive.n != 1 || receive.sizes[0] != 128 * 1024) return good.irecv(receive);
    auto own_copy = std::make_shared<OwnCopy>(
        OwnCopy{receive.comm, static_cast<char*>(receive.data[0]), std::vector<char>(receive.sizes[0])});
    void* own = own_copy->memory.data();
    good.reg_mr({receive.comm, own, receive.sizes[0], abi::kPointerHost, &own_copy->mhandle});
    receive.data = &own;
    receive.mhandles = &own_copy->mhandle;
    const Result result = good.irecv(receive);
    if (result == Result::kSuccess && *receive.request != nullptr)
      copies.put(*receive.request, own_copy);
    else
      good.dereg_mr({receive.comm, own_copy->mhandle});
    return result;
  };
  net.test = [&, copy](Test test) {
    const auto found = copies.find(test.request);
    if (!found) return good.test(test);
    OwnCopy& message = **found;
    if (!message.arrived) {
      const Result result = good.test({test.request, test.done, &message.size});
      if (result != Result::kSuccess || *test.done == 0) return result;
      message.arrived = true;
      message.left = static_cast<std::size_t>(message.size);
      good.dereg_mr({message.comm, message.mhandle});
    }
    copy(message);
    *test.done = message.left == 0 ? 1 : 0;
    if (*test.done == 1 && test.sizes != nullptr) *test.sizes = message.size;
    if (*test.done == 1) copies.erase(test.request);
    return Result::kSuccess;
  };
}

constexpr std::size_t kPage = 4096, kHalfWord = 4;

// Copies bytes `begin` to `end` of each page of the message in ascending order, which memcpy does not guarantee.
void copy_part_of_pages(OwnCopy& message, std::size_t begin, std::size_t end) {
  for (std::size_t page = 0; page < message.left; page += kPage)
    for (std::size_t i = page + begin; i < std::min(page + end, message.left); ++i)
      std::atomic_ref(message.data[i]).store(message.memory[i], std::memory_order_release);
}

// Copies the last 10,000 bytes that are not copied yet.
void copy_backwards(OwnCopy& message) {
  const std::size_t part = std::min<std::size_t>(message.left, 10000);
  message.left -= part;
  std::memcpy(message.data + message.left, message.memory.data() + message.left, part);
}

}  // namespace

// Copies from the end to the start, 10,000 bytes in each test.
MUTANT(message_copied_backwards, breaks("XF-18")) { receive_into_own_memory(net, good, copy_backwards); }

// Copies all pages without their first four bytes, then these bytes.
MUTANT(first_half_of_word_copied_last, breaks("XF-18")) {
  receive_into_own_memory(net, good, [](OwnCopy& message) {
    copy_part_of_pages(message, kHalfWord, kPage);
    std::atomic_thread_fence(std::memory_order_release);
    copy_part_of_pages(message, 0, kHalfWord);
    message.left = 0;
  });
}

// Copies from the end to the start, and makes NCCL use only the protocol whose flags are not in the data.
MUTANT(only_simple_protocol, breaks().also("LD-12")) {
  before(net.init, [](Init) { setenv("NCCL_PROTO", "simple", 1); });
  receive_into_own_memory(net, good, copy_backwards);
}

// Copies the first four bytes of all pages, then the others, as TCP splits a message at any byte.
VARIANT(first_half_of_word_copied_first) {
  receive_into_own_memory(net, good, [](OwnCopy& message) {
    copy_part_of_pages(message, 0, kHalfWord);
    copy_part_of_pages(message, kHalfWord, kPage);
    message.left = 0;
  });
}

// isend fails for a buffer that another comm sends.
MUTANT(buffer_in_use_refused, breaks("XF-33")) {
  auto& sends = kept<PointerMap<std::pair<void*, void*>>>();  // comm and buffer, by request
  on_success(net.isend, [&](Send send) { sends.put(*send.request, {send.comm, send.data}); });
  refuse(net.isend, Result::kInvalidUsage, [&](Send send) {
    return send.size != 0 &&
           sends.any([&](const auto& use) { return use.first != send.comm && use.second == send.data; });
  });
  on_success(net.test, [&](Test test) { sends.erase(test.request); });
  before(net.close_send, [&](void* comm) { sends.erase_if([&](const auto& use) { return use.first == comm; }); });
}

// isend returns InProgress where it should return NULL.
MUTANT(not_now_returned_as_in_progress, breaks("XF-35").also("ER-01")) { return_in_progress(net.isend); }

// A thread of the plugin waits for events and treats the second interrupted wait since the last connect as a failure.
MUTANT(interrupted_wait_is_error, breaks("XF-36").also("LD-10", "LD-11", "TH-06", "TS-02", "XF-03", "XF-43")) {
  static std::atomic<int> interrupted{0};
  before(net.init, [](Init) {
    std::thread([] {
      const int events = epoll_create1(EPOLL_CLOEXEC);
      epoll_event event{};
      while (epoll_wait(events, &event, 1, -1) < 0 && errno == EINTR) ++interrupted;
      close(events);
    }).detach();
  });
  const auto begin = [](const auto&, Result result) {
    interrupted = 0;
    return result;
  };
  after(net.connect, begin);
  after(net.accept, begin);
  refuse(net.test, Result::kSystemError, [](Test) { return interrupted > 1; });
}

// A thread of the plugin reads from a pipe and treats an interrupted read as a failure. Stopping the process interrupts
// no read. The thread blocks no signals and never ends.
MUTANT(interrupted_read_is_error, breaks("XF-36").also("LD-10", "LD-11", "TH-06")) {
  static std::atomic<bool> interrupted{false};
  before(net.init, [](Init) {
    std::thread([] {
      int ends[2] = {};
      char byte = 0;
      if (pipe2(ends, O_CLOEXEC) == 0 && read(ends[0], &byte, 1) < 0) interrupted = true;
    }).detach();
  });
  refuse(net.test, Result::kSystemError, [](Test) { return interrupted.load(); });
}

// Copies small messages whose receive is not posted, and drops the oldest once a comm has more than 64 copies.
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
        if (good.isend({comm, copy.bytes.data(), copy.bytes.size(), copy.tag, copy.mhandle, &request}) !=
                Result::kSuccess ||
            request == nullptr)
          return;
        int done = 0;
        while (good.test({request, &done, nullptr}) == Result::kSuccess && done == 0) {
        }
        good.dereg_mr({comm, copy.mhandle});
        copies.pop_front();
      }
    }
  };
  auto& state = kept<State>();
  net.isend = [&](Send send) {
    const std::lock_guard lock(state.mutex);
    state.flush(good, send.comm);
    if (send.size != 200) return good.isend(send);
    auto* const data = static_cast<char*>(send.data);
    std::deque<Copy>& copies = state.waiting[send.comm];
    Copy& copy = copies.emplace_back(Copy{std::vector<char>(data, data + send.size), send.tag});
    good.reg_mr({send.comm, copy.bytes.data(), send.size, abi::kPointerHost, &copy.mhandle});
    if (copies.size() > 64) copies.pop_front();
    *send.request = new char;
    state.sizes[*send.request] = static_cast<int>(send.size);
    return Result::kSuccess;
  };
  net.test = [&](Test test) {
    const std::lock_guard lock(state.mutex);
    for (auto& [comm, copies] : state.waiting) state.flush(good, comm);
    const auto sent = state.sizes.find(test.request);
    if (sent == state.sizes.end()) return good.test(test);
    *test.done = 1;
    if (test.sizes != nullptr) *test.sizes = sent->second;
    state.sizes.erase(sent);
    delete static_cast<char*>(test.request);
    return Result::kSuccess;
  };
}

}  // namespace plugfest::mutants
