// CN and ER rules: connections that cannot be made, since the handle is damaged or a system call fails.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/peer.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"

namespace plugfest::conformance {

namespace {

struct DamagedHandle {
  std::string what;
  Handle handle;
};

}  // namespace

RULE(CN_34, Should, ApiRange::all(),  //
     .title = "connect survives a damaged handle",
     .text =
         "With a handle that no listen has written, connect returns an error, no comm yet, or a comm. It does not "
         "crash or wait, and connections with other handles work.",
     .source = "transport/net.cc: the handle arrives through the bootstrap, over the network",
     .why =
         "Ranks with different versions or settings of a plugin, and old processes on a reused port, send handles that "
         "the plugin does not know. The job should end in an error message.",
     .check =
         "Calls connect four times with random bytes, with 0x00 and 0xff in each byte, with a valid handle that is cut "
         "short, and with one in which a single byte is changed, for each byte that listen has set.",
     .blind = "Handles with several changed bytes, and damage that shows only after a comm is stored.",
     .faults = {{"aws/aws-ofi-nccl", "an invalid peer address in a handle caused a segmentation fault"}}) {
  std::vector<DamagedHandle> damaged;
  std::size_t next = 0;
  int errors = 0, comms = 0;
  const auto damage = [&](const Handle& valid) {
    const auto add = [&](std::string what, const auto& change) {
      damaged.push_back({std::move(what), valid});
      change(damaged.back().handle.bytes);
    };
    for (int i = 0; i < 4; ++i)
      add("random bytes", [&](auto& bytes) {
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random()());
      });
    for (const int value : {0x00, 0xff})
      add(fmt::format("{:#04x} in each byte", value), [&](auto& bytes) { bytes.fill(static_cast<std::byte>(value)); });
    for (const std::ptrdiff_t size : {4, 8, 16, 32, 64})
      add(fmt::format("0 from byte {} on", size),
          [&](auto& bytes) { std::fill(bytes.begin() + size, bytes.end(), std::byte{0}); });
    for (std::size_t i = 0; i < valid.bytes.size(); ++i)
      if (valid.bytes[i] != std::byte{0})
        add(fmt::format("another value in byte {}", i),
            [&](auto& bytes) { bytes[i] ^= static_cast<std::byte>(random_between(1, 255)); });
  };
  // A crash ends the part: the next one continues with the next handle, in new processes.
  constexpr int kMaxBreaches = 3;
  for (int parts = 0; parts < kMaxBreaches && (damaged.empty() || next < damaged.size()); ++parts) {
    probe(
        [&] {
          Endpoint sender = near_endpoint(retrying_briefly()), receiver = far_endpoint(retrying_briefly());
          Listener listener = receiver.rank.listen(receiver.device);
          if (damaged.empty()) damage(listener.handle());
          while (next < damaged.size()) {
            Connect connect = sender.rank.connect(sender.device, damaged[next++].handle);
            bool refused = false;
            for (int i = 0; i < 4 && !refused && !connect.done(); ++i) refused = !connect.try_poll().ok();
            errors += refused ? 1 : 0;
            if (!connect.done()) continue;
            ++comms;
            connect.comm().try_close();
          }
          connect_and_deliver(sender, receiver, random()());
        },
        [&] { return next == 0 ? "" : "after connect with " + damaged[next - 1].what; });
  }
  observe(fmt::format("connect returned an error for {} of {} damaged handles, and a comm for {}", errors,
                      damaged.size(), comms));
}

namespace {

// A call that fails: of the sender or of the receiver.
struct Fault {
  bool at_sender = true;
  CallInPlugin call = {};

  static constexpr std::array<std::string_view, 4> kNumbers = {"first", "second", "third", "fourth"};

