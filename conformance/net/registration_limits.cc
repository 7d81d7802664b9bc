// MR rules: sizes, numbers and invalid arguments of registrations.
#include <fmt/format.h>

#include <utility>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

namespace {

constexpr std::size_t kMi = 1024 * 1024;

class LargeRegistrations : public MessageRule {
 protected:
  // Registers `size` bytes at both endpoints and sends the last bytes of the registration.
  void use_end(std::size_t size) {
    constexpr std::size_t kPart = 1000;
    const Connection connection = connect(sender(), receiver());
    Registered from = allocate_lockable(sender().rank, connection.send, size),
               to = allocate_lockable(receiver().rank, connection.receive, size);
    transfer(sender().rank, connection.send, from.buffer(size - kPart, kPart), receiver().rank, connection.receive,
             to.buffer(size - kPart, kPart), random()(),
             fmt::format("a message at the end of a registration of {}", counted(size, "byte")));
    from.release();
    to.release();
  }
};

}  // namespace

RULE(MR_03, Should, ApiRange::all(),  //
     .title = "regMr writes *mhandle", .text = "regMr stores a handle or NULL in *mhandle whenever it returns Success.",
     .source = "transport/net.cc: sendProxyRegBuffer passes an uninitialized variable",
     .why = "NCCL's variable is uninitialized. If regMr does not write it, later calls get a random handle.",
     .check =
         "Registers a page on both kinds of comm with *mhandle preset, looks whether it was written, and removes the "
         "registration with the stored handle.") {
  const Connection connection = connect(near_endpoint(), far_endpoint());
  auto require_stored = [&](const Comm& comm, Rank rank) {
    const PointerOutcome outcome = comm.try_reg(rank.allocate(4096));
    require_success(outcome);
    expect(!outcome.untouched,
           fmt::format("{} returned Success and did not write *mhandle, expected a handle or NULL", outcome.call));
    require_success(comm.try_dereg(outcome.value));
  };
  require_stored(connection.send, near_rank());
  require_stored(connection.receive, far_rank());
}

RULE_ON(LargeRegistrations, MR_06, Must, ApiRange::all(),  //
        .title = "memory of every size that NCCL uses can be registered",
        .text =
            "regMr accepts the buffers of NCCL's protocols, which have 512 KiB, 4,915,200 bytes and 4 MiB, and the "
            "shared pool of 64 MiB, if the limit of locked memory allows them. All of their bytes can be sent and "
            "received. [S]: the pool of 512 MiB that NCCL has with 64 channels.",
        .source = "transport/net.cc: buffSizes; the pool has 16 steps x 512 KiB for each channel",
        .why = "A registration that fails during connect ends the communicator.",
        .check =
            "Registers 512 KiB, 4,915,200 bytes, 4, 64 and 512 MiB at both endpoints, and sends the last 1000 bytes of "
            "each.",
        .blind = "Limits on locked memory that the test machine does not have.") {
  for (const std::size_t size : {512 * std::size_t{1024}, std::size_t{4915200}, 4 * kMi, 64 * kMi}) use_end(size);
  probe([&] { use_end(512 * kMi); });
}

RULE_ON(LargeRegistrations, MR_07, Should, ApiRange::from(8),  //
        .title = "a registration may exceed 4 GiB", .text = "The size of a registration is not cut to 32 bits.",
        .source = "net v8 changed regMr's size from int to size_t",
        .why = "User buffers are registered whole, and GPUs have more than 4 GiB.",
        .check = "Registers 4 GiB and 8 KiB at both endpoints and sends the last 1000 bytes.",
        .blind = "Offsets that a plugin cuts only for receives posted with a large size; XF-39 checks them.") {
  use_end(4096 * kMi + 8192);
}

RULE(MR_08, Should, ApiRange::all(),  //
     .title = "a registration of 0 bytes does not crash", .text = "regMr of 0 bytes succeeds or returns an error.",
     .source = "transport/net_ib.cc has an assertion for it; RCCL #1346",
     .why = "A plugin that asserts that the size is not 0 ends the application without a message.",
     .check = "Registers 0 bytes, and removes the registration if there is one.") {
  probe([&] {
    const Connection connection = connect(near_endpoint(), far_endpoint());
    const Memory memory = near_rank().allocate(4096);
    const PointerOutcome outcome = connection.send.try_reg(memory.sub(0, 0));
    if (outcome.ok()) require_success(connection.send.try_dereg(outcome.value));
  });
}

