// XF rules: arguments at the limits of what NCCL passes: retries, empty and very large messages, tags, numbers of
// buffers.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

RULE_ON(MessageRule, XF_04, Must, ApiRange::all(),  //
        .title = "a deferred call leaves nothing behind",
        .text =
            "After an isend that returned NULL, NCCL calls isend again. With maxRecvs above 1, connections share the "
            "comm, so that the next isend may have other arguments, which alone determine its message.",
        .source = "transport/net.cc: sendProxyProgress tries each sub-operation again; sendProxyConnect shares comms",
        .why = "A plugin that keeps the arguments of the first try sends the wrong memory.",
        .check =
            "Calls isend without a receive until one is accepted or eight calls were made: with two messages in turn, "
            "or with one if maxRecvs is 1. Then receives both and compares every byte.",
        .blind = "A plugin that accepts every send at once never defers, and passes.") {
  Flow flow = make_flow(2, 3000);
  const bool shared = max_recvs() > 1;
  for (int round = 0; round < 4; ++round) {
    const Buffer buffers[] = {flow.fill(0), flow.fill(1)};
    std::size_t first = 0;
    Request early = flow.send_comm().isend(buffers[0]);
    for (std::size_t i = 1; i < 8 && !early; ++i) {
      if (shared) first = i % 2;
      early = flow.send_comm().isend(buffers[first]);
    }
    if (early)
      traffic().posted_send(flow.send_comm(), early);
    else
      traffic().send(flow.send_comm(), buffers[first]);
    traffic().send(flow.send_comm(), buffers[1 - first]);
    flow.receive(first);
    flow.receive(1 - first);
    flow.finish();
  }
}

RULE_ON(MessageRule, XF_08, Info, ApiRange::all(),  //
        .title = "receives that a comm accepts",
        .text = "Records how many receives a comm accepts before it defers or refuses the next one.",
        .source = "nccl_net.h: NCCL_NET_MAX_REQUESTS; transport/net.cc posts 8 steps at most",
        .why = "A plugin need not accept more than NCCL posts, which XF-07 checks.",
        .check = "Calls irecv on one comm until it returns NULL or an error, or 256 receives are in flight.") {
  constexpr std::size_t kMax = 256;
  Flow flow = make_flow(1, 64);
  std::size_t in_flight = 0;
  PointerOutcome outcome;
  for (bool more = true; more && in_flight < kMax; in_flight += more ? 1 : 0) {
    outcome = flow.recv_comm().try_irecv({{flow.target(0), 0}});
    more = outcome.ok() && outcome.value != 0;
  }
  observe(fmt::format("{} in flight{}", counted(in_flight, "receive"),
                      outcome.ok() ? "" : fmt::format("; the next one returned {}", result_name(outcome.code))));
}

RULE_ON(MessageRule, XF_13, Should, ApiRange::all(),  //
        .title = "the address of an empty message is not used",
        .text = "isend of 0 bytes accepts any address, including NULL and an address outside the registration.",
        .source = "transport/net.cc before NCCL 2.24 passed the user's pointer with another buffer's handle",
        .why =
            "NCCL before 2.24 passed such addresses for empty operations on registered user buffers. An error ends the "
            "communicator.",
        .check = "Sends empty messages from address NULL and from memory that is not registered, and receives them.",
        .faults = {{"aws/aws-ofi-nccl#804", "zero-byte messages were looked up in the registration"}}) {
  probe([&] {
    Flow flow = make_flow(1, 3000);
    for (const std::uint64_t address : {std::uint64_t{0}, flow.sender().allocate(4096).address()}) {
      Buffer empty = flow.fill(0, 0);
      empty.slice.address = address;
      Receive receive(flow.recv_comm(), flow.target(0));
      Send send(flow.send_comm(), empty);
      finish({&receive, &send});
    }
    flow.check();
  });
}

