// One message from end to end.
#include "conformance/net/message.h"

#include <fmt/format.h>

#include "conformance/rules/findings.h"

namespace plugfest::conformance {

Registered allocate(control::Rank rank, const control::Comm& comm, std::size_t size, control::Placement placement) {
  control::Memory memory = rank.allocate(size, placement);
  control::Registration registration = comm.reg(memory);
  return {std::move(memory), std::move(registration)};
}

void deliver(const control::Endpoint& sender, const control::SendComm& send, const control::Endpoint& receiver,
             const control::RecvComm& receive, const Message& message) {
  const std::size_t posted_size = message.posted_size.value_or(message.size);
  // NCCL never registers nothing, so a message of no bytes lies in one byte.
  Registered from = allocate(sender.rank, send, std::max<std::size_t>(message.size, 1));
  Registered to = allocate(receiver.rank, receive, std::max<std::size_t>(posted_size, 1));
  control::Rank(sender.rank).fill(from.slice(0, message.size), message.seed);

  control::Receive receiving(receive, to.buffer(0, posted_size), message.tag);
  control::Send sending(send, from.buffer(0, message.size), message.tag);
  control::finish({&receiving, &sending});

  const std::string what = fmt::format("a message of {} bytes, tag {}", message.size, message.tag);
  require_size(receiver.rank.name(), receiving.size(), message.size, what);
  require_content(receiver.rank, to.slice(0, message.size), message.seed, what);
  from.registration.dereg();
  to.registration.dereg();
  from.memory.free();
  to.memory.free();
}

void require_content(control::Rank rank, const control::Slice& slice, std::uint64_t seed, const std::string& what) {
  const control::Check check = rank.check(slice, seed);
  if (!check) throw Broken(fmt::format("rank {}: {} arrived changed: {}", rank.name(), what, check.difference));
}

void require_size(const std::string& rank, int reported, std::size_t sent, const std::string& what) {
  if (static_cast<std::int64_t>(reported) == static_cast<std::int64_t>(sent)) return;
  throw Broken(fmt::format("rank {}: test reported {} bytes for {}, expected {}", rank, reported, what, sent));
}

}  // namespace plugfest::conformance
