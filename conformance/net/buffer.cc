// XF rules: memory of a transfer, and *request.
#include <fmt/format.h>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(MessageRule, XF_02, Must, ApiRange::all(),  //
        .title = "a call that cannot post stores NULL",
        .text =
            "An isend or irecv that cannot post yet returns Success and stores NULL in *request, regardless of the "
            "previous content of *request.",
        .source = "transport/net.cc: sendProxyProgress never clears *request",
        .why = "NCCL does not clear its request slot. A stale pointer in it is tested as if it were the new request.",
        .check =
            "Presets *request to an invalid pointer, posts sends without receives and receives without sends, and "
            "looks at each *request.",
        .blind = "A plugin that defers only under load.") {
  // The most that the version's header allows: this number of receives, and this number of sends for each buffer of a
  // receive.
  const std::size_t max_receives = api() == 6 ? 8 : 32;
  const std::size_t max_sends = max_receives * max_recvs();
  Flow sends = make_flow(max_sends, 256), receives = make_flow(max_receives, 256);
  // XF-07 checks how many the plugin must accept.
  auto may_go_on = [&](const PointerOutcome& outcome) {
    expect(!outcome.ok() || !outcome.untouched, [&] {
      return fmt::format("{} returned Success and did not write *request, expected a request or NULL", outcome.call);
    });
    return outcome.ok();
  };
  const PostOptions poison = {.request = Preset::kPoison};
  for (std::size_t i = 0; i < max_sends; ++i)
    if (!may_go_on(sends.send_comm().try_isend(sends.source(i), 0, poison))) break;
  for (std::size_t i = 0; i < max_receives; ++i)
    if (!may_go_on(receives.recv_comm().try_irecv({{receives.target(i), 0}}, poison))) break;
}

RULE_ON(
    MessageRule, XF_10, Must, ApiRange::all(),  //
    .title = "memory after a short message is not written",
    .text = "Bytes of the receive buffer beyond the received size keep their values.",
    .source = "transport/net.cc: those bytes hold flags of the LL protocols from older steps",
    .why =
        "The bytes after a short message hold flags of the LL protocols. If they change, a GPU takes old data for new.",
    .check = "Fills the receive buffer, sends shorter messages of seven sizes and compares the rest of the buffer.",
    .blind = "Writes that restore the bytes before test reports done.") {
  constexpr std::size_t kPosted = 200000;
  constexpr std::uint8_t kFlags = 0xab;
  Flow flow = make_flow(1, kPosted);
  for (const std::size_t size : {0u, 1u, 7u, 4096u, 4097u, 65537u, 199999u}) {
    flow.receiver().set(flow.to().memory, kFlags);
    flow.receive(0);
    flow.send(0, size);
    flow.finish();
    const Check rest = flow.receiver().check_set(flow.to().slice(size, kPosted - size), kFlags);
    expect(rest.same, [&] {
      return fmt::format("rank {}: memory after a message of {} was written, expected no change: {}",
                         flow.receiver().name(), counted(size, "byte"), rest.difference);
    });
  }
}

RULE_ON(MessageRule, XF_11, Must, ApiRange::all(),  //
        .title = "an oversized message never writes past the receive",
        .text =
            "A send larger than its receive ends in an error or is truncated. Memory beyond the posted size is not "
            "written.",
        .source = "ext-net README: irecv; NCCL 2.20 to 2.23 relied on truncation",
        .why =
            "A sender and a receiver of different programs can disagree about a size. Even then, nothing outside the "
            "receive buffer may be overwritten.",
        .check =
            "Delivers a message. Sends messages that are 1 to 59000 bytes too long into six sizes of receives, and "
            "compares the memory after each.",
        .blind = "Whether an error or truncation is right: versions of NCCL differ, so the rule records the outcome.",
        .faults = {{"google/nccl-fastsocket", "the receiver took the length from the sender's header without a check"},
                   {"aws/aws-ofi-nccl#442", "a receive smaller than its send failed with registered buffers"}}) {
  constexpr std::uint8_t kBehind = 0xcd;
  struct Sizes {
    std::size_t posted, sent;
  };
  for (const auto [posted, sent] :
       {Sizes{1000, 60000}, Sizes{0, 64}, Sizes{1, 2}, Sizes{1000, 1001}, Sizes{4090, 4160}, Sizes{65536, 65537}}) {
    // A separate connection, since NCCL does not use one after an error.
    Flow flow = make_flow(1, sent + 64);
    flow.exchange(0, 8);
    flow.receiver().set(flow.to().memory, kBehind);
    Trial send = Trial::send(flow.send_comm(), flow.fill(0, sent));
    Trial receive = Trial::receive(flow.recv_comm(), {{flow.target(0, posted), 0}});
    drive({&send, &receive}, 500);
    observe(fmt::format("{} bytes sent into a receive of {}: the send {}, the receive {}", sent, posted,
                        send.describe(), receive.describe()));
    const Check behind = flow.receiver().check_set(flow.to().slice(posted, sent + 64 - posted), kBehind);
    expect(behind.same, [&, posted = posted, sent = sent] {
      return fmt::format(
          "rank {}: a message of {} bytes wrote past the end of its receive of {} bytes, expected no change: {}",
          flow.receiver().name(), sent, posted, behind.difference);
    });
  }
}