RULE_ON(MessageRule, XF_15, Should, ApiRange::all(),  //
        .title = "argument arrays are not changed",
        .text = "irecv writes to none of its arrays data, sizes, tags and mhandles.",
        .source = "transport/net.cc: recvProxyProgress",
        .why = "The arrays belong to the caller. A plugin that changes them relies on how NCCL is written today.",
        .check =
            "Delivers a message. Compares the four arrays before and after irecv, for a group with an empty and with "
            "full buffers.",
        .blind = "NCCL does not read the arrays again, so a change does no harm today.") {
  const std::size_t group = max_recvs();
  Flow flow = make_flow(group, 64);
  flow.exchange(0);
  for (const std::size_t size : {std::size_t{0}, Flow::kWhole}) {
    std::vector<Part> parts = flow.parts(0, tags_from(0, group));
    parts.front().buffer = flow.target(0, size);
    const PointerOutcome outcome = flow.recv_comm().try_irecv(parts);
    require_success(outcome);
    expect(outcome.changes.empty(), [&] { return fmt::format("{}: {}", outcome.call, outcome.changes); });
  }
}

RULE_ON(MessageRule, XF_27, Should, ApiRange::all(),  //
        .title = "groups of an invalid size are refused",
        .text = "irecv of more than maxRecvs buffers returns an error. irecv of 0 buffers does not crash.",
        .source = "transport/net_socket.cc and net_ib.cc return ncclInternalError",
        .why = "A mistake of the caller should end in a message, not in a crash of the application or in lost data.",
        .check =
            "Sends a message. Then calls irecv with 0 buffers, which must not crash, and with maxRecvs + 1 buffers, "
            "which must fail, give no request, or give one whose test fails.") {
  const std::size_t group = max_recvs();
  // Whether the receive of `count` buffers fails: at once, or when the plugin checks it later.
  auto is_refused = [&](std::size_t count, std::string& call) {
    Flow flow = make_flow(count + 1, 64);
    flow.exchange(0);
    const PointerOutcome outcome = flow.recv_comm().try_irecv(flow.parts(0, tags_from(0, count)));
    call = outcome.call;
    if (!outcome.ok() || outcome.value == 0) return true;
    const Request request = flow.recv_comm().request(outcome.value);
    StallLimit waiting = stall_limit().times(0.1);
    while (!waiting.expired()) {
      const TestOutcome tested = request.try_test();
      if (!tested.ok() || tested.done != 0) return !tested.ok();
    }
    return false;
  };
  std::string call;
  probe([&] { is_refused(0, call); });
  if (group == 64) return;  // more than the entries of NCCL's arrays
  probe([&] {
    const bool refused = is_refused(group + 1, call);
    expect(refused, fmt::format("{} returned a request, expected an error: maxRecvs is {}", call, group));
  });
}

RULE_ON(MessageRule, XF_28, Must, ApiRange::all(),  //
        .title = "every tag from 0 to 2^31 - 1 works",
        .text =
            "Every tag from 0 to 2^31 - 1 can be used. A plugin that confuses different tags in a group gets a warning "
            "[S].",
        .source = "transport/net.cc: tags are ranks; other libraries use large constants",
        .why = "If tags have fewer bits, messages of ranks beyond the limit fail or arrive in the wrong buffer.",
        .check =
            "Sends a message with each of seven tags from 0 to 2^31 - 1. Then posts a group with tags 5 and 65541, "
            "which are equal in their low 16 bits, and sends to both.",
        .blind = "Negative tags, which NCCL does not use.") {
  Flow flow = make_flow(2, 3000);
  for (const int tag : {0, 1, 0x69, 65535, 65536, 65541, 0x7fffffff}) flow.exchange(0, Flow::kWhole, tag);
  if (max_recvs() == 1) return;
  flow.receive_group(0, {5, 65541});
  flow.send(1, 2000, 65541);
  flow.send(0, 1000, 5);
  try {
    flow.finish();
  } catch (const Broken& confused) {
    should(false, confused.what());
  }
}

