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
    Pending& attempted = pending.emplace_back();
    attempted.connects = place < request.handles.size();
    attempted.index = attempted.connects ? place : place - request.handles.size();
    attempted.name = fmt::format("{} {}", attempted.connects ? "connect" : "accept", attempted.index);
    attempted.comm =
        attempted.connects ? &answer.send_comms.at(attempted.index) : &answer.recv_comms.at(attempted.index);
    attempted.attempt = attempted.connects ? std::make_unique<Attempt>(request.handles[attempted.index], 0)
                                           : std::make_unique<Attempt>(std::span<const std::byte>{}, 0);
  }

  StallTimer stall(request.timeout_ns);
  while (!pending.empty()) {
    const std::size_t before = pending.size();
    for (std::size_t i = 0; i < pending.size();) {
      Pending& attempted = pending[i];
      const PointerAnswer call =
          attempted.connects ? attempted.attempt->connect(request.context, request.devices.at(attempted.index), true)
                             : attempted.attempt->accept(request.listeners[attempted.index], true);
      ++answer.calls;
      if (call.code != 0) answer.broken = fmt::format("{} returned {}", attempted.name, code_text(call.code));
      if (!call.damage.empty()) answer.broken = fmt::format("{} {}", attempted.name, call.damage);
      if (!answer.broken.empty()) {
        answer.end_ns = now_ns();
        return answer;
      }
      *attempted.comm = call.value;
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