RULE(MR_09, Should, ApiRange::all(),  //
     .title = "unsupported pointer types are refused",
     .text = "regMr returns an error for a type that is not one bit of ptrSupport.",
     .source = "transport/net.cc: NCCL tries a registration and works without it when it fails",
     .why = "If regMr accepts such a type, the plugin transfers memory that it cannot access.",
     .check = "Calls regMr with each type from 0 to 8 that is not one bit of ptrSupport. All must fail.") {
  const Endpoint sender = near_endpoint();
  const Connection connection = connect(sender, far_endpoint());
  const int supported = Rank(sender.rank).properties(sender.device).ptr_support;
  const Memory memory = near_rank().allocate(4096);
  for (int type = 0; type <= 8; ++type) {
    const bool one_bit = type != 0 && (type & (type - 1)) == 0;
    if (one_bit && (type & supported) != 0) continue;
    const PointerOutcome outcome = connection.send.try_reg(memory, type);
    expect(!outcome.ok(), [&] {
      return fmt::format("{} returned Success for type {} with ptrSupport {}, expected an error", outcome.call, type,
                         supported);
    });
  }
}

RULE_ON(
    MessageRule, MR_10, Must, ApiRange::all(),  //
    .title = "a failed registration leaves the comm usable",
    .text =
        "After a regMr that failed, the comm sends and receives as before. [S]: regMr of memory that is not mapped, or "
        "with an unknown type, returns, with or without an error.",
    .source = "transport/net.cc: sendProxyRegBuffer ignores the error and continues without the registration",
    .why =
        "NCCL continues without the registration. If the comm fails too, one user buffer that cannot be registered "
        "ends the communicator.",
    .check =
        "Calls regMr with an unknown type and with memory that is not mapped, on both comms, then exchanges a message.",
    .blind = "Failures for lack of memory.") {
  const auto refuse = [](Flow& flow, bool unmap) {
    const auto fail_on = [unmap](const Comm& comm, Rank rank) {
      Memory memory = rank.allocate(65536);
      const Slice slice = memory;
      constexpr int kUnknownType = 8;
      if (unmap) memory.unmap();
      const auto outcome = unmap ? comm.try_reg(slice) : comm.try_reg(slice, kUnknownType);
      if (outcome.ok()) comm.try_dereg(outcome.value);
    };
    fail_on(flow.send_comm(), flow.sender());
    fail_on(flow.recv_comm(), flow.receiver());
  };
  bool survives = false;
  probe([&] {
    Flow flow = make_flow(1, 3000);
    refuse(flow, false);
    survives = true;
  });
  if (survives) {
    Flow flow = make_flow(1, 3000);
    refuse(flow, false);
    flow.exchange(0);
  }
  probe([&] {
    Flow flow = make_flow(1, 3000);
    refuse(flow, true);
    flow.exchange(0);
  });
}

RULE_ON(MessageRule, MR_15, Must, ApiRange::all(),  //
        .title = "thousands of registrations can be live",
        .text =
            "A comm has many registrations at once. Each can be used and removed alone. regMr may return an error when "
            "at least 64 are live, and then the others still work. [S] if maxRecvs is 1, the run has a GPU and the "
            "device does not support its memory: NCCL then registers three buffers for each comm.",
        .source =
            "transport/net.cc: user buffers stay registered as long as the application wants; a failed one is not used",
        .why = "A plugin that confuses handles corrupts memory.",
        .check =
            "Registers 4,096 parts of 16 KiB on one comm, or as many as regMr accepts, then removes every 31st and "
            "sends from its neighbor, comparing every byte.",
        .faults = {{"aws/aws-ofi-nccl#447", "the cache of registrations moved one entry too few when it grew"}}) {
  constexpr std::size_t kCount = 4096, kSize = 16384;
  require_or_probe(registers_during_transfers(), [&] {
    Flow flow = make_flow(1, kSize);
    const Memory memory = flow.sender().allocate(kCount * kSize);
    std::vector<Registration> all;
    bool refused = false;
    const auto part = [&](std::size_t i) { return memory.sub(i * kSize, kSize); };
    const auto take = [&](std::size_t i, const PointerOutcome& outcome) {
      if (outcome.ok()) {
        all.push_back(flow.send_comm().registration(part(i), outcome.value));
      } else if (!std::exchange(refused, true)) {
        const std::string message =
            fmt::format("{} returned {} with {} registrations live", outcome.call, result_name(outcome.code), i);
        expect(i >= 64, message + ", expected at least 64");
        observe(message);
      }
      return !refused;
    };
    make_calls(
        numbers_below(kCount), [&](std::size_t i) { return flow.send_comm().start_reg(part(i)); }, take);
    for (std::size_t i = random_between(1, 30); i < all.size(); i += 31) {
      all[i - 1].dereg();
      transfer(flow.sender(), flow.send_comm(), all[i], flow.receiver(), flow.recv_comm(), flow.to().buffer(0, kSize),
               random()(), fmt::format("a message from registration {} of {}", i, all.size()));
    }
  });
}

