// An aggregation node: adds up the contributions of its children and passes results down.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "fabric/reduction/packet.h"

namespace plugfest::reduction {

/// An IPv4 address and a UDP port, both in host byte order.
struct Address {
  std::uint32_t ip = 0;
  std::uint16_t port = 0;
  auto operator<=>(const Address&) const = default;
};

/// The place of a node in the aggregation tree of a group.
struct GroupConfig {
  struct Parent {
    Address address;
    std::uint16_t child = 0;  ///< the node's index among the parent's children
  };

  std::uint32_t group = 0;
  std::uint32_t fragment_window = 1;  ///< maximum number of outstanding fragments of a rank (OSTs)
  std::uint32_t max_payload = 0;      ///< bytes
  std::optional<Parent> parent;       ///< nullopt: the root
  std::vector<Address> children;      ///< ranks or nodes
};

/// Why a packet was dropped.
enum class Drop {
  kMalformed,     ///< no packet, or corrupt
  kUnknownGroup,  ///< the node has no such group
  kForeign,       ///< the sender is neither that child nor the parent
  kOutOfWindow,   ///< its slot was given to a later fragment, or is not free yet
  kMismatch,      ///< type, operator or size differ from the other contributions, or are not supported
};
inline constexpr std::size_t kDrops = 5;

struct NodeCounters {
  std::uint64_t contributions = 0;  ///< accepted contributions
  std::uint64_t repeats = 0;        ///< repeated contributions and results
  std::uint64_t results = 0;        ///< fragments whose result is known
  std::array<std::uint64_t, kDrops> drops = {};
};

/// A pure state machine, without sockets and clock. Ranks repeat contributions until they have the result, so a node
/// has no timers: it answers a repeated contribution with the result, or passes the repetition to its parent.
///
/// Fragments are numbered consecutively over all operations of a group. A rank sends fragment k only when it has the
/// results of all fragments up to k - fragment_window. A node has a slot of memory for each fragment of two fragment
/// windows, because the slot of fragment k is free when fragment k + 2 · fragment_window arrives: its sender
/// has the result of fragment k + fragment_window. So all ranks have contributed to that fragment, and each of them had
/// the result of fragment k before.
///
/// Results do not depend on timing: floating-point numbers are combined in the order of the children. Thread safety:
/// none.
class AggregationNode {
 public:
  /// Called for each packet to send. The packet is valid during the call.
  using Send = std::function<void(const Address& to, std::span<const std::byte> packet)>;

  explicit AggregationNode(Send send) : send_(std::move(send)) {}

  /// Adds a group, or replaces one. Precondition: 1 to 65535 children, a fragment window of at least 1.
  void configure(GroupConfig config);
  void remove(std::uint32_t group) { groups_.erase(group); }

  /// Accepts any bytes.
  void receive(const Address& source, std::span<const std::byte> packet);

  const NodeCounters& counters() const { return counters_; }
  std::size_t groups() const { return groups_.size(); }

 private:
  // A vector in memory that has room for a packet's header before it.
  class Value {
   public:
    bool empty() const { return bytes_ == 0; }
    std::span<std::byte> payload() { return std::span(memory_).subspan(kPacketHeaderBytes, bytes_); }
    void clear() { bytes_ = 0; }
    void set_zero(std::size_t bytes);
    void assign(std::span<const std::byte> payload);
    // The packet with this payload. It is valid until the value changes.
    std::span<const std::byte> packet(const PacketHeader& header);

   private:
    void resize(std::size_t bytes);

    std::size_t bytes_ = 0;
    std::vector<std::byte> memory_ = std::vector<std::byte>(kPacketHeaderBytes);  // keeps its size
  };

  struct Slot {
    std::optional<std::uint64_t> number;  ///< nullopt: not used yet
    PacketHeader header;                  ///< type, operator and elements of all contributions
    std::vector<bool> arrived;            ///< whether the contribution of each child has arrived
    std::size_t missing = 0;              ///< children
    std::size_t next = 0;                 ///< the child whose contribution is combined next, if the order matters
    std::map<std::size_t, std::vector<std::byte>> early;  ///< contributions that wait for earlier children
    Value value;                                          ///< the sum so far, then the result; empty: only zeros
    bool has_result = false;
  };
  struct Group {
    GroupConfig config;
    std::vector<Slot> slots;
  };

  void drop(Drop reason) { ++counters_.drops[static_cast<std::size_t>(reason)]; }
  void on_contribution(Group& group, const Packet& packet);
  void on_result(Group& group, const Packet& packet);
  void add(Slot& slot, std::size_t child, std::span<const std::byte> payload);
  void complete(Group& group, Slot& slot);
  void finish(Group& group, Slot& slot);
  void send_up(const Group& group, Slot& slot);
  void send_down(const Group& group, Slot& slot, std::size_t child);

  Send send_;
  std::map<std::uint32_t, Group> groups_;
  NodeCounters counters_;
};

}  // namespace plugfest::reduction
