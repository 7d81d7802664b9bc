#include "harness/doctor/modes/sandbox.h"

#include <fmt/format.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/netem.h>
#include <netlink/route/tc.h>
#include <netlink/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <sstream>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox.h"
#include "fabric/topology/graph.h"

namespace plugfest::doctor {
namespace {

constexpr double kSeconds = 10;

/// Whether the kernel accepts a netem queue on the loopback interface of this namespace.
bool takes_netem() {
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket(nl_socket_alloc(), nl_socket_free);
  const std::unique_ptr<rtnl_qdisc, void (*)(rtnl_qdisc*)> queue(rtnl_qdisc_alloc(), rtnl_qdisc_put);
  if (!socket || !queue || nl_connect(socket.get(), NETLINK_ROUTE) != 0) return false;
  rtnl_tc_set_ifindex(TC_CAST(queue.get()), 1);
  rtnl_tc_set_parent(TC_CAST(queue.get()), TC_H_ROOT);
  if (rtnl_tc_set_kind(TC_CAST(queue.get()), "netem") != 0) return false;
  rtnl_netem_set_limit(queue.get(), 1000);
  return rtnl_qdisc_add(socket.get(), queue.get(), NLM_F_CREATE) == 0;
}

std::string forbidden(const netns::NamespaceRestriction& restriction) {
  return fmt::format("forbidden\n{}\n{}\n{}\n", restriction.cause, restriction.command, restriction.alternative);
}

std::string make_two_hosts(bool netem) {
  try {
    if (netns::enter_sandbox()) return "";  // the process inside the sandbox answers
    const netns::Fabric fabric(topology::named("pair"));
    const int first_process = 2;  // process 1 is the sandbox's init
    return fmt::format("created\n{}\n{}\n", getpid() == first_process ? 1 : 0, !netem ? "" : takes_netem() ? "1" : "0");
  } catch (const netns::NamespacesForbidden& error) {
    return forbidden(error.restriction);
  } catch (const std::exception& error) {
    return forbidden({.cause = error.what(), .command = {}, .alternative = {}});
  }
}

}  // namespace

SandboxTrial try_sandbox(bool netem) {
  const auto start = std::chrono::steady_clock::now();
  const auto answer = run_in_child(kSeconds, [netem] { return make_two_hosts(netem); });
  SandboxTrial trial;
  trial.milliseconds = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count());
  std::istringstream lines(answer.value_or(""));
  std::string outcome;
  std::getline(lines, outcome);
  if (outcome == "created") {
    std::string own_pid_namespace, taken;
    std::getline(lines, own_pid_namespace);
    std::getline(lines, taken);
    trial.own_pid_namespace = own_pid_namespace == "1";
    if (!taken.empty()) trial.netem = taken == "1";
    return trial;
  }
  netns::NamespaceRestriction restriction;
  std::getline(lines, restriction.cause);
  std::getline(lines, restriction.command);
  std::getline(lines, restriction.alternative);
  if (outcome != "forbidden")
    restriction.cause = fmt::format("creating two hosts failed or took more than {:g} s", kSeconds);
  trial.restriction = restriction;
  return trial;
}

}  // namespace plugfest::doctor