RULE(MR_16, Should, ApiRange::all(),  //
     .title = "deregMr of NULL does not crash",
     .text = "deregMr of an mhandle that is NULL succeeds or returns an error.",
     .source = "transport/net.cc: sendProxyFree removes the handle of every protocol, whatever the plugin stored",
     .why =
         "NCCL removes the handle of every protocol, including a handle that regMr never stored. A crash here hides "
         "the first error.",
     .check = "Calls deregMr with NULL on both kinds of comm. Any result code is accepted.") {
  probe([&] {
    const Connection connection = connect(near_endpoint(), far_endpoint());
    connection.send.try_dereg(0);
    connection.receive.try_dereg(0);
  });
}

RULE_ON(
    MessageRule, MR_18, Must, ApiRange::all(),  //
    .title = "registrations outlive other comms",
    .text = "A registration stays valid until its deregMr, even when another comm that registered the memory closes.",
    .source = "transport/net.cc: each connection registers the shared p2p pool",
    .why =
        "If the close of a comm removes registrations of others, transfers of the remaining connections fail, or "
        "access other memory.",
    .check =
        "Registers the memory of one connection on a second one too, removes that and closes the second connection, "
        "then exchanges a message on the first.") {
  Flow kept = make_flow(1, 3000);
  Connection other = connect(sender(), receiver());
  register_pages(other.send, kept.from().memory).dereg();
  register_pages(other.receive, kept.to().memory).dereg();
  other.send.close();
  other.receive.close();
  kept.exchange(0);
}

RULE(MR_19, Should, ApiRange::all(),  //
     .title = "a registration of read-only memory does not crash",
     .text =
         "regMr of memory that is mapped read-only succeeds or returns an error. A send from it, if it succeeds, "
         "delivers the memory.",
     .source = "NCCL registers what the application passes as a send buffer, such as a mapped file",
     .why = "A plugin that writes to the pages to make them present ends the application.",
     .check =
         "Registers a read-only page on both kinds of comm and sends from it if that succeeded. Any result code is "
         "accepted.") {
  probe([&] {
    Endpoint sender = near_endpoint(), receiver = far_endpoint();
    const Connection connection = connect(sender, receiver);
    constexpr std::size_t kSize = 4096;
    Memory there = receiver.rank.allocate(kSize);
    there.make_read_only();
    if (const auto outcome = connection.receive.try_reg(there); outcome.ok())
      require_success(connection.receive.try_dereg(outcome.value));
    Memory here = sender.rank.allocate(kSize);
    const std::uint64_t seed = random()();
    sender.rank.fill(here, seed);
    here.make_read_only();
    const PointerOutcome outcome = connection.send.try_reg(here);
    if (!outcome.ok()) {
      observe(fmt::format("regMr of read-only memory returned {}", result_name(outcome.code)));
      return;
    }
    const Registered to = allocate(receiver.rank, connection.receive, kSize);
    Receive receive(connection.receive, to.buffer());
    Send send(connection.send, connection.send.registration(here, outcome.value));
    finish({&receive, &send});
    require_content(receiver.rank, to.memory, seed, "a message from read-only memory");
  });
}

RULE_ON(
    MessageRule, MR_20, Should, ApiRange::all(),  //
    .title = "buffers in one page have registrations of their own",
    .text = "Small buffers that share a page are registered, used and removed independently.",
    .source = "allocators place small buffers side by side; NCCL itself registers whole pages (register/register.cc)",
    .why = "If buffers in one page share a registration, the end of one makes transfers of the others fail.",
    .check =
        "Registers four parts of one page at both endpoints; in random order, sends from each and removes both of "
        "its registrations.",
    .faults = {{"aws/aws-ofi-nccl#685", "two small buffers in one page shared a registration"}}) {
  constexpr std::size_t kCount = 4, kSize = 512;
  const Connection connection = connect(sender(), receiver());
  const Memory from = sender().rank.allocate(4096), to = receiver().rank.allocate(4096);
  std::vector<Registration> send, receive;
  for (std::size_t i = 0; i < kCount; ++i) {
    send.push_back(connection.send.reg(from.sub(i * kSize, kSize)));
    receive.push_back(connection.receive.reg(to.sub(i * kSize, kSize)));
  }
  for (const std::size_t i : shuffled(kCount)) {
    transfer(sender().rank, connection.send, send[i], receiver().rank, connection.receive, receive[i], random()(),
             fmt::format("a message in part {} of a page", i));
    send[i].dereg();
    receive[i].dereg();
  }
}

}  // namespace plugfest::conformance
