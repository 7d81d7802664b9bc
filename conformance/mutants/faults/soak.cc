// Mutants of the SK rules: bugs that show only after many calls.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Whether select's sets can hold the next descriptor of the process.
bool next_descriptor_is_selectable() {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  return next < FD_SETSIZE;
}

}  // namespace

// The size of message 65,536 of a comm is reported as 0.
MUTANT(size_lost_at_message_65536, breaks("SK-01")) {
  auto& comms = comms_of_requests(net.irecv);
  auto& counts = kept<PointerMap<int>>();  // of receives, by comm
  on_success(net.test, [&](Test test) {
    const auto comm = comms.take(test.request);
    if (comm && counts.add(*comm, 1) == 65536 && test.sizes != nullptr) test.sizes[0] = 0;
  });
  before(net.close_recv, [&](void* comm) { counts.erase(comm); });
}

// Message 65,536 of a comm cannot be sent.
MUTANT(send_fails_at_message_65536, breaks("SK-01")) {
  auto& counts = kept<PointerMap<int>>();  // of sends, by comm
  on_success(net.isend, [&](Send send) { counts.add(send.comm, 1); });
  refuse(net.isend, Result::kInternalError, [&](Send send) { return counts.add(send.comm, 0) >= 65535; });
  before(net.close_send, [&](void* comm) { counts.erase(comm); });
}

// The first byte of one in 100,000 messages is wrong.
MUTANT(byte_wrong_in_100000_messages, breaks("SK-01")) {
  auto& count = kept<std::atomic<int>>();
  when_receive_done(net, [&](const PostedReceive& receive, int*) {
    if (++count % 100'000 != 0 || receive.sizes[0] == 0) return;
    auto* const first = static_cast<unsigned char*>(receive.data[0]);
    *first = static_cast<unsigned char>(~*first);
  });
}

// isend fails after 4 GiB on a comm.
MUTANT(send_fails_after_4_gib, breaks("SK-03")) {
  auto& bytes = kept<PointerMap<std::size_t>>();
  on_success(net.isend, [&](Send send) { bytes.add(send.comm, send.size); });
  refuse(net.isend, Result::kInternalError, [&](Send send) { return bytes.add(send.comm, 0) > UINT32_MAX; });
  before(net.close_send, [&](void* comm) { bytes.erase(comm); });
}

// Each isend leaves 64 bytes behind.
MUTANT(send_leaks_64_bytes, breaks("SK-02")) {
  on_success(net.isend, [](Send) { leak(64); });
}

// Each message leaves 128 bytes behind at its receiver.
MUTANT(message_leaks_128_bytes, breaks("SK-02")) {
  when_receive_done(net, [](const PostedReceive&, int*) { leak(128); });
}

// Each connect leaves 2 KiB behind.
MUTANT(connect_leaks_2_kib, breaks("CN-27")) {
  on_success(net.connect, [](Connect) { leak(2048); });
}

// Each regMr leaves 64 bytes behind.
MUTANT(registration_leaks_64_bytes, breaks("SK-05")) {
  on_success(net.reg_mr, [](Register) { leak(64); });
}

// Each sixteenth deregMr leaves a locked page behind.
MUTANT(deregistered_page_stays_locked, breaks("SK-05").also("CL-05")) {
  auto& count = kept<std::atomic<int>>();
  on_success(net.dereg_mr, [&](Deregister) {
    if (++count % 16 != 0) return;
    constexpr std::size_t kPage = 4096;
    void* const page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) mlock(std::memset(page, 1, kPage), kPage);
  });
}

// One of 100 connects leaves a descriptor behind.
MUTANT(descriptor_leaks_in_100_connects, breaks("CN-27")) {
  auto& count = kept<std::atomic<int>>();
  on_success(net.connect, [&](Connect) {
    if (++count % 100 == 0) open("/dev/null", O_RDONLY | O_CLOEXEC);
  });
}

// connect and accept use select, and refuse descriptors that its sets cannot hold.
MUTANT(selects_descriptors, breaks("SK-04")) {
  refuse(net.connect, Result::kSystemError, [](Connect) { return !next_descriptor_is_selectable(); });
}

