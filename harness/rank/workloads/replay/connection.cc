#include "harness/rank/workloads/replay/connection.h"

#include <fmt/format.h>

#include "harness/rank/memory.h"

namespace plugfest::rank {

ReplayEnd::ReplayEnd(const ReplayConnection& connection)
    : tail(connection.step),
      head(static_cast<std::int64_t>(connection.step)),
      step(connection.step),
      gpu_step(connection.step),
      messages(connection.messages),
      plan_(&connection) {
  if (connection.buffers.size() != 3) throw std::invalid_argument("a connection has a buffer for each of 3 protocols");
  // The proxy gives the GPU one credit for each slot of the pool.
  if (connection.shared && connection.sends) head -= static_cast<std::int64_t>(kSteps);
}

std::byte* ReplayEnd::slot(ProxyProtocol protocol, std::uint64_t step) const {
  const std::uint64_t offset = pooled(protocol) ? fifo[step % kSteps].offset : step % kSteps * step_size(protocol);
  return static_cast<std::byte*>(pointer(buffer(protocol).address)) + offset;
}

std::string ReplayEnd::text() const { return fmt::format("channel {}, tag {}", plan_->channel, plan_->tag); }

}  // namespace plugfest::rank
