#include "harness/rank/workloads/replay/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fabric/system/number.h"

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

namespace {

// LL: 4 bytes of data, 4 of flag. LL128: 120 bytes of data, 8 of flag.
struct Format {
  std::size_t data;
  std::size_t flag;
  // Lines of which messages are a multiple.
  std::size_t unit;
};

constexpr Format format(ProxyProtocol protocol) {
  return protocol == ProxyProtocol::kLl ? Format{4, 4, 2} : Format{120, 8, 1};
}

std::size_t lines(const Format& format, std::size_t payload) {
  return divide_up(payload, format.data * format.unit) * format.unit;
}

}  // namespace

std::size_t wire_size(ProxyProtocol protocol, std::size_t payload) {
  if (protocol == ProxyProtocol::kSimple) return payload;
  const Format form = format(protocol);
  return lines(form, payload) * (form.data + form.flag);
}

void write_lines(ProxyProtocol protocol, std::byte* slot, const std::byte* payload, std::size_t size,
                 std::uint64_t step) {
  const Format form = format(protocol);
  const std::uint64_t flag = step + 1;
  for (std::size_t line = 0; line < lines(form, size); ++line) {
    std::byte* at = slot + line * (form.data + form.flag);
    const std::size_t offset = line * form.data;
    const std::size_t present = std::min(form.data, size - std::min(size, offset));
    std::memcpy(at, payload + offset, present);
    std::memset(at + present, 0, form.data - present);
    std::memcpy(at + form.data, &flag, form.flag);
  }
}

bool lines_arrived(ProxyProtocol protocol, const std::byte* slot, std::size_t size, std::uint64_t step) {
  const Format form = format(protocol);
  const std::uint64_t flag = step + 1;
  for (std::size_t line = 0; line < lines(form, size); ++line)
    if (std::memcmp(slot + line * (form.data + form.flag) + form.data, &flag, form.flag) != 0) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

void read_lines(ProxyProtocol protocol, const std::byte* slot, std::byte* payload, std::size_t size) {
  const Format form = format(protocol);
  for (std::size_t offset = 0; offset < size; offset += form.data) {
    std::memcpy(payload + offset, slot + offset / form.data * (form.data + form.flag),
                std::min(form.data, size - offset));
  }
}

}  // namespace plugfest::rank
