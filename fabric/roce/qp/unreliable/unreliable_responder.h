// The responder of an unreliable connection (UC). It drops a message if a packet of it is missing.
#pragma once

#include "fabric/roce/qp/responder.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class UnreliableResponder final : public Responder {
 public:
  using Responder::Responder;

  void start(const Settings& settings) override;
  void receive(const Packet& packet, const Arrival& arrival) override;

 private:
  bool follows(const Packet& packet, const OperationTraits& traits);
  bool place_send(const Packet& packet);
  bool place_write(const Packet& packet, const OperationTraits& traits);
  void complete(const Packet& packet, const OperationTraits& traits);

  IncomingMessage message_;  ///< kNone after a loss: the rest of the message is dropped
};

}  // namespace plugfest::roce
