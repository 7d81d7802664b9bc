// MR rules: registration of memory, use of registrations, deregistration.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"
#include "harness/abi/base.h"
#include "harness/control/exported_memory.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

namespace {

// Base of rules about memory at both endpoints of one connection.
class MemoryRule : public MessageRule {
 protected:
  // Sends `from` into `to`, which has the same size, and requires that the message arrives. `what` names the message.
  void send_message(const Connection& connection, const Buffer& from, const Buffer& to, const std::string& what) {
    transfer(sender().rank, connection.send, from, receiver().rank, connection.receive, to, random()(), what);
  }
};

}  // namespace

RULE_ON(
    MemoryRule, MR_01, Must, ApiRange::all(),  //
    .title = "host memory registers at any address",
    .text =
        "regMr accepts whole pages of host memory on send comms and on receive comms. [S]: it accepts memory at any "
        "address and of any length.",
    .source =
        "transport/net.cc: sendProxyConnect and recvProxyConnect register each protocol's buffer; "
        "register/register.cc: ncclRegister rounds the buffers of users to whole pages",
    .why =
        "NCCL registers three buffers per connection, and the buffers of users. If one of the three is refused, the "
        "connection fails.",
    .check =
        "Registers pages, then memory of 1 byte to 614400 bytes at several offsets within a page, on both kinds of "
        "comm, and sends a message with each.",
    .blind = "GPU memory, DMA-BUF, and the limits of a NIC on the number of registrations.",
    .faults = {{"ROCm/rccl#1346", "a registration of zero bytes failed"}}) {
  struct Case {
    Placement placement;
    std::size_t offset, size;
  };
  const auto use = [&](const Connection& connection, const Case& one) {
    Memory from = sender().rank.allocate(one.offset + one.size, one.placement);
    Memory to = receiver().rank.allocate(one.offset + one.size, one.placement);
    Registration send = connection.send.reg(from.sub(one.offset, one.size));
    Registration receive = connection.receive.reg(to.sub(one.offset, one.size));
    send_message(connection, send, receive,
                 fmt::format("a message of {} at page offset {}", counted(one.size, "byte"),
                             (from.address() + one.offset) & 4095));
    send.dereg();
    receive.dereg();
  };
  const Case pages[] = {{Placement::kStart, 0, 4096}, {Placement::kEnd, 0, 524288}};
  const Case others[] = {{Placement::kStart, 1, 4096},
                         {Placement::kEnd, 0, 1},
                         {Placement::kEnd, 0, 4095},
                         {Placement::kStart, 17, 65537},
                         {Placement::kStart, 8, 614400}};
  const Connection connection = connect(sender(), receiver());
  for (const Case& one : pages) use(connection, one);
  probe([&] {
    const Connection probed = connect(sender(), receiver());
    for (const Case& one : others) use(probed, one);
  });
}

RULE_ON(
    MemoryRule, MR_05, Must, ApiRange::all(),  //
    .title = "any part of a registration can be sent and received",
    .text = "A send or receive may use any offset and length inside a registration.",
    .source = "transport/net.cc: slots of one buffer of 4 MiB; the shared pool of p2p buffers",
    .why =
        "NCCL registers a buffer once and sends slices of it. A plugin that ignores the offset transfers other data.",
    .check = "Registers 4 MiB and sends 24 messages between random offsets, of random lengths.",
    .blind = "Offsets beyond 4 MiB.") {
  constexpr std::size_t kSize = 4 << 20;
  Flow flow = make_flow(1, kSize);
  for (int i = 0; i < 24; ++i) {
    const std::size_t length = i == 0 ? kSize : random_between(1, i % 4 == 0 ? 500000 : 9001);
    const std::size_t send_offset = random_between(0, kSize - length),
                      receive_offset = random_between(0, kSize - length);
    send_message(flow.connection(), flow.from().buffer(send_offset, length), flow.to().buffer(receive_offset, length),
                 fmt::format("a message of {} (send offset {}, receive offset {})", counted(length, "byte"),
                             send_offset, receive_offset));
  }
}

