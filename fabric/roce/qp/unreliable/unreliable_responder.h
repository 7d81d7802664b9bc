// The receiving half of an unreliable connection (UC): a message of which a packet is missing is dropped without a
// word.
#pragma once

#include <cstdint>

#include "fabric/roce/qp/responder.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class UnreliableResponder final : public Responder {
 public:
  using Responder::Responder;

  void start(const Settings& settings) override;
  void receive(const Packet& packet, const Arrival& arrival) override;

 private:
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  bool follows(const Packet& packet, const OperationTraits& traits);
  bool place_send(const Packet& packet);
  bool place_write(const Packet& packet, const OperationTraits& traits);
  void complete(const Packet& packet, const OperationTraits& traits);

  Message message_ = Message::kNone;  ///< being received; after a loss none, and the rest of it is dropped
  std::uint64_t received_bytes_ = 0;  ///< of the message
  std::uint64_t write_address_ = 0;   ///< where its next packet goes
  std::uint32_t write_key_ = 0;
  std::uint64_t write_left_ = 0;
};

}  // namespace plugfest::roce
