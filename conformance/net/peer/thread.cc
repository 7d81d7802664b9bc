// TH rules: concurrent calls from several threads.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Listener;

RULE(TH_02, Must, ApiRange::all(),  //
     .title = "different comms may be used from different threads",
     .text =
         "Different comms of one device and context are used from different threads at the same time, without a lock "
         "of the caller's.",
     .source = "one progress thread per GPU; all GPUs of a process share a device",
     .why = "All GPUs of a process share the NICs, each with its own progress thread.",
     .check = "Streams 800 messages on each of four connections, each with its own thread at both ends.",
     .blind = "Races too rare for a few thousand messages; run the plugin with ThreadSanitizer for those.",
     .faults = {{"aws/aws-ofi-nccl#143", "test, closeRecv and registration raced with each other"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr int kThreads = 4;
  std::vector<Connection> connections;
  for (int i = 0; i < kThreads; ++i) connections.push_back(control::connect(sender, receiver));
  std::vector<control::Started<control::StreamOutcome>> streams;
  for (int i = 0; i < kThreads; ++i) {
    const std::string thread = fmt::format("prog{}", i);
    const control::StreamPlan plan{.count = 800, .seed = random()(), .sizes = {1, 64, 4096, 20000}};
    streams.push_back(control::start_receiving(connections[static_cast<std::size_t>(i)].receive.on(thread), plan));
    streams.push_back(control::start_sending(connections[static_cast<std::size_t>(i)].send.on(thread), plan));
  }
  control::require_all_clean(std::move(streams));
}

RULE(TH_03, Must, ApiRange::all(),  //
     .title = "service and progress threads run concurrently",
     .text =
         "One thread calls regMr, deregMr, listen, connect, close and setNetAttr while another calls isend, irecv and "
         "test, on the same comm where possible.",
     .source = "proxy.cc: ncclProxyService and ncclProxyProgress; aws-ofi-nccl #143, #1055",
     .why = "The service thread connects and registers while the progress thread transfers, often on the same comm.",
     .check = "Registers, connects, sets attributes and closes 20 times while another thread streams messages.",
     .blind = "Deadlocks that need three threads.",
     .faults = {{"aws/aws-ofi-nccl#1055", "the service and the progress thread deadlocked"},
                {"aws/aws-ofi-nccl#143", "test, closeRecv and registration raced with each other"},
                {"aws/aws-ofi-nccl#968", "regMr deadlocked"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  control::Memory memory = sender.rank.allocate(65536);
  during_streams(connection, random(), 20, [&] {
    control::Registration registration = connection.send.reg(memory);
    Connection other = control::connect(sender, receiver);
    if (!sender.rank.contexts().empty()) {
      sender.rank.on("svc").try_set_net_attributes(sender.rank.contexts().front(), {});
    }
    other.send.close();
    other.receive.close();
    registration.dereg();
  });
}

RULE_ON(MessageRule, TH_04, Must, ApiRange::all(),  //
        .title = "a comm may be used by any thread",
        .text = "The threads that create, use and close a comm may all be different ones.",
        .source = "proxy.cc: the service thread connects, the progress thread transfers",
        .why = "State of a thread is missing in another one.",
        .check =
            "Posts six messages from six threads, tests them from the same six, removes the registrations on another "
            "thread and closes on yet another.") {
  constexpr std::size_t kMessages = 6;
  Flow flow = make_flow(kMessages, 3000);
  for (std::size_t i = 0; i < kMessages; ++i) {
    const std::string thread = fmt::format("prog{}", i);
    traffic().receive(flow.recv_comm().on(thread), flow.target(i));
    traffic().send(flow.send_comm().on(thread), flow.fill(i));
  }
  flow.finish();
  for (const Registered* memory : {&flow.from(), &flow.to()}) memory->registration.on("svc2").dereg();
  flow.send_comm().on("svc3").close();
  flow.recv_comm().on("svc3").close();
}

RULE_ON(MessageRule, TH_08, Should, ApiRange::all(),  //
        .title = "several processes use one device",
        .text = "Two processes of a host use the same device at the same time.",
        .source = "one process per GPU is the usual launch", .why = "Only one process of each host can use the NIC.",
        .check =
            "Connects two ranks, starts a second pair of ranks on the same hosts and devices, and sends messages on "
            "both connections.",
        .blind = "More than two processes for each device.") {
  Flow flow = make_flow(1, 3000);
  on_new_ranks([&] { make_flow(1, 3000).exchange(0); });
  flow.exchange(0);
}

}  // namespace plugfest::conformance
