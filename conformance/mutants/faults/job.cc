// Mutants of the EE rules.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

// Flips a bit in the middle of each message for which `condition(send)` holds, while it is sent.
template <typename Condition>
void damage_sends(Net& net, Condition condition) {
  net.isend = [condition, good = net.isend](Send send) {
    if (send.size == 0 || !condition(send)) return good(send);
    auto* const middle = static_cast<unsigned char*>(send.data) + send.size / 2;
    *middle ^= 0x10;
    const Result result = good(send);
    if (result != Result::kSuccess || *send.request == nullptr) *middle ^= 0x10;
    return result;
  };
}

// Set by some mutations: the process cannot listen any more.
std::atomic<bool> g_lost{false};

// Makes each listen fail once `g_lost` is set.
void fail_listen_once_lost(Net& net) {
  refuse(net.listen, Result::kSystemError, [](Listen) { return g_lost.load(); });
}

}  // namespace

// Has no device if NCCL_NET_PLUGIN is a path, since it searches for its settings under that name.
MUTANT(no_device_under_a_path, breaks("EE-01")) {
  on_success(net.devices, [](int* count) {
    const char* const name = std::getenv("NCCL_NET_PLUGIN");
    if (name != nullptr && std::strchr(name, '/') != nullptr) *count = 0;
  });
}

// init sets NCCL_SOCKET_IFNAME to an interface that hosts without the hardware lack.
MUTANT(init_chooses_socket_interface, breaks("EE-02").also("LD-12")) {
  before(net.init, [](Init) { setenv("NCCL_SOCKET_IFNAME", "=roce0", 1); });
}

// Messages with tag 7, the tag of the eighth rank, are sent with a wrong bit.
MUTANT(eighth_rank_sends_wrong_bit, breaks("EE-03")
                                        .also("EE-09", "XF-*", "TS-*", "MR-*", "CN-*", "FL-*", "PR-*")
                                        .because("each rule that sends with tag 7 receives wrong bytes")) {
  damage_sends(net, [](Send send) { return send.tag == 7; });
}

// A process supports at most 28 send comms.
MUTANT(few_send_comms,
       breaks("EE-04").also("CN-*", "IN-*", "EE-09").because("each rule with many connections reaches the limit")) {
  limit_send_comms(net, 28, Result::kSystemError);
}

// isend copies messages of 64 KiB and more, and those that follow them, and reports them as sent. They are sent when a
// receive is tested, or ten seconds later; closeSend drops the rest.
MUTANT(close_drops_buffered_messages,
       breaks("EE-05").also("*").because("each rule with messages of 64 KiB and more gets them late or not at all")) {
  struct Message {
    std::vector<unsigned char> data;
    int tag = 0;
    std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
    void* mhandle = nullptr;
    void* request = nullptr;
  };
  struct Buffer {
    std::mutex mutex;  // also guards the comms, which two threads use
    std::map<void*, std::deque<std::unique_ptr<Message>>> of_comm;
    std::set<void*> receives;

    void push(const Net& good, std::chrono::seconds age) {
      for (auto& [comm, waiting] : of_comm) {
        while (!waiting.empty() && std::chrono::steady_clock::now() - waiting.front()->time >= age) {
          Message& first = *waiting.front();
          std::vector<unsigned char>& data = first.data;
          int done = 0;
          if (first.mhandle == nullptr)
            good.reg_mr({comm, data.data(), data.size(), abi::kPointerHost, &first.mhandle});
          if (first.request == nullptr)
            good.isend({comm, data.data(), data.size(), first.tag, first.mhandle, &first.request});
          if (first.request == nullptr || good.test({first.request, &done, nullptr}) != Result::kSuccess || done == 0)
            break;
          good.dereg_mr({comm, first.mhandle});
          waiting.pop_front();
        }
      }
    }
  };
  auto& buffer = kept<Buffer>();
  static char sent = 0;
  before(net.init, [&](Init) {
    static std::atomic<bool> started{false};
    if (started.exchange(true)) return;
    std::thread([&] {
      for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
        const std::lock_guard lock(buffer.mutex);
        buffer.push(good, std::chrono::seconds(10));
      }
    }).detach();
  });
  net.isend = [&](Send send) {
    const std::lock_guard lock(buffer.mutex);
    auto& waiting = buffer.of_comm[send.comm];
    if (send.size < 65536 && waiting.empty()) return good.isend(send);
    const auto* const bytes = static_cast<unsigned char*>(send.data);
    waiting.push_back(std::make_unique<Message>(Message{{bytes, bytes + send.size}, send.tag}));
    *send.request = &sent;
    return Result::kSuccess;
  };
  net.irecv = [&](Receive receive) {
    const std::lock_guard lock(buffer.mutex);
    const Result result = good.irecv(receive);
    if (result == Result::kSuccess && *receive.request != nullptr) buffer.receives.insert(*receive.request);
    return result;
  };
  net.test = [&](Test test) {
    *test.done = 1;
    if (test.request == &sent) return Result::kSuccess;
    const std::lock_guard lock(buffer.mutex);
    if (buffer.receives.contains(test.request)) buffer.push(good, std::chrono::seconds(0));
    const Result result = good.test(test);
    if (result == Result::kSuccess && *test.done == 1) buffer.receives.erase(test.request);
    return result;
  };
  net.reg_mr = [&](Register call) {
    const std::lock_guard lock(buffer.mutex);
    return good.reg_mr(call);
  };
  net.dereg_mr = [&](Deregister call) {
    const std::lock_guard lock(buffer.mutex);
    return good.dereg_mr(call);
  };
  net.close_send = [&](void* comm) {
    const std::lock_guard lock(buffer.mutex);
    buffer.of_comm.erase(comm);
    return good.close_send(comm);
  };
}