RULE_ON(
    MemoryRule, MR_04, Must, ApiRange::all(),  //
    .title = "deregMr removes only its own registration",
    .text =
        "A range may be registered several times, overlapping, on one comm and on several. Removing one registration "
        "leaves the others usable. [S] if maxRecvs is 1, the run has a GPU and the device does not support its memory: "
        "NCCL then registers three buffers for each comm.",
    .source = "transport/net.cc: connections that share a comm register the shared p2p pool; buffers of users",
    .why =
        "Many connections register one shared pool. If one deregistration removes another's, later transfers fail or "
        "corrupt memory.",
    .check =
        "Registers parts of one range four times, overlapping, on one comm, the first half first, and once on another, "
        "and sends with the remaining ones after each deregMr.",
    .blind = "Registrations of ranges that merely share a page and no byte, unless the transport rejects the transfer.",
    .faults = {
        {"aws/aws-ofi-nccl#685", "two small buffers in one page shared a registration that covered only the first"},
        {"aws/aws-ofi-nccl#447", "the cache of registrations moved one entry too few when it grew"}}) {
  constexpr std::size_t kSize = 64 * 1024;
  struct Pair {
    const char* removed;
    Registration send, receive;
  };
  require_or_probe(registers_during_transfers(), [&] {
    const Connection connection = connect(sender(), receiver()), other = connect(sender(), receiver());
    Memory from = sender().rank.allocate(kSize), to = receiver().rank.allocate(kSize);
    auto registered = [&](const char* what, const Connection& on, std::size_t offset, std::size_t size) {
      return Pair{what, on.send.reg(from.sub(offset, size)), on.receive.reg(to.sub(offset, size))};
    };
    std::vector<Pair> pairs = {registered("a shorter registration", connection, 0, kSize / 2),
                               registered("an equal registration", connection, 0, kSize),
                               registered("an overlapping registration", connection, 0, kSize),
                               registered("", connection, 4096, 8192)};
    Pair elsewhere = registered("the same memory on another comm", other, 0, kSize);
    const char* removed = elsewhere.removed;
    elsewhere.send.dereg();
    elsewhere.receive.dereg();
    for (Pair& pair : pairs) {
      send_message(connection, pair.send, pair.receive, fmt::format("a message after deregMr of {}", removed));
      removed = pair.removed;
      pair.send.dereg();
      pair.receive.dereg();
    }
  });
}

RULE_ON(MessageRule, MR_11, Must, ApiRange::all(),  //
        .title = "deregMr succeeds with operations outstanding",
        .text =
            "On an abort NCCL deregisters memory that posted operations still use, then closes the comm. Both calls "
            "succeed.",
        .source = "transport/net.cc: recvProxyFree deregisters first",
        .why =
            "On an abort NCCL first deregisters the memory and then closes the comm, without completing the posted "
            "operations. An error from deregMr stops the clean-up.",
        .check = "Posts three receives, deregisters their memory and closes both comms.",
        .blind = "Sends that are outstanding; CL-03 checks them.",
        .faults = {{"aws/aws-ofi-nccl#868",
                    "closing a comm with requests in flight returned an error, and NCCL leaked its memory"}}) {
  constexpr std::size_t kReceives = 3;
  Flow flow = make_flow(kReceives, 4096);
  flow.exchange(0);
  for (std::size_t i = 0; i < kReceives; ++i) flow.receive(i);
  traffic().post_receives();
  Registered to = flow.to(), from = flow.from();
  to.registration.dereg();
  from.registration.dereg();
  RecvComm(flow.recv_comm()).close();
  SendComm(flow.send_comm()).close();
}

