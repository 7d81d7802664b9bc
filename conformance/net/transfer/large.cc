// XF rules that take gigabytes of memory or a minute.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "conformance/net/script/flow.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

namespace {

constexpr std::size_t kGi = std::size_t{1} << 30;

/// Base of rules about messages of gigabytes.
class LargeMessage : public MessageRule {
 protected:
  /// Sends one message of zeroes with three parts of random content, and compares every byte. Memory that the sender
  /// does not fill takes no pages.
  void exchange(std::size_t size) {
    constexpr std::size_t kPart = 65536;
    const control::Connection connection = control::connect(sender(), receiver());
    Registered from = allocate(sender().rank, connection.send, size),
               to = allocate(receiver().rank, connection.receive, size);
    const std::uint64_t seed = random()();
    const std::size_t parts[] = {0, size / 2 - kPart / 2, size - kPart};
    for (const std::size_t at : parts) sender().rank.fill(from.slice(at, kPart), seed + at);

    control::Receive receive(connection.receive, to.buffer());
    control::Send send(connection.send, from.buffer());
    // One message makes no progress that calls could show.
    const control::StallLimit limit = stall_limit().times(30);
    finish_within(limit, send, receive);
    std::size_t end = 0;
    for (const std::size_t at : parts) {
      const control::Check gap = receiver().rank.check_set(to.slice(end, at - end), 0);
      expect(gap.same, [&] {
        return fmt::format("rank {}: a message of {} arrived with wrong bytes from byte {} on: {}",
                           receiver().rank.name(), counted(size, "byte"), end, gap.difference);
      });
      require_content(receiver().rank, to.slice(at, kPart), seed + at,
                      fmt::format("the part at byte {} of a message of {}", at, counted(size, "byte")));
      end = at + kPart;
    }
    for (Registered* memory : {&from, &to}) {
      memory->registration.dereg();
      memory->memory.free();
    }
  }

 private:
  void finish_within(control::StallLimit limit, control::Send& send, control::Receive& receive) {
    while (!send.done() || !receive.done()) {
      expect(!limit.expired(), [&] {
        return fmt::format("{} did not complete within {} s", receive.done() ? send.describe() : receive.describe(),
                           limit.seconds());
      });
      if (!receive.done()) receive.turn();
      if (!send.done()) send.turn();
    }
  }
};

}  // namespace

RULE_ON(LargeMessage, XF_32, Should, ApiRange::all(),  //
        .title = "a message may have 1 GiB, whatever maxP2pBytes is",
        .text = "isend and irecv take messages of up to 1 GiB. NCCL does not cut messages to maxP2pBytes.",
        .source = "transport/net.cc: registered buffers are sent in pieces of MAX_NET_SIZE, 1 GiB",
        .why = "Collectives on registered user buffers fail or lose data.",
        .check = "Sends one message of 1 GiB and compares every byte.", .blind = "Memory of GPUs.", .thorough = true) {
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

RULE_ON(MessageRule, XF_34, Should, ApiRange::all(),  //
        .title = "a comm works after a minute without calls",
        .text = "A comm on which no call was made for a minute sends and receives as before.",
        .source = "applications that compute between collectives; NAT tables and keep-alive timers of networks",
        .why = "The first collective after a pause fails.",
        .check = "Exchanges a message, makes no call for 60 s, and exchanges another one.",
        .blind = "Timers of more than a minute.", .thorough = true) {
  Flow flow = make_flow(2, 3000);
  flow.exchange(0);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  flow.exchange(1);
}

}  // namespace plugfest::conformance