// After an operation has failed, the process cannot listen any more.
MUTANT(no_connections_after_an_error, breaks("EE-06")
                                          .also("CL-11", "EE-11", "ER-*", "CN-*", "XF-11")
                                          .because("each rule that connects after a failed operation cannot listen")) {
  fail_listen_once_lost(net);
  const auto lose = [](const auto&) { g_lost = true; };
  on_failure(net.isend, lose);
  on_failure(net.irecv, lose);
  on_failure(net.test, lose);
}

// Once a comm was closed with receives in flight, the process cannot listen any more.
MUTANT(no_connections_after_an_unfinished_receive,
       breaks("EE-07")
           .also("CL-*", "CN-*", "EE-06", "EE-09", "EE-10", "EE-11", "ER-*", "MR-12", "MR-14", "MR-20", "PR-*", "TH-*",
                 "TS-*", "XF-*")
           .because("each rule that connects after closing a comm with receives cannot listen")) {
  fail_listen_once_lost(net);
  InFlight& in_flight = InFlight::watch(net);
  before(net.close_recv, [&](void* comm) {
    if (in_flight.receives(comm) > 0) g_lost = true;
    in_flight.forget(comm);
  });
}

// Message 700 of each comm is sent with a wrong bit.
MUTANT(message_700_has_wrong_bit, breaks("EE-08")
                                      .also("CL-08", "CN-24", "XF-*", "TS-*", "MR-*", "TH-*", "EE-06", "EE-11")
                                      .because("each rule with 700 messages on a comm receives a wrong byte")) {
  auto& counts = kept<PointerMap<int>>();
  damage_sends(net, [&](Send send) { return counts.add(send.comm, 0) == 699; });
  on_success(net.isend, [&](Send send) { counts.add(send.comm, 1); });
  before(net.close_send, [&](void* comm) { counts.erase(comm); });
}

// Messages with tag 15, the tag of the sixteenth rank, are sent with a wrong bit.
MUTANT(sixteenth_rank_sends_wrong_bit, breaks("EE-09")
                                           .also("XF-*", "TS-*", "MR-*", "CN-*", "FL-*")
                                           .because("each rule that sends with tag 15 receives wrong bytes")) {
  damage_sends(net, [](Send send) { return send.tag == 15; });
}

// Treats each lost packet as a network error, although the NIC retransmits it.
MUTANT(lost_packet_is_error, breaks("EE-10")
                                 .also("CL-*", "CN-*", "EE-*", "ER-*", "MR-*", "PR-*", "TH-*", "TS-*", "XF-*")
                                 .because("on a loaded host, the kernel drops packets during any rule")) {
  refuse(net.test, Result::kRemoteError, [](Test) {
    static std::atomic<unsigned> calls{0};
    static const std::uint64_t gaps_before = nic_counter("out_of_sequence");
    return ++calls % 64 == 0 && nic_counter("out_of_sequence") > gaps_before;
  });
}

// Once a port was down, the process cannot listen any more.
MUTANT(no_connections_after_a_port_error, breaks("EE-11").also("ER-*")) {
  fail_listen_once_lost(net);
  before(net.test, [](Test) {
    if (a_port_is_down()) g_lost = true;
  });
}

}  // namespace plugfest::mutants