// Receives in flight share 16 slots, which hold the limit of the reported size.
MUTANT(sizes_in_16_slots, breaks("XF-09").also("TH-02")) {
  struct Slots {
    std::array<std::atomic<int>, 16> limits{};
    std::atomic<std::size_t> next{0};
  };
  auto& slots = kept<Slots>();
  auto& taken = kept<PointerMap<std::size_t>>();
  on_success(net.irecv, [&](Receive receive) {
    const std::size_t slot = slots.next++ % slots.limits.size();
    slots.limits[slot] = static_cast<int>(std::min<std::size_t>(receive.sizes[0], INT32_MAX));
    taken.put(*receive.request, slot);
  });
  on_success(net.test, [&](Test test) {
    const auto slot = taken.take(test.request);
    if (slot && test.sizes != nullptr) test.sizes[0] = std::min<int>(test.sizes[0], slots.limits[*slot]);
  });
}

// With receives on three comms, the size that test reports belongs to the receive that was posted last.
MUTANT(size_of_another_of_three_comms, breaks("XF-09")) {
  InFlight& in_flight = InFlight::watch(net);
  auto& last = kept<std::atomic<int>>();
  auto& mixed = kept<PointerSet>();
  on_success(net.irecv, [&](Receive receive) {
    last = static_cast<int>(std::min<std::size_t>(receive.sizes[0], INT32_MAX));
    if (in_flight.other_receiving_comms(receive.comm) >= 2) mixed.insert(*receive.request);
  });
  on_success(net.test, [&](Test test) {
    if (mixed.erase(test.request) && test.sizes != nullptr) test.sizes[0] = last;
  });
}

// The state of an unfinished connect is kept by the address of the handle. After one abandoned connect, each later one
// with a handle at the same address connects to the wrong listener, so any rule may fail.
MUTANT(
    connect_state_by_handle_address,
    breaks("CN-05").also("*").because("after one abandoned connect, each later one at the same address goes astray")) {
  auto& handles = kept<PointerMap<std::array<char, abi::kHandleBytes>>>();
  net.connect = [&](Connect connect) {
    auto known = handles.find(connect.handle);
    if (known) {
      std::memcpy(connect.handle, known->data(), known->size());
    } else {
      std::array<char, abi::kHandleBytes> bytes;
      std::memcpy(bytes.data(), connect.handle, bytes.size());
      handles.put(connect.handle, bytes);
    }
    const Result result = good.connect(connect);
    if (*connect.comm != nullptr) handles.erase(connect.handle);
    return result;
  };
}

// finalize of one of three contexts ends the comms of the others.
MUTANT(finalize_of_the_third_context, breaks("IN-08")) {
  auto& contexts = kept<std::atomic<int>>();
  auto& ended = kept<std::atomic<bool>>();
  on_success(net.init, [&](Init) { ++contexts; });
  before(net.finalize, [&](void*) {
    if (contexts-- >= 3) ended = true;
  });
  refuse(net.isend, Result::kInternalError, [&](Send) { return contexts > 0 && ended.load(); });
}

// A registration cache finds the regions of a comm by their address alone, and keeps them until the comm closes.
MUTANT(longer_buffer_shares_registration, breaks("MR-04").also("MR-12")) {
  struct Cached {
    void* comm;
    void* mhandle;
  };
  auto& cache = kept<PointerMap<Cached>>();  // by address
  net.reg_mr = [&](Register call) {
    if (const auto known = cache.find(call.data); known && known->comm == call.comm) {
      *call.mhandle = known->mhandle;
      return Result::kSuccess;
    }
    const Result result = good.reg_mr(call);
    if (result == Result::kSuccess) cache.put(call.data, {call.comm, *call.mhandle});
    return result;
  };
  net.dereg_mr = [](Deregister) { return Result::kSuccess; };
  const auto forget = [&](const void* comm) {
    cache.erase_if([comm](const Cached& cached) { return cached.comm == comm; });
  };
  before(net.close_send, forget);
  before(net.close_recv, forget);
}

}  // namespace plugfest::mutants
