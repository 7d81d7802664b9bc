// Sets up many connections in one loop on one thread (CN-09).
#include <fmt/format.h>

#include <atomic>
#include <numeric>

#include "harness/rank/calls/attempt.h"
#include "harness/rank/calls/dispatch.h"
#include "harness/rank/workloads/stall_timer.h"

namespace plugfest::rank {

namespace {

/// One connect or accept of the loop.
struct Turn {
  std::unique_ptr<Attempt> attempt;
  std::string name;
  std::uint64_t* comm = nullptr;
  /// Index into handles, or of listeners.
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
  std::vector<Turn> turns;
  for (const std::uint32_t place : order) {
    Turn& turn = turns.emplace_back();
    turn.connects = place < request.handles.size();
    turn.index = turn.connects ? place : place - request.handles.size();
    turn.name = fmt::format("{} {}", turn.connects ? "connect" : "accept", turn.index);
    turn.comm = turn.connects ? &answer.send_comms.at(turn.index) : &answer.recv_comms.at(turn.index);
    turn.attempt = turn.connects ? std::make_unique<Attempt>(request.handles[turn.index], 0)
                                 : std::make_unique<Attempt>(std::span<const std::byte>{}, 0);
  }

  StallTimer stall(request.timeout_ns);
  while (!turns.empty()) {
    const std::size_t before = turns.size();
    for (std::size_t i = 0; i < turns.size();) {
      Turn& turn = turns[i];
      const PointerAnswer call = turn.connects
                                     ? turn.attempt->connect({0, request.device, request.context, {}, 0, true})
                                     : turn.attempt->accept({0, request.listeners[turn.index], 0, true});
      ++answer.calls;
      if (call.code != 0) answer.broken = fmt::format("{} returned {}", turn.name, call.code);
      if (!call.damage.empty()) answer.broken = fmt::format("{} {}", turn.name, call.damage);
      if (!answer.broken.empty()) {
        answer.end_ns = now_ns();
        return answer;
      }
      *turn.comm = call.value;
      if (call.value == 0) {
        ++i;
      } else {
        turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (turns.size() < before) {
      stall.restart();
    } else if (stall.expired()) {
      answer.stalled = true;
      answer.broken = fmt::format("{} never completed ({} of {} connects and accepts left)", turns.front().name,
                                  turns.size(), order.size());
      break;
    }
  }
  answer.end_ns = now_ns();
  return answer;
}

}  // namespace plugfest::rank