RULE_ON(
    MessageRule, XF_16, Must, ApiRange::all(),  //
    .title = "a completed request no longer uses its buffer",
    .text =
        "After test reports done, the plugin neither reads the memory of a send nor writes the memory of a receive.",
    .source = "transport/net.cc: the GPU gets the buffer back at once",
    .why =
        "NCCL gives the buffer back to the GPU as soon as test reports done. A plugin that still reads it sends the "
        "next step's data.",
    .check =
        "Overwrites the memory of each send and receive as soon as it is done, even while the receiver is stopped in "
        "mid-message, and compares all contents.",
    .blind = "Reads that happen only when a packet is lost after the completion.", .alone = true) {
  constexpr std::size_t kSlots = 8, kRounds = 8;
  constexpr std::uint8_t kNext = 0x77;
  Flow flow = make_flow(kSlots, 30000);
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::vector<Flow::Ticket> sends;
    for (std::size_t i = 0; i < kSlots; ++i) {
      flow.receive(i);
      sends.push_back(flow.send(i));
    }
    // The memory of each send is overwritten as soon as the send is done. The received messages must not show it.
    for (std::size_t i = 0; i < kSlots; ++i) {
      traffic().until_done(sends[i]);
      flow.sender().set(flow.source(i).slice, kNext);
    }
    flow.finish();
    // The receive memory is overwritten too. A later transfer must not write it.
    flow.receiver().set(flow.to().memory, kNext);
    deliver(sender(), receiver(), flow.connection(), {.size = 1000, .seed = random()()});
    const Check later = flow.receiver().check_set(flow.to().memory, kNext);
    expect(later.same, [&] {
      return fmt::format("rank {}: memory of completed receives was written, expected no change: {}",
                         flow.receiver().name(), later.difference);
    });
  }

  // A stopped receiver takes no data, so the sender may report done only for data that it has copied.
  Flow large = make_flow(flow.connection(), 1, usual_size(8 << 20));
  large.receive(0);
  traffic().step();
  traffic().pause(large.recv_comm());
  const Flow::Ticket sent = large.send(0);
  large.receiver().freeze();
  traffic().steps(200);
  if (traffic().done(sent)) large.sender().set(large.source(0).slice, kNext);
  large.receiver().thaw();
  traffic().resume(large.recv_comm());
  large.finish();
}

RULE_ON(MessageRule, XF_19, Must, ApiRange::from(9),  //
        .title = "optional completion affects only its own receive",
        .text =
            "A receive posted with *request = 1 (optional completion) may complete early or like any other. irecv "
            "stores a testable request or NULL. Later receives are complete when test reports it.",
        .source = "transport/net.cc: recvProxyProgress, ignoreCompletion; aws-ofi-nccl #797, #1216, #1217",
        .why =
            "NCCL marks receives of LL as optional, but not others on the same comm. If the mark outlives its receive, "
            "test reports data as received that has not arrived.",
        .check =
            "Posts a marked receive, then an unmarked one that must not be done before its send, then 2000 messages "
            "with and without the mark.",
        .blind = "Flags that are inherited through a pool of more than 8 requests.",
        .faults = {{"aws/aws-ofi-nccl#1216", "the flag of an earlier send stayed set in a reused request"},
                   {"aws/aws-ofi-nccl#797", "a marked receive was done before its data had arrived"}}) {
  Flow flow = make_flow(1, 4096);
  const PointerOutcome marked = flow.recv_comm().try_irecv({{flow.target(0), 0}}, {.request = Preset::kMarker});
  require_success(marked);
  constexpr std::uint64_t kMarkerValue = 1;
  expect(marked.value != kMarkerValue,
         fmt::format("{} left 0x1 in *request, expected a request or NULL: NCCL would test 0x1", marked.call));
  if (marked.value != 0)
    traffic().posted_receive(flow.recv_comm(), flow.recv_comm().request(marked.value));
  else
    flow.receive(0);
  flow.send(0);
  traffic().finish();

  // A receive without the mark is not done before its send, regardless of the previous receive.
  const Flow::Ticket plain = flow.receive(0);
  traffic().steps(64);
  expect(!traffic().done(plain), fmt::format("rank {}: test wrote *done = 1 for a receive before its send, posted "
                                             "without the mark of optional completion, expected 0",
                                             flow.receiver().name()));
  flow.send(0);
  flow.finish();

  // Receives with and without the mark alternate. The content of one without the mark is compared as soon as it is
  // done.
  stream(flow.send_comm(), flow.recv_comm(),
         {.count = 2000, .seed = random()(), .sizes = {8, 64, 4096, 20000}, .window = 8, .request = Preset::kMarker});
}

}  // namespace plugfest::conformance
