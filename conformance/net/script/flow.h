// Messages between two endpoints: their memory, their content, and the check of what arrives.
//
//   Flow flow = make_flow(8, 4096);                       // connects the rule's endpoints; 8 slots of 4096 bytes
//   for (std::size_t i = 0; i < 8; ++i) flow.receive(i);
//   for (std::size_t i = 0; i < 8; ++i) flow.send(i);
//   flow.finish();                                        // all arrived, each in its slot
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conformance/net/script/message.h"
#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

/// Sends messages over one connection. Both endpoints have registered memory of equal slots, and a message goes from a
/// slot of the sender to the same slot of the receiver. Each message gets new content.
///
/// Several flows may share one Traffic, which posts and tests the operations of all in turn, and waits for a plugin
/// that defers some. Errors: those of Traffic; `Broken` when a message arrives with other bytes. Not thread-safe.
class Flow {
 public:
  using Ticket = Traffic::Ticket;
  /// As a size: the whole slot.
  static constexpr std::size_t kWhole = SIZE_MAX;

  /// `traffic` and `random` must outlive the flow.
  Flow(Traffic& traffic, std::mt19937_64& random, control::Endpoint sender, control::Endpoint receiver,
       control::Connection connection, std::size_t slots, std::size_t slot_size);

  const control::SendComm& send_comm() const { return connection_.send; }
  const control::RecvComm& recv_comm() const { return connection_.receive; }
  const control::Connection& connection() const { return connection_; }
  control::Rank& sender() { return sender_.rank; }
  control::Rank& receiver() { return receiver_.rank; }
  /// All slots of an endpoint.
  const Registered& from() const { return from_; }
  const Registered& to() const { return to_; }

  /// Memory of a slot at the sender, and at the receiver.
  control::Buffer source(std::size_t slot, std::size_t size = kWhole) const;
  control::Buffer target(std::size_t slot, std::size_t size = kWhole) const;

  /// Writes new content for a message of `size` bytes, which `check` expects in the same slot of the receiver.
  control::Buffer fill(std::size_t slot, std::size_t size = kWhole, int tag = 0);
  /// Fills a slot and sends it.
  Ticket send(std::size_t slot, std::size_t size = kWhole, int tag = 0);
  /// Sends what `fill` wrote.
  Ticket send_filled(std::size_t slot);
  /// Receives into a slot.
  Ticket receive(std::size_t slot, std::size_t size = kWhole, int tag = 0, const control::PostOptions& options = {});
  /// Receives a group into the slots from `first` on, one for each tag.
  Ticket receive_group(std::size_t first, const std::vector<int>& tags);
  /// Parts of such a group.
  std::vector<control::Part> parts(std::size_t first, const std::vector<int>& tags) const;

  /// Watches the receiver's slot, which must be zero, while the message that `fill` wrote arrives in it.
  control::Started<control::WatchOutcome> watch(std::size_t slot);
  /// Requires that all messages filled since the last check have arrived; or the one in `slot`.
  void check();
  void check(std::size_t slot);
  /// Drives the traffic until all of its operations are done, then checks.
  void finish();
  /// Receives and sends one message, and returns the size that test reported to the receiver.
  int exchange(std::size_t slot, std::size_t size = kWhole, int tag = 0);

  Traffic& traffic() { return *traffic_; }

 private:
  struct Message {
    std::uint64_t seed;
    std::size_t size;
    int tag;
  };
  std::size_t bytes(std::size_t size) const { return size == kWhole ? slot_size_ : size; }

  Traffic* traffic_;
  std::mt19937_64* random_;
  control::Endpoint sender_, receiver_;
  control::Connection connection_;
  std::size_t slot_size_;
  Registered from_, to_;
  /// By slot: the messages that are not checked.
  std::map<std::size_t, Message> unchecked_;
};

/// Base of rules that send messages between the endpoints of the path.
class MessageRule : public RuleBody {
 protected:
  control::Endpoint sender() { return near_endpoint(); }
  control::Endpoint receiver() { return far_endpoint(); }

  /// The traffic of all flows of this rule.
  Traffic& traffic();
  /// Connects the sender to the receiver, or `from` to `to`, or uses a connection.
  Flow make_flow(std::size_t slots, std::size_t slot_size);
  Flow make_flow(const control::Endpoint& from, const control::Endpoint& to, std::size_t slots, std::size_t slot_size);
  Flow make_flow(const control::Connection& connection, std::size_t slots, std::size_t slot_size);

  /// maxRecvs of the receiver's device, at most 64, which is the most that NCCL posts.
  std::size_t max_recvs();
  /// The same, for rules about groups. Errors: `NotApplicable` if it is 1.
  std::size_t widest_group();
  /// 0 to count-1 in random order.
  std::vector<std::size_t> shuffled(std::size_t count);

 private:
  std::optional<Traffic> traffic_;
};

/// `count` tags from `first` on.
std::vector<int> tags_from(int first, std::size_t count);

}  // namespace plugfest::conformance
