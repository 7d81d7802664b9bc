// Mutants of the EE rules.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "conformance/mutants/faults/end_to_end/port.h"
#include "conformance/mutants/faults/in_flight.h"
#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

/// Flips a bit in the middle of the message while it is sent.
Result send_damaged(const Net& good, void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
  auto* const middle = static_cast<unsigned char*>(data) + size / 2;
  *middle ^= 0x10;
  const Result result = good.isend(comm, data, size, tag, mhandle, request);
  if (result != Result::kSuccess || *request == nullptr) *middle ^= 0x10;
  return result;
}

/// Sum of a counter over the NICs of this host.
std::uint64_t nic_counter(const char* name) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (const auto& nic : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::uint64_t value = 0;
    std::ifstream(nic.path() / "ports/1/hw_counters" / name) >> value;
    sum += value;
  }
  return sum;
}

/// Makes each listen fail once `lost` is set.
void fail_listen(Net& net, const Net& good, const std::shared_ptr<std::atomic<bool>>& lost) {
  net.listen = [&good, lost](auto... arguments) { return *lost ? Result::kSystemError : good.listen(arguments...); };
}

}  // namespace

// Has no device if NCCL_NET_PLUGIN is a path, since it looks for its settings under that name.
MUTANT(no_device_under_a_path, breaks("EE-01")) {
  net.devices = [&good](int* count) {
    const char* const name = std::getenv("NCCL_NET_PLUGIN");
    const Result result = good.devices(count);
    if (name != nullptr && std::strchr(name, '/') != nullptr) *count = 0;
    return result;
  };
}

// init tells NCCL's sockets to use an interface that hosts without the hardware do not have.
MUTANT(init_chooses_socket_interface, breaks("EE-02").also("LD-12")) {
  net.init = [&good](auto... arguments) {
    setenv("NCCL_SOCKET_IFNAME", "=roce0", 1);
    return good.init(arguments...);
  };
}

// Messages with tag 7, which those of the eighth rank have, are sent with a wrong bit.
MUTANT(eighth_rank_sends_wrong_bit, breaks("EE-03").also("EE-09", "XF-*", "TS-*", "MR-*", "CN-*", "FL-*", "PR-*")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return tag == 7 && size > 0 ? send_damaged(good, comm, data, size, tag, mhandle, request)
                                : good.isend(comm, data, size, tag, mhandle, request);
  };
}

// A process has 28 send comms at most.
MUTANT(few_send_comms, breaks("EE-04").also("CN-*", "IN-*", "EE-09")) {
  auto open = std::make_shared<std::atomic<int>>(0);
  net.connect = [&good, open](auto... arguments) {
    if (*open >= 28) return Result::kSystemError;
    const auto comm = std::get<3>(std::tuple(arguments...));
    const Result result = good.connect(arguments...);
    if (result == Result::kSuccess && *comm != nullptr) ++*open;
    return result;
  };
  net.close_send = [&good, open](void* comm) {
    --*open;
    return good.close_send(comm);
  };
}

// isend copies messages of 64 KiB and more, and those that follow them, and reports them as sent. They leave when a
// receive is tested, or ten seconds later; closeSend drops those that are left.
MUTANT(close_drops_buffered_messages, breaks("EE-05").also("*")) {
  struct Message {
    std::vector<unsigned char> data;
    int tag = 0;
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
    void* mhandle = nullptr;
    void* request = nullptr;
  };
  struct Buffer {
    std::mutex mutex;  // also for the comms, which two threads use
    std::map<void*, std::deque<std::unique_ptr<Message>>> of_comm;
    std::set<void*> receives;
  };
  auto buffer = std::make_shared<Buffer>();
  static char sent = 0;
  const auto push = [&good, buffer](std::chrono::seconds age) {
    for (auto& [comm, waiting] : buffer->of_comm) {
      while (!waiting.empty() && std::chrono::steady_clock::now() - waiting.front()->time >= age) {
        Message& first = *waiting.front();
        int done = 0;
        if (first.mhandle == nullptr)
          good.reg_mr(comm, first.data.data(), first.data.size(), abi::kPointerHost, &first.mhandle);
        if (first.request == nullptr)
          good.isend(comm, first.data.data(), first.data.size(), first.tag, first.mhandle, &first.request);
        if (first.request == nullptr || good.test(first.request, &done, nullptr) != Result::kSuccess || done == 0)
          break;
        good.dereg_mr(comm, first.mhandle);
        waiting.pop_front();
      }
    }
  };
  net.init = [&good, buffer, push](auto... arguments) {
    static std::atomic<bool> started{false};
    if (!started.exchange(true)) {
      std::thread([buffer, push] {
        for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
          const std::lock_guard lock(buffer->mutex);
          push(std::chrono::seconds(10));
        }
      }).detach();
    }
    return good.init(arguments...);
  };
  net.isend = [&good, buffer](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const std::lock_guard lock(buffer->mutex);
    auto& waiting = buffer->of_comm[comm];
    if (size < 65536 && waiting.empty()) return good.isend(comm, data, size, tag, mhandle, request);
    const auto* const bytes = static_cast<unsigned char*>(data);
    waiting.push_back(std::make_unique<Message>(Message{{bytes, bytes + size}, tag}));
    *request = &sent;
    return Result::kSuccess;
  };
  net.irecv = [&good, buffer](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                              void** request) {
    const std::lock_guard lock(buffer->mutex);
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) buffer->receives.insert(*request);
    return result;
  };
  net.test = [&good, buffer, push](void* request, int* done, int* sizes) {
    *done = 1;
    if (request == &sent) return Result::kSuccess;
    const std::lock_guard lock(buffer->mutex);
    if (buffer->receives.contains(request)) push(std::chrono::seconds(0));
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess && *done == 1) buffer->receives.erase(request);
    return result;
  };
  net.reg_mr = [&good, buffer](auto... arguments) {
    const std::lock_guard lock(buffer->mutex);
    return good.reg_mr(arguments...);
  };
  net.dereg_mr = [&good, buffer](auto... arguments) {
    const std::lock_guard lock(buffer->mutex);
    return good.dereg_mr(arguments...);
  };
  net.close_send = [&good, buffer](void* comm) {
    const std::lock_guard lock(buffer->mutex);
    buffer->of_comm.erase(comm);
    return good.close_send(comm);
  };
}