RULE_ON(
    MessageRule, XF_39, Should, ApiRange::from(9),  //
    .title = "the size of a receive has 64 bits",
    .text = "irecv may be posted with more than 4 GiB. A message of any smaller size arrives.",
    .source = "net v9 changed irecv's sizes from int to size_t",
    .why = "A size that is cut to 32 bits truncates messages into large registered buffers.",
    .check = "Posts a receive of 4 GiB and 4096 bytes, sends a message of 100,000 bytes, and compares every byte.") {
  constexpr std::size_t kLarge = (std::size_t{4} << 30) + 4096, kSize = 100000;
  Flow flow = make_flow(1, kSize);
  const Registered to = allocate_lockable(flow.receiver(), flow.recv_comm(), kLarge);
  transfer(flow.sender(), flow.send_comm(), flow.source(0), flow.receiver(), flow.recv_comm(), to.buffer(), random()(),
           "a message of 100,000 bytes into a receive of 4 GiB");
}

namespace {

constexpr std::size_t kGi = std::size_t{1} << 30;

// Base of rules about messages of gigabytes.
class LargeMessage : public MessageRule {
 protected:
  // Sends one message of zeroes with three parts of random content, and compares every byte. Pages that the sender
  // does not write are not allocated.
  void exchange(std::size_t size) {
    constexpr std::size_t kPart = 65536;
    const Connection connection = connect(sender(), receiver());
    Registered from = allocate_lockable(sender().rank, connection.send, size),
               to = allocate_lockable(receiver().rank, connection.receive, size);
    const std::uint64_t seed = random()();
    const std::size_t parts[] = {0, size / 2 - kPart / 2, size - kPart};
    for (const std::size_t at : parts) sender().rank.fill(from.slice(at, kPart), seed + at);

    Receive receive(connection.receive, to.buffer());
    Send send(connection.send, from.buffer());
    // Calls cannot observe the progress of a single message.
    for (StallLimit limit = stall_limit().times(30); !send.done() || !receive.done();) {
      expect(!limit.expired(), [&] {
        return fmt::format("{} did not complete within {} s", receive.done() ? send.describe() : receive.describe(),
                           limit.seconds());
      });
      if (!receive.done()) receive.turn();
      if (!send.done()) send.turn();
    }
    std::size_t end = 0;
    for (const std::size_t at : parts) {
      const Check gap = receiver().rank.check_set(to.slice(end, at - end), 0);
      expect(gap.same, [&] {
        return fmt::format("rank {}: a message of {} arrived with wrong bytes from byte {} on: {}",
                           receiver().rank.name(), counted(size, "byte"), end, gap.difference);
      });
      require_content(receiver().rank, to.slice(at, kPart), seed + at,
                      fmt::format("the part at byte {} of a message of {}", at, counted(size, "byte")));
      end = at + kPart;
    }
    from.release();
    to.release();
  }
};

}  // namespace

RULE_ON(LargeMessage, XF_32, Should, ApiRange::all(),  //
        .title = "a message may have 1 GiB, regardless of maxP2pBytes",
        .text = "isend and irecv accept messages of up to 1 GiB. NCCL does not cut messages to maxP2pBytes.",
        .source = "transport/net.cc: registered buffers are sent in pieces of MAX_NET_SIZE, 1 GiB",
        .why = "If a plugin refuses or cuts such messages, collectives on registered user buffers fail or lose data.",
        .check = "Sends one message of 1 GiB and compares every byte.", .blind = "GPU memory.", .thorough = true) {
  exchange(kGi);
}

RULE_ON(
    LargeMessage, XF_42, Should, ApiRange::from(9),  //
    .title = "the size of a message has 64 bits", .text = "A message of more than 2 GiB arrives whole.",
    .source = "net v9 changed isend's size from int to size_t",
    .why = "A size that is cut to 32 bits truncates large messages silently.",
    .check = "Sends one message of 2 GiB and 192 KiB and compares every byte. The reported size, an int, is ignored.",
    .blind = "Sizes above 4 GiB.", .thorough = true) {
  exchange(2 * kGi + 3 * 65536);
}

}  // namespace plugfest::conformance
