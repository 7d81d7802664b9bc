// TH: several threads at once, as NCCL's service and progress threads are.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/program.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Listener;

RULE(TH_02, Must, ApiRange::all(),  //
     .title = "threads on comms of their own need no lock",
     .text = "Different comms of one device and context are used from different threads at the same time.",
     .source = "one progress thread per GPU, all GPUs of a process on one device") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr int kThreads = 4;
  std::vector<Connection> connections;
  for (int i = 0; i < kThreads; ++i) connections.push_back(control::connect(sender, receiver));
  std::vector<control::Started<control::StreamOutcome>> ends;
  for (int i = 0; i < kThreads; ++i) {
    const std::string thread = fmt::format("prog{}", i);
    const control::StreamPlan plan{.count = 800, .seed = random()(), .sizes = {1, 64, 4096, 20000}};
    ends.push_back(control::start_receiving(connections[static_cast<std::size_t>(i)].receive.on(thread), plan));
    ends.push_back(control::start_sending(connections[static_cast<std::size_t>(i)].send.on(thread), plan));
  }
  for (auto& end : ends) control::require_clean(end.get());
}

RULE(TH_03, Must, ApiRange::all(),  //
     .title = "the service thread works beside the progress thread",
     .text =
         "regMr, deregMr, listen, connect, close and setNetAttr of one thread run beside isend, irecv and test of "
         "another, on the same comm where that is possible.",
     .source = "proxy.cc: ncclProxyService and ncclProxyProgress; aws-ofi-nccl #143, #1055") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = control::connect(sender, receiver);
  control::Memory memory = sender.rank.allocate(65536);
  // Streams begin anew until enough was done beside them.
  for (int connects = 0; connects < 20;) {
    const control::StreamPlan plan{.count = 1500, .seed = random()(), .sizes = {64, 4096, 20000}};
    auto sending = control::start_sending(connection.send, plan);
    auto receiving = control::start_receiving(connection.receive, plan);
    do {
      control::Registration registration = connection.send.reg(memory);
      Connection other = control::connect(sender, receiver);
      if (!sender.rank.contexts().empty()) {
        sender.rank.try_set_net_attributes(sender.rank.contexts().front(), {});
      }
      other.send.close();
      other.receive.close();
      registration.dereg();
      ++connects;
    } while (!sending.ready() || !receiving.ready());
    control::require_clean(sending.get());
    control::require_clean(receiving.get());
  }
}

}  // namespace plugfest::conformance