// After an operation has failed, the process cannot listen any more.
MUTANT(no_connections_after_an_error, breaks("EE-06").also("CL-11", "EE-11", "ER-*", "CN-*")) {
  auto lost = std::make_shared<std::atomic<bool>>(false);
  fail_listen(net, good, lost);
  const auto keep = [lost](Result result) {
    if (result != Result::kSuccess) *lost = true;
    return result;
  };
  net.isend = [&good, keep](auto... arguments) { return keep(good.isend(arguments...)); };
  net.irecv = [&good, keep](auto... arguments) { return keep(good.irecv(arguments...)); };
  net.test = [&good, keep](auto... arguments) { return keep(good.test(arguments...)); };
}

// Once a comm was closed with receives in flight, the process cannot listen any more.
MUTANT(no_connections_after_an_unfinished_receive,
       breaks("EE-07").also("CL-*", "CN-*", "EE-06", "EE-09", "EE-10", "EE-11", "ER-*", "MR-12", "MR-14", "TS-*")) {
  auto lost = std::make_shared<std::atomic<bool>>(false);
  fail_listen(net, good, lost);
  auto in_flight = InFlight::watch(net, good);
  net.close_recv = [&good, in_flight, lost](void* comm) {
    if (in_flight->receives(comm) > 0) *lost = true;
    in_flight->forget(comm);
    return good.close_recv(comm);
  };
}

// Message 700 of each comm is sent with a wrong bit.
MUTANT(message_700_has_wrong_bit,
       breaks("EE-08").also("CL-08", "CN-24", "XF-*", "TS-*", "MR-*", "TH-*", "EE-06", "EE-11")) {
  auto counts = std::make_shared<PointerMap<int>>();
  net.isend = [&good, counts](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const int before = counts->find(comm).value_or(0);
    const Result result = before == 699 && size > 0 ? send_damaged(good, comm, data, size, tag, mhandle, request)
                                                    : good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess && *request != nullptr) counts->put(comm, before + 1);
    return result;
  };
  net.close_send = [&good, counts](void* comm) {
    counts->erase(comm);
    return good.close_send(comm);
  };
}

// Messages with tag 15, which those of the sixteenth rank have, are sent with a wrong bit.
MUTANT(sixteenth_rank_sends_wrong_bit, breaks("EE-09").also("XF-*", "TS-*", "MR-*", "CN-*", "FL-*")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return tag == 15 && size > 0 ? send_damaged(good, comm, data, size, tag, mhandle, request)
                                 : good.isend(comm, data, size, tag, mhandle, request);
  };
}

// Takes each packet that was lost for an error of the network, although the NIC sends it again.
MUTANT(lost_packet_is_error, breaks("EE-10").also("ER-*", "EE-11", "EE-06")) {
  auto calls = std::make_shared<std::atomic<unsigned>>(0);
  net.test = [&good, calls](auto... arguments) {
    static const std::uint64_t dropped_before = nic_counter("fault_drops");
    if (++*calls % 64 == 0 && nic_counter("fault_drops") > dropped_before) return Result::kRemoteError;
    return good.test(arguments...);
  };
}

// Once a port was down, the process cannot listen any more.
MUTANT(no_connections_after_a_port_error, breaks("EE-11").also("ER-*")) {
  auto lost = std::make_shared<std::atomic<bool>>(false);
  fail_listen(net, good, lost);
  net.test = [&good, lost](auto... arguments) {
    if (a_port_is_down()) *lost = true;
    return good.test(arguments...);
  };
}

}  // namespace plugfest::mutants