  // "the second setsockopt in connect".
  std::string describe() const {
    return fmt::format("the {} {} in {}", kNumbers.at(call.number - 1), call.call, call.function);
  }
};

Trial message_on(const SendComm& comm, const Buffer& buffer) { return Trial::send(comm, buffer); }
Trial message_on(const RecvComm& comm, const Buffer& buffer) { return Trial::receive(comm, {{buffer, 0}}); }

// One side of a connection: a connect or an accept, then a message.
template <typename Attempt>
class Side {
 public:
  Side(Attempt attempt, Slice memory) : attempt_(std::move(attempt)), memory_(memory) {}

  // Makes one call. Returns false if it returned an error.
  bool turn() {
    if (!attempt_.done()) return attempt_.try_poll().ok();
    const auto comm = attempt_.comm();
    if (!message_) {
      const PointerOutcome registered = comm.try_reg(memory_);
      if (!registered.ok()) return false;
      registration_ = comm.registration(memory_, registered.value);
      message_ = message_on(comm, *registration_);
    }
    message_->turn();
    return !message_->failed();
  }
  bool done() const { return message_ && message_->done(); }
  void close() {
    if (registration_) registration_->try_dereg();
    if (attempt_.done()) attempt_.comm().try_close();
  }

 private:
  Attempt attempt_;
  Slice memory_;
  std::optional<Registration> registration_;
  std::optional<Trial> message_;
};

struct FailureCounts {
  std::size_t failed = 0;  // calls that were made to fail
  std::size_t errors = 0;  // those after which the plugin returned an error
};

// Two ranks that connect again and again, of which one makes a failing call.
class FailingRanks {
 public:
  FailingRanks(Endpoint sender, Endpoint receiver, const std::function<StallLimit()>& limit)
      : sender_(std::move(sender)),
        receiver_(std::move(receiver)),
        limit_(limit),
        from_(sender_.rank.allocate(kSize)),
        to_(receiver_.rank.allocate(kSize)) {
    sender_.rank.fill(from_, kSeed);
  }

  // Makes a call fail in a connection, and in two more while descriptors stay open: a pool may grow once, what grows
  // each time leaks. Adds to `counts`. Errors: `Broken`.
  void check(const Fault& fault, FailureCounts& counts) {
    constexpr int kRounds = 3;
    Rank& rank = rank_of(fault);
    int before = 0, after = descriptors(fault);
    for (int round = 1; round <= kRounds && after > before; ++round) {
      before = after;
      rank.count_calls(fault.call);
      const bool error = fails();
      const CallsInPlugin calls = rank.count_calls();
      if (!calls.failed) return;
      if (round == 1) {
        ++counts.failed;
        counts.errors += error ? 1 : 0;
      }
      if (!calls.invalid_close.empty())
        throw Broken(
            fmt::format("rank {}: a descriptor that is not open was closed (in {})", rank.name(), calls.invalid_close));
      require_connection();
      after = descriptors(fault, round < kRounds ? INT_MAX : before);
    }
    if (after > before)
      throw Broken(fmt::format("rank {}: {} stayed open", rank.name(),
                               counted(static_cast<std::size_t>(after - before), "descriptor")));
  }

  // Connects, sends a message, and closes everything. Returns whether a call returned an error, with which it ends.
  // Errors: `Broken` when neither the message arrives nor a call fails.
  bool fails() {
    const ListenOutcome listening = receiver_.rank.try_listen(receiver_.device);
    if (!listening.ok()) return true;
    Listener listener = receiver_.rank.listener(listening);
    Side<Connect> sends(sender_.rank.connect(sender_.device, listener.handle()), from_);
    Side<Accept> receives(receiver_.rank.accept(listener), to_);
    receiver_.rank.set(to_, 0);
    bool failed = false;
    for (StallLimit limit = limit_(); !failed && !(sends.done() && receives.done());) {
      if (limit.expired())
        throw Broken(fmt::format("rank {}: the connection neither works nor fails within {} s", sender_.rank.name(),
                                 limit.seconds()));
      failed = !sends.turn() || !receives.turn();
    }
    if (!failed) require_content(receiver_.rank, to_, kSeed, "a message");
    sends.close();
    receives.close();
    listener.try_close();
    sender_.rank.free_attempts();
    receiver_.rank.free_attempts();
    return failed;
  }

