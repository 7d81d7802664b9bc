// The requester of a datagram queue pair (UD). Each message is one packet with its own destination.
#pragma once

#include <optional>

#include "fabric/roce/memory/lazy_array.h"
#include "fabric/roce/qp/destination.h"
#include "fabric/roce/qp/unreliable/unreliable_requester.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class DatagramRequester final : public UnreliableRequester {
 public:
  DatagramRequester(Connection& connection, CompletionQueue& completions, const ibv_qp_cap& capabilities,
                    bool signal_all);

  int post(const ibv_send_wr& request) override;

 private:
  struct Recipient {
    Destination destination;
    std::uint32_t number;  ///< of the queue pair
    std::uint32_t q_key;
  };

  bool supports(ibv_wr_opcode opcode) const override { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }
  const Path* address(std::uint64_t number, const SendRequest& request, Headers& headers) override;
  Recipient& recipient_of(std::uint64_t request) { return recipients_[request % max_requests_]; }

  const std::uint32_t max_requests_;
  LazyArray<Recipient> recipients_;     ///< indexed like the send queue
  std::optional<Destination> checked_;  ///< destination of the last request posted
  Destination destination_;             ///< destination of path_
  Path path_;                           ///< of the batch being built
};

}  // namespace plugfest::roce