RULE_ON(
    MessageRule, MR_12, Must, ApiRange::all(),  //
    .title = "memory is not accessed after deregMr",
    .text =
        "After deregMr neither the plugin nor its threads access the memory: NCCL frees it before it closes the comm.",
    .source = "transport/net.cc: recvProxyFree, sendProxyFree",
    .why =
        "NCCL frees the memory right after deregMr. A later write of the NIC or of a thread corrupts the next object "
        "at this address.",
    .check = "Deregisters the memory of posted receives, forbids access to it, lets the peer send, and closes.",
    .blind = "Accesses of a hardware NIC, which page protection does not stop.") {
  constexpr std::size_t kReceives = 2, kSize = 64 * 1024;
  constexpr std::uint8_t kNext = 0x3c;
  const auto abort_receives = [&](bool forbidden) {
    Traffic traffic(stall_limit());
    const auto connect_flow = [&](std::size_t slots) {
      const Endpoint from = sender(), to = receiver();
      return Flow(traffic, random(), from, to, connect(from, to), slots, kSize);
    };
    Flow flow = connect_flow(kReceives);
    const RegisteredConnection other = connect_another_communicator(sender(), receiver(), kSize);
    flow.exchange(0);
    for (std::size_t i = 0; i < kReceives; ++i) flow.receive(i);
    traffic.post_receives();
    traffic.abandon(flow.recv_comm());
    Registered to = flow.to(), from = flow.from();
    to.registration.dereg();
    if (forbidden)
      to.memory.forbid();
    else
      flow.receiver().set(to.memory, kNext);
    // The peer sends afterwards. Any result is allowed as long as the memory is not accessed.
    Trial late = Trial::send(flow.send_comm(), flow.source(0));
    drive({&late}, 200);
    RecvComm(flow.recv_comm()).close();
    from.registration.dereg();
    if (forbidden) from.memory.forbid();
    SendComm(flow.send_comm()).close();
    try {
      transfer(flow.sender(), other.send, other.from.buffer(), flow.receiver(), other.receive, other.to.buffer(),
               random()(), "a message");
    } catch (const Deviation& failure) {
      // NCCL often aborts all communicators of a process.
      should(false, fmt::format("a message of another communicator after a close with receives in flight: {}",
                                failure.what()));
    }
    if (forbidden) return;
    const Check later = flow.receiver().check_set(to.memory, kNext);
    expect(later.same, fmt::format("rank {}: memory was written after deregMr, expected no change: {}",
                                   flow.receiver().name(), later.difference));
  };
  // Once with memory on which any access ends the process, and once with memory whose changes are visible, including
  // those that a NIC makes while other comms are in use. New ranks, because a plugin may give up what comms share.
  for (const bool forbidden : {true, false}) on_new_ranks([&] { abort_receives(forbidden); });
}

RULE_ON(
    MemoryRule, MR_13, Must, ApiRange::all(),  //
    .title = "a registration after mmap covers the new pages",
    .text = "After munmap and mmap at the same address, a new registration covers the new pages.",
    .source = "allocators reuse addresses; aws-ofi-nccl's registration cache",
    .why =
        "Allocators return the same address for new pages. A cache that compares only addresses then sends the old "
        "pages.",
    .check =
        "Registers, transfers, deregisters, unmaps and maps the same addresses three times, and compares the contents.",
    .blind = "A cache that keeps registrations beyond the comm.",
    .faults = {{"aws/aws-ofi-nccl#447", "a cache of registrations by address was added, with bugs of its own"}}) {
  constexpr std::size_t kSize = 256 * 1024;
  const Connection connection = connect(sender(), receiver());
  Memory from = sender().rank.allocate(kSize), to = receiver().rank.allocate(kSize);
  for (int round = 0; round < 3; ++round) {
    Registration send = connection.send.reg(from), receive = connection.receive.reg(to);
    send_message(connection, send, receive, fmt::format("a message after {} munmap and mmap of its memory", round));
    send.dereg();
    receive.dereg();
    for (Memory* memory : {&from, &to}) {
      memory->unmap();
      memory->map_again();
    }
  }
}

