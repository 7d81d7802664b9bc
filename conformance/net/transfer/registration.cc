// MR rules: registration of memory, use of registrations, deregistration.
#include <fmt/format.h>

#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::Placement;

RULE(MR_01, Must, ApiRange::all(),  //
     .title = "host memory registers at any address",
     .text = "regMr accepts host memory on send comms and on receive comms, at any address and of any length.",
     .source = "transport/net.cc: sendProxyConnect and recvProxyConnect register each protocol's buffer") {
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
    require_content(receiver.rank, receive_mr.slice(), seed,
                    fmt::format("a message of {} at page offset {}", counted(one.size, "byte"),
                                (from.address() + one.offset) & 4095));
    send_mr.dereg();
    receive_mr.dereg();
  }
}

RULE(MR_05, Must, ApiRange::all(),  //
     .title = "any part of a registration can be sent and received",
     .text = "A send or receive may use any offset and length inside a registration.",
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
                    fmt::format("a message of {} (send offset {}, receive offset {})", counted(length, "byte"),
                                send_offset, receive_offset));
  }
}

namespace {

/// Base of rules about memory at both endpoints of one connection.
class MemoryRule : public RuleBody {
 protected:
  void connect_endpoints() {
    sender_ = near_endpoint();
    receiver_ = far_endpoint();
    connection_ = control::connect(*sender_, *receiver_);
  }
  /// Sends `from` into `to`, which has the same size, and requires that it arrives. `what` names the message.
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
        .title = "deregMr removes only its own registration",
        .text =
            "A range may be registered several times, overlapping, on one comm and on several. Removing one "
            "registration leaves the others usable.",
        .source = "transport/net.cc: each connection registers the shared p2p pool") {
  connect_endpoints();
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
  transfer(first_send, first_receive, "a message after deregMr of the same memory on another comm");
  first_send.dereg();
  first_receive.dereg();
  transfer(second_send, second_receive, "a message after deregMr of an equal registration");
  second_send.dereg();
  second_receive.dereg();
  transfer(part_send, part_receive, "a message after deregMr of an overlapping registration");
}

RULE_ON(MemoryRule, MR_11, Must, ApiRange::all(),  //
        .title = "deregMr succeeds with operations outstanding",
        .text =
            "On an abort NCCL deregisters memory that posted operations still use, then closes the comm. Both calls "
            "succeed.",
        .source = "transport/net.cc: recvProxyFree deregisters first") {
  connect_endpoints();
  deliver(*sender_, *receiver_, *connection_, {.size = 1000, .seed = random()()});
  constexpr std::size_t kReceives = 3, kSize = 4096;
  Registered to = allocate(receiver_->rank, connection_->receive, kReceives * kSize);
  post_ahead(connection_->receive, to, kSize, kReceives);
  to.registration.dereg();
  connection_->receive.close();
  connection_->send.close();
}

RULE_ON(
    MemoryRule, MR_12, Must, ApiRange::all(),  //
    .title = "memory is not accessed after deregMr",
    .text =
        "After deregMr neither the plugin nor its threads access the memory: NCCL frees it before it closes the comm.",
    .source = "transport/net.cc: recvProxyFree, sendProxyFree") {
  connect_endpoints();
  deliver(*sender_, *receiver_, *connection_, {.size = 1000, .seed = random()()});
  constexpr std::size_t kReceives = 2, kSize = 64 * 1024;
  Registered to = allocate(receiver_->rank, connection_->receive, kReceives * kSize);
  Registered from = allocate(sender_->rank, connection_->send, kSize);
  post_ahead(connection_->receive, to, kSize, kReceives);
  to.registration.dereg();
  to.memory.forbid();  // from here on any access ends the rule

  // The peer sends afterwards. Any result is allowed as long as the memory is not accessed.
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
  receiver_->rank.devices();  // requires that the rank is alive

  from.registration.dereg();
  from.memory.forbid();
  connection_->send.close();
  sender_->rank.devices();
}

RULE_ON(MemoryRule, MR_13, Must, ApiRange::all(),  //
        .title = "a registration after mmap covers the new pages",
        .text = "After munmap and mmap at the same address, a new registration covers the new pages.",
        .source = "allocators reuse addresses; aws-ofi-nccl's registration cache") {
  connect_endpoints();
  constexpr std::size_t kSize = 256 * 1024;
  control::Memory from = sender_->rank.allocate(kSize), to = receiver_->rank.allocate(kSize);
  for (int round = 0; round < 3; ++round) {
    control::Registration send = connection_->send.reg(from);
    control::Registration receive = connection_->receive.reg(to);
    transfer(send, receive, fmt::format("a message after {} munmap and mmap of its memory", round));
    send.dereg();
    receive.dereg();
    from.unmap();
    to.unmap();
    from.map_again();
    to.map_again();
  }
}

RULE_ON(MemoryRule, MR_14, Must, ApiRange::all(),  //
        .title = "registration is safe during transfers on the same comm",
        .text = "One thread calls regMr and deregMr while another sends, receives and tests on the same comm.",
        .source = "transport/net.cc: the service thread registers user buffers; aws-ofi-nccl #143") {
  connect_endpoints();
  control::Memory at_sender = sender_->rank.allocate(1 << 20), at_receiver = receiver_->rank.allocate(1 << 20);
  std::size_t registrations = 0;
  during_streams(*connection_, random(), 200, [&] {
    const std::size_t offset = (registrations++ % 16) * 65536;
    control::Registration send = connection_->send.reg(at_sender.sub(offset, 65536));
    control::Registration receive = connection_->receive.reg(at_receiver.sub(offset, 65536));
    send.dereg();
    receive.dereg();
  });
}

}  // namespace plugfest::conformance
