// Mutants of the XF rules about single messages.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/posted_receive.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
// Corrupts the last byte of receives of more than 64 KiB.
MUTANT(last_byte_corrupted,
       breaks("XF-01").also("CL-02", "CN-15", "CN-28", "CN-33", "DP-20", "ER-05", "ER-07", "ER-10", "IN-08", "IN-13",
                            "IN-16", "IN-17", "MR-01", "MR-05", "MR-13", "PR-*", "TS-02", "TS-06", "XF-03", "XF-10",
                            "XF-16", "XF-18", "XF-30", "XF-31", "XF-33", "XF-37")) {
  when_receive_done(net, good, [](const PostedReceive& receive, int*) {
    if (receive.sizes[0] <= 65536) return;
    auto* const last = static_cast<unsigned char*>(receive.data[0]) + receive.sizes[0] - 1;
    *last = static_cast<unsigned char>(~*last);
  });
}

// isend and test fail for a send whose receive is not posted yet.
MUTANT(send_fails_without_receive,
       breaks("XF-05").also("*").without_draw("any rule fails whose receive is posted late on a loaded machine")) {
  auto tests = std::make_shared<PointerMap<int>>();
  net.isend = [&good, tests](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result != Result::kSuccess) return result;
    if (*request == nullptr) return Result::kRemoteError;
    tests->put(*request, 0);
    return result;
  };
  net.test = [&good, tests](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || !tests->find(request)) return result;
    if (*done == 1) {
      tests->erase(request);
      return result;
    }
    const int count = tests->change(request, [](int& value) { return ++value; });
    return count > 32 ? Result::kRemoteError : result;
  };
}

// Sends every seventh message after the message that follows it.
MUTANT(messages_reordered,
       breaks("XF-06").also("CL-08", "CN-23", "CN-24", "MR-14", "PR-*", "TH-02", "TH-03", "TS-06", "TS-07", "XF-*")) {
  auto held_requests = std::make_shared<HeldRequests>();
  auto waiting = std::make_shared<PointerMap<HeldRequest*>>();
  auto count = std::make_shared<std::atomic<int>>(0);
  held_requests->install(net, good);
  net.isend = [&good, held_requests, waiting, count](void* comm, void* data, std::size_t size, int tag, void* mhandle,
                                                     void** request) {
    if (auto* const behind = waiting->find(comm).value_or(nullptr)) {
      const Result result = good.isend(comm, data, size, tag, mhandle, request);
      if (result != Result::kSuccess || *request == nullptr) return result;
      waiting->erase(comm);
      return behind->forward();
    }
    if (count->fetch_add(1) % 7 != 6) return good.isend(comm, data, size, tag, mhandle, request);
    HeldRequest* const held = held_requests->hold([&good, comm, data, size, tag, mhandle](void** real) {
      return good.isend(comm, data, size, tag, mhandle, real);
    });
    held->tests_before = 100;  // posted after 100 tests if no other send follows
    waiting->put(comm, held);
    *request = held;
    return Result::kSuccess;
  };
}

// test reports the size of the receive buffer instead of the size of the message.
MUTANT(posted_size_reported, breaks("XF-09").also("XF-12", "XF-26", "XF-41")) {
  when_receive_done(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes == nullptr) return;
    for (std::size_t i = 0; i < receive.sizes.size(); ++i) sizes[i] = static_cast<int>(receive.sizes[i]);
  });
}

// isend refuses messages of 0 bytes.
MUTANT(empty_messages_refused, breaks("XF-12", "CN-10", "XF-10").also("CN-05", "PR-*", "XF-13")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size == 0) return Result::kInvalidArgument;
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// isend reports messages of 0 bytes as sent and drops them.
MUTANT(empty_messages_dropped, breaks("XF-12", "CN-10", "XF-10").also("CN-05", "PR-*", "XF-13")) {
  auto held_requests = std::make_shared<HeldRequests>();
  held_requests->install(net, good);
  net.isend = [&good, held_requests](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (size != 0) return good.isend(comm, data, size, tag, mhandle, request);
    *request = held_requests->hold({});
    return Result::kSuccess;
  };
}

// test reads the argument arrays of a grouped irecv that has three groups before it.
MUTANT(arrays_read_later, breaks("XF-14", "XF-07", "XF-22", "XF-26").also("XF-12")) {
  auto held_requests = std::make_shared<HeldRequests>();
  auto groups = std::make_shared<PointerMap<int>>();    // in flight, by comm
  auto owners = std::make_shared<PointerMap<void*>>();  // comms of groups in flight
  held_requests->install(net, good);
  net.irecv = [=, &good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    Result result = Result::kSuccess;
    if (n > 1 && groups->find(comm).value_or(0) >= 3) {
      *request = held_requests->hold(
          [=, &good](void** real) { return good.irecv(comm, n, data, sizes, tags, mhandles, real); });
    } else {
      result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    }
    if (n == 1 || result != Result::kSuccess || *request == nullptr) return result;
    groups->change(comm, [](int& count) { return ++count; });
    owners->put(*request, comm);
    return result;
  };
  net.test = [=, test = net.test](void* request, int* done, int* sizes) {
    const Result result = test(request, done, sizes);
    const auto comm = owners->find(request);
    if (!comm || result != Result::kSuccess || *done == 0) return result;
    groups->change(*comm, [](int& count) { return --count; });
    owners->erase(request);
    return result;
  };
  net.close_recv = [&good, groups](void* comm) {
    groups->erase(comm);
    return good.close_recv(comm);
  };
}

}  // namespace plugfest::mutants
