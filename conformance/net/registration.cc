// MR: registered memory, wherever it lies, whole and in parts.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/program.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Placement;

RULE(MR_01, Must, ApiRange::all(),  //
     .title = "host memory registers, page-aligned or not",
     .text = "regMr of host memory works on send comms and on receive comms, at any address and of any length.",
     .source = "transport/net.cc: sendProxyConnect, recvProxyConnect register each protocol's buffer") {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
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
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
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

namespace {

/// A rule about memory at both ends of one connection.
class MemoryRule : public RuleBody {
 protected:
  void connect_ends() {
    sender_ = near_endpoint();
    receiver_ = far_endpoint();
    connection_ = control::connect(*sender_, *receiver_);
  }
  /// Sends the whole of one slice into the whole of another.
  void transfer(const control::Buffer& from, const control::Buffer& to, const std::string& what) {
    const std::uint64_t seed = random()();
    sender_->rank.fill(from.slice, seed);
    control::Receive receive(connection_->receive, to);
    control::Send send(connection_->send, from);
    control::finish({&receive, &send});
    require_content(receiver_->rank, to.slice, seed, what);
  }

  std::optional<Endpoint> sender_, receiver_;
  std::optional<Connection> connection_;
};

}  // namespace

RULE_ON(MemoryRule, MR_04, Must, ApiRange::all(),  //
        .title = "each deregMr drops its own registration only",
        .text =
            "A range registers several times, overlapping, on one comm and on several; dropping one leaves the others "
            "in use.",
        .source = "transport/net.cc: the shared p2p pool is registered by each connection") {
  connect_ends();
  constexpr std::size_t kSize = 64 * 1024;
  control::Memory from = sender_->rank.allocate(kSize), to = receiver_->rank.allocate(kSize);
  const control::SendComm& send = connection_->send;
  const control::RecvComm& receive = connection_->receive;
  control::Registration first_send = send.reg(from), second_send = send.reg(from),
                        part_send = send.reg(from.sub(4096, 8192));
  control::Registration first_receive = receive.reg(to), second_receive = receive.reg(to),
                        part_receive = receive.reg(to.sub(4096, 8192));
  Connection other = control::connect(*sender_, *receiver_);
  control::Registration other_send = other.send.reg(from);
  control::Registration other_receive = other.receive.reg(to);

  other_send.dereg();
  other_receive.dereg();
  transfer(first_send, first_receive, "a message after the registration on another comm was dropped");
  first_send.dereg();
  first_receive.dereg();
  transfer(second_send, second_receive, "a message after an equal registration was dropped");
  second_send.dereg();
  second_receive.dereg();
  transfer(part_send, part_receive, "a message after an overlapping registration was dropped");
}

RULE_ON(MemoryRule, MR_11, Must, ApiRange::all(),  //
        .title = "deregMr succeeds with operations outstanding",
        .text =
            "On an abort NCCL drops registrations of memory that posted operations still name, then closes; both "
            "succeed.",
        .source = "transport/net.cc: recvProxyFree deregisters first") {
  connect_ends();
  Registered to = allocate(receiver_->rank, connection_->receive, 3 * 4096);
  for (std::size_t i = 0; i < 3; ++i) {
    control::Receive receive(connection_->receive, to.buffer(i * 4096, 4096));
    expect(receive.post(), fmt::format("rank {}: receive {} was deferred", receiver_->rank.name(), i));
  }
  to.registration.dereg();
  connection_->receive.close();
  connection_->send.close();
}

RULE_ON(MemoryRule, MR_12, Must, ApiRange::all(),  //
        .title = "memory is left alone once deregMr has returned",
        .text =
            "After deregMr neither the plugin nor its threads touch the memory: NCCL frees it before it closes the "
            "comm.",
        .source = "transport/net.cc: recvProxyFree, sendProxyFree") {
  connect_ends();
  constexpr std::size_t kSize = 64 * 1024;
  Registered to = allocate(receiver_->rank, connection_->receive, 2 * kSize);
  Registered from = allocate(sender_->rank, connection_->send, 2 * kSize);
  for (std::size_t i = 0; i < 2; ++i) {
    control::Receive receive(connection_->receive, to.buffer(i * kSize, kSize));
    expect(receive.post(), fmt::format("rank {}: receive {} was deferred", receiver_->rank.name(), i));
  }
  to.registration.dereg();
  to.memory.forbid();  // any access from here on ends the rank

  // The peer, which knows nothing of it, sends late. What becomes of that is open, but for the memory.
  for (int attempt = 0; attempt < 200; ++attempt) {
    const control::PointerOutcome sent = connection_->send.try_isend(from.buffer(0, kSize));
    if (!sent.ok()) break;
    if (sent.value == 0) continue;
    control::Request request = connection_->send.request(sent.value);
    for (int test = 0; test < 200; ++test) {
      const control::TestOutcome outcome = request.try_test();
      if (!outcome.ok() || outcome.done == 1) break;
    }
    break;
  }
  connection_->receive.close();
  receiver_->rank.devices();  // it still answers

  from.registration.dereg();
  from.memory.forbid();
  connection_->send.close();
  sender_->rank.devices();
}

RULE_ON(MemoryRule, MR_13, Must, ApiRange::all(),  //
        .title = "memory mapped anew is registered anew",
        .text = "After munmap and mmap at the same address a new registration means the new pages.",
        .source = "allocators recycle addresses; aws-ofi-nccl's registration cache") {
  connect_ends();
  constexpr std::size_t kSize = 256 * 1024;
  control::Memory from = sender_->rank.allocate(kSize), to = receiver_->rank.allocate(kSize);
  for (int round = 0; round < 3; ++round) {
    control::Registration send = connection_->send.reg(from);
    control::Registration receive = connection_->receive.reg(to);
    transfer(send, receive, fmt::format("a message after {} new mappings of its memory", round));
    send.dereg();
    receive.dereg();
    from.unmap();
    to.unmap();
    from.map_again();
    to.map_again();
  }
}

RULE_ON(MemoryRule, MR_14, Must, ApiRange::all(),  //
        .title = "registration runs beside transfers on the same comm",
        .text = "regMr and deregMr from one thread while another sends, receives and tests on the same comm.",
        .source = "transport/net.cc: user buffers are registered by the service thread; aws-ofi-nccl #143") {
  connect_ends();
  control::Memory at_sender = sender_->rank.allocate(1 << 20), at_receiver = receiver_->rank.allocate(1 << 20);
  // Streams begin anew until enough was registered beside them.
  for (std::size_t registrations = 0; registrations < 200;) {
    const control::StreamPlan plan{.count = 1500, .seed = random()(), .sizes = {64, 4096, 20000}};
    auto sending = control::start_sending(connection_->send, plan);
    auto receiving = control::start_receiving(connection_->receive, plan);
    do {
      const std::size_t offset = (registrations % 16) * 65536;
      control::Registration send = connection_->send.reg(at_sender.sub(offset, 65536));
      control::Registration receive = connection_->receive.reg(at_receiver.sub(offset, 65536));
      send.dereg();
      receive.dereg();
      ++registrations;
    } while (!sending.ready() || !receiving.ready());
    control::require_clean(sending.get());
    control::require_clean(receiving.get());
  }
}

}  // namespace plugfest::conformance
