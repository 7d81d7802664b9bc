// Requester and responder of a datagram queue pair (UD).
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "fabric/roce/memory/nic_lock.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/transports.h"
#include "fabric/roce/qp/unreliable.h"

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
    std::uint32_t number;  ///< queue pair number
    std::uint32_t q_key;
  };

  bool supports(ibv_wr_opcode opcode) const override { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }
  int open_path(const Destination& destination);
  const Path* address(std::uint64_t number, const SendRequest& request, Headers& headers) override;
  Recipient& recipient_of(std::uint64_t request) { return recipients_[request % max_requests_]; }

  const std::uint32_t max_requests_;
  LazyArray<Recipient> recipients_;     ///< indexed like the send queue
  std::optional<Destination> checked_;  ///< destination of the last request posted
  Destination destination_;             ///< destination of path_
  Path path_;                           ///< path of the batch being built
};

/// Accepts messages of one packet from any sender that knows the Q_Key. Not thread-safe; guarded by the NIC's lock.
class DatagramResponder final : public Responder {
 public:
  using Responder::Responder;

  void receive(const Packet& packet, const Arrival& arrival) override;
};

/// The 40 bytes before a datagram in its receive, as rxe and hardware write them: the packet's IPv6 header, or 20 zero
/// bytes and its IPv4 header.
inline constexpr std::size_t kGrhBytes = 40;
std::array<std::byte, kGrhBytes> grh_of(const Arrival& arrival, std::size_t udp_payload_bytes);

}  // namespace plugfest::roce