RULE_ON(
    MessageRule, MR_14, Must, ApiRange::all(),  //
    .title = "registration is safe during transfers on the same comm",
    .text =
        "One thread calls regMr and deregMr while another sends, receives and tests on the same comm. [S] if "
        "maxRecvs is 1, the run has a GPU and the device does not support its memory: NCCL then registers before it "
        "transfers.",
    .source =
        "transport/net.cc: the service thread registers user buffers, and buffers of connections that share the "
        "comm; aws-ofi-nccl #143",
    .why =
        "NCCL's service thread registers user buffers while the progress thread transfers on the same comm. A race "
        "between the two corrupts messages or crashes the process.",
    .check = "Registers and deregisters 200 times at both endpoints while both progress threads stream messages.",
    .blind = "Races too short to occur in a few thousand messages.",
    .faults = {{"aws/aws-ofi-nccl#143", "test, closeRecv and registration raced with each other"},
               {"NVIDIA/nccl#1663", "a thread checker reported registration and progress"}}) {
  require_or_probe(registers_during_transfers(), [&] {
    const Connection connection = connect(sender(), receiver());
    Memory at_sender = sender().rank.allocate(1 << 20), at_receiver = receiver().rank.allocate(1 << 20);
    std::size_t registrations = 0;
    during_streams(connection, random(), 200, [&] {
      const std::size_t offset = (registrations++ % 16) * 65536;
      Registration send = connection.send.reg(at_sender.sub(offset, 65536));
      Registration receive = connection.receive.reg(at_receiver.sub(offset, 65536));
      send.dereg();
      receive.dereg();
    });
  });
}

RULE_ON(MemoryRule, MR_17, Must, ApiRange::from(6),  //
        .title = "a DMA-BUF registers, and its descriptor may be closed",
        .text =
            "If ptrSupport has NCCL_PTR_DMABUF, regMrDmaBuf registers the memory of a DMA-BUF, and does not use the "
            "descriptor after it has returned.",
        .source = "transport/net.cc: sendProxyConnect closes it",
        .why = "NCCL closes the descriptor at once. A later use of its number reaches another file.",
        .check =
            "Registers memory with its descriptor on both comms of a connection, gives the number of the descriptor to "
            "another file, and sends a short and a long message from one to the other. The descriptor refers to a "
            "DMA-BUF if /dev/udmabuf exists, and otherwise to a memory file, which plugfest's NIC accepts. The rule is "
            "skipped if regMrDmaBuf refuses it.",
        .blind = "GPU memory, and offsets other than 0.") {
  constexpr std::size_t kSize = 1 << 18, kShort = 1000;
  on_new_ranks([&] {
    Endpoint from = sender(), to = receiver();
    if (!from.rank.has_function("regMrDmaBuf")) not_applicable("regMrDmaBuf is NULL");
    if ((from.rank.properties(from.device).ptr_support & abi::kPointerDmaBuf) == 0)
      not_applicable("ptrSupport does not have NCCL_PTR_DMABUF");
    const Connection connection = connect(from, to);
    const auto registered = [&](const Rank& rank, const Comm& comm) {
      const control::ExportedMemory exported = control::allocate_exported(rank, kSize);
      const PointerOutcome outcome = comm.try_reg_dma_buf(exported.memory.sub(0, kSize), exported.descriptor);
      // A plugin may ask a GPU's driver about the memory, and a NIC may refuse memory files.
      if (!outcome.ok())
        skip(fmt::format("{} returned {}: the plugin may accept DMA-BUFs of GPUs only", outcome.call,
                         result_name(outcome.code)));
      control::replace_descriptor(rank, exported.descriptor);
      return comm.registration(exported.memory.sub(0, kSize), outcome.value);
    };
    Registration send = registered(from.rank, connection.send), receive = registered(to.rank, connection.receive);
    for (const std::size_t size : {kShort, kSize})
      send_message(connection, send.buffer(0, size), receive.buffer(0, size),
                   fmt::format("a message of {} in memory of a DMA-BUF", counted(size, "byte")));
    send.dereg();
    receive.dereg();
  });
}

}  // namespace plugfest::conformance
