// MR: registered memory, wherever it lies, whole and in parts.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::End;
using control::Placement;

RULE(MR_01, Must, ApiRange::all(),  //
     .title = "host memory registers, page-aligned or not",
     .text = "regMr of host memory works on send comms and on receive comms, at any address and of any length.",
     .source = "transport/net.cc: sendProxyConnect, recvProxyConnect register each protocol's buffer") {
  End sender = near(), receiver = far();
  Connection connection = control::connect(sender, receiver);
  struct Case {
    Placement placement;
    std::size_t offset, size;
  };
  const Case cases[] = {{Placement::kStart, 0, 4096},  {Placement::kStart, 1, 4096},   {Placement::kEnd, 0, 1},
                        {Placement::kEnd, 0, 4095},    {Placement::kStart, 17, 65537}, {Placement::kEnd, 0, 524288},
                        {Placement::kStart, 8, 614400}};
  for (const Case& one : cases) {
    control::Memory from = sender.rank.allocate(one.offset + one.size, one.placement);
    control::Memory to = receiver.rank.allocate(one.offset + one.size, one.placement);
    control::Registration send_mr = connection.send.reg(from.sub(one.offset, one.size));
    control::Registration receive_mr = connection.receive.reg(to.sub(one.offset, one.size));
    const std::uint64_t seed = random()();
    sender.rank.fill(send_mr.slice(), seed);
    control::Receive receive(connection.receive, receive_mr.buffer());
    control::Send send(connection.send, send_mr.buffer());
    control::finish({&receive, &send});
    require_content(
        receiver.rank, receive_mr.slice(), seed,
        fmt::format("a message of {} bytes at page offset {}", one.size, (from.address() + one.offset) & 4095));
    send_mr.dereg();
    receive_mr.dereg();
  }
}

RULE(MR_05, Must, ApiRange::all(),  //
     .title = "any part of a registration can be sent and received",
     .text = "A registration is used at any offset and of any length inside it.",
     .source = "transport/net.cc: slots of one buffer of 4 MiB; the shared pool of p2p buffers") {
  End sender = near(), receiver = far();
  Connection connection = control::connect(sender, receiver);
  constexpr std::size_t kSize = 4 << 20;
  Registered from = allocate(sender.rank, connection.send, kSize);
  Registered to = allocate(receiver.rank, connection.receive, kSize);
  for (int i = 0; i < 24; ++i) {
    const std::size_t length = i == 0 ? kSize : random_between(1, i % 4 == 0 ? 500000 : 9001);
    const std::size_t send_offset = random_between(0, kSize - length);
    const std::size_t receive_offset = random_between(0, kSize - length);
    const std::uint64_t seed = random()();
    sender.rank.fill(from.slice(send_offset, length), seed);
    control::Receive receive(connection.receive, to.buffer(receive_offset, length));
    control::Send send(connection.send, from.buffer(send_offset, length));
    control::finish({&receive, &send});
    require_content(receiver.rank, to.slice(receive_offset, length), seed,
                    fmt::format("{} bytes from offset {} to offset {}", length, send_offset, receive_offset));
  }
}

}  // namespace plugfest::conformance