  // Requires that a new connection works.
  void require_connection() {
    Connection connection = connect(sender_, receiver_);
    deliver(sender_, receiver_, connection, {.size = kSize, .seed = kSeed});
    connection.send.close();
    connection.receive.close();
  }

  // The descriptors of the rank, which may take some time to become `most`.
  int descriptors(const Fault& fault, int most = INT_MAX) {
    const auto few = [&](const control::ProcessFacts& facts) { return facts.file_descriptors <= most; };
    return settled(rank_of(fault), limit_(), few).file_descriptors;
  }

  // The calls that both ranks make in one connection, each up to its fourth.
  std::vector<Fault> faults() {
    sender_.rank.count_calls();
    receiver_.rank.count_calls();
    require_connection();
    std::vector<Fault> all;
    for (const bool at_sender : {true, false}) {
      for (const CallInPlugin& last : rank_of({.at_sender = at_sender}).count_calls().last)
        for (std::uint32_t number = 1; number <= std::min<std::size_t>(last.number, Fault::kNumbers.size()); ++number)
          all.push_back({at_sender, {last.function, last.call, number}});
    }
    return all;
  }

 private:
  Rank& rank_of(const Fault& fault) { return fault.at_sender ? sender_.rank : receiver_.rank; }

  static constexpr std::size_t kSize = 1000;
  static constexpr std::uint64_t kSeed = 12;

  Endpoint sender_, receiver_;
  std::function<StallLimit()> limit_;
  Memory from_, to_;
};

}  // namespace

RULE(ER_12, Should, ApiRange::all(),  //
     .title = "a system call that fails while connecting ends in an error code",
     .text =
         "When a system call or a verbs call in listen, connect or accept fails, the plugin returns an error or "
         "connects all the same. It does not crash or wait, closes no descriptor twice and keeps none. New connections "
         "work.",
     .source = "transport/net.cc: an error of a connection ends its communicator, not the process",
     .why =
         "If an error is handled wrongly, a short lack of resources ends the application, hangs the job, or leaks the "
         "remaining descriptors.",
     .check =
         "Counts the calls that both processes make in listen, connect and accept, and makes each of them fail in "
         "turn, up to the fourth of a function. Then closes what was stored, compares the numbers of descriptors, and "
         "connects again.",
     .blind =
         "Calls on threads of the plugin, calls of its first connection only, calls within libc, and a lack of memory. "
         "Verbs calls of a NIC other than plugfest's fail only as system calls of its library.",
     .faults = {{"aws/aws-ofi-nccl", "errors during connect released objects twice"}}) {
  std::optional<std::vector<Fault>> faults;
  std::size_t next = 0;
  FailureCounts counts;
  // A breach ends the part: the next one continues with the next call, in new processes.
  constexpr int kMaxBreaches = 3;
  for (int parts = 0; parts < kMaxBreaches && (!faults || next < faults->size()); ++parts) {
    probe(
        [&] {
          FailingRanks ranks(near_endpoint(retrying_briefly()), far_endpoint(retrying_briefly()),
                             [this] { return stall_limit(); });
          for (int i = 0; i < 2; ++i) ranks.require_connection();
          if (!faults) faults = ranks.faults();
          while (next < faults->size()) ranks.check((*faults)[next++], counts);
        },
        [&] {
          return next == 0 ? ""
                           : fmt::format("{} of {} failed", (*faults)[next - 1].describe(),
                                         (*faults)[next - 1].at_sender ? "the sender" : "the receiver");
        });
  }
  observe(fmt::format("{} of {} calls failed in turn: {} ended in an error code", counts.failed,
                      faults ? faults->size() : 0, counts.errors));
}

}  // namespace plugfest::conformance
