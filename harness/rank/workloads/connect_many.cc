// Establishes many connections in one loop on one thread (CN-09).
#include <fmt/format.h>

#include <numeric>

#include "harness/rank/attempt.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

struct Pending {
  std::unique_ptr<Attempt> attempt;
  std::string name;
  std::uint64_t* comm = nullptr;
  // Index into handles, or into listeners.
  std::size_t index = 0;
  bool connects = false;
};

}  // namespace

ConnectManyAnswer execute(const ConnectMany& request) {
  ConnectManyAnswer answer;
  answer.start_ns = now_ns();
  answer.send_comms.assign(request.handles.size(), 0);
  answer.recv_comms.assign(request.listeners.size(), 0);

  std::vector<std::uint32_t> order = request.order;
  if (order.empty()) {
    order.resize(request.handles.size() + request.listeners.size());
    std::iota(order.begin(), order.end(), 0u);
  }
  std::vector<Pending> pending;
  for (const std::uint32_t place : order) {
    Pending& each = pending.emplace_back();
    each.connects = place < request.handles.size();
    each.index = each.connects ? place : place - request.handles.size();
    each.name = fmt::format("{} {}", each.connects ? "connect" : "accept", each.index);
    each.comm = each.connects ? &answer.send_comms.at(each.index) : &answer.recv_comms.at(each.index);
    each.attempt = each.connects ? std::make_unique<Attempt>(request.handles[each.index], 0)
                                 : std::make_unique<Attempt>(std::span<const std::byte>{}, 0);
  }

  StallTimer stall(request.timeout_ns);
  while (!pending.empty()) {
    const std::size_t before = pending.size();
    for (std::size_t i = 0; i < pending.size();) {
      Pending& each = pending[i];
      const PointerAnswer call = each.connects
                                     ? each.attempt->connect(request.context, request.devices.at(each.index), true)
                                     : each.attempt->accept(request.listeners[each.index], true);
      ++answer.calls;
      if (call.code != 0) answer.broken = fmt::format("{} returned {}", each.name, code_text(call.code));
      if (!call.damage.empty()) answer.broken = fmt::format("{} {}", each.name, call.damage);
      if (!answer.broken.empty()) {
        answer.end_ns = now_ns();
        return answer;
      }
      *each.comm = call.value;
      if (call.value == 0)
        ++i;
      else
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (pending.size() < before) {
      stall.restart();
    } else if (stall.expired()) {
      answer.stalled = true;
      answer.broken = fmt::format("{} never completed ({} of {} connects and accepts left)", pending.front().name,
                                  pending.size(), order.size());
      break;
    }
  }
  answer.end_ns = now_ns();
  return answer;
}

}  // namespace plugfest::rank
