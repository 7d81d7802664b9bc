// Mutants of several rules: numbers that are too narrow, tables that are too small, state that threads share.
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "conformance/mutants/faults/held_request.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// isend loses the message with which a sequence number of 10 bits wraps.
MUTANT(sequence_wraps_at_1024,
       breaks("XF-06", "XF-12", "XF-19", "XF-22", "MR-14", "TH-03").also("CL-08", "CN-24", "XF-36")) {
  auto held_requests = std::make_shared<HeldRequests>();
  auto sent = std::make_shared<PointerMap<int>>();
  held_requests->install(net, good);
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (sent->change(comm, [](int& count) { return count; }) == 1024) {
      sent->put(comm, 0);
      *request = held_requests->hold({});
      return Result::kSuccess;
    }
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) sent->change(comm, [](int& count) { return ++count; });
    return result;
  };
  net.close_send = [=, &good](void* comm) {
    sent->erase(comm);
    return good.close_send(comm);
  };
}

// isend keeps 23 bits of the length of a message.
MUTANT(length_of_23_bits, breaks("XF-01", "XF-03", "XF-16", "XF-30", "TS-02")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return good.isend(comm, data, size & 0x7fffff, tag, mhandle, request);
  };
}

// isend keeps 20 bits of the offset of a message in its registration.
MUTANT(offset_of_20_bits, breaks("MR-05", "XF-31", "TS-06", "ER-10").also("MR-06", "MR-07", "PR-*")) {
  auto bases = std::make_shared<PointerMap<char*>>();
  net.reg_mr = [=, &good](void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const Result result = good.reg_mr(comm, data, size, type, mhandle);
    if (result == Result::kSuccess) bases->put(*mhandle, static_cast<char*>(data));
    return result;
  };
  net.isend = [=, &good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    if (const auto base = bases->find(mhandle)) data = *base + ((static_cast<char*>(data) - *base) & 0xfffff);
    return good.isend(comm, data, size, tag, mhandle, request);
  };
}

// connect fails when the process has 20 send comms: the numbers of comms have run out.
MUTANT(comm_numbers_run_out, breaks("CN-09", "IN-11")) {
  auto open = std::make_shared<std::atomic<int>>(0);
  net.connect = [=, &good](void* context, int device, void* handle, void** comm) {
    if (open->load() >= 20) return Result::kInternalError;
    const Result result = good.connect(context, device, handle, comm);
    if (result == Result::kSuccess && *comm != nullptr) ++*open;
    return result;
  };
  net.close_send = [=, &good](void* comm) {
    --*open;
    return good.close_send(comm);
  };
}

// listen leaks 16 KiB per call.
MUTANT(listen_leaks_memory, breaks("CN-16").also("CN-27")) {
  net.listen = [&good](void* context, int device, void* handle, void** comm) {
    constexpr std::size_t kSize = 16384;
    auto* const leaked = static_cast<volatile char*>(std::malloc(kSize));
    for (std::size_t i = 0; leaked != nullptr && i < kSize; i += 1024) leaked[i] = 1;
    return good.listen(context, device, handle, comm);
  };
}

// test writes *done as a value of one byte.
MUTANT(done_of_one_byte, breaks("TS-01").also("PR-*")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    int whole = 0;
    const Result result = good.test(request, &whole, sizes);
    const auto byte = static_cast<unsigned char>(whole);
    std::memcpy(done, &byte, sizeof byte);
    return result;
  };
}

// isend keeps its arguments in memory that all threads share.
MUTANT(arguments_shared_by_threads, breaks("TH-02")) {
  struct Arguments {
    std::atomic<void*> comm, data, mhandle;
  };
  auto shared = std::make_shared<Arguments>();
  net.isend = [&good, shared](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    shared->comm = comm;
    shared->data = data;
    shared->mhandle = mhandle;
    sched_yield();
    return good.isend(shared->comm, shared->data, size, tag, shared->mhandle, request);
  };
}

}  // namespace plugfest::mutants
