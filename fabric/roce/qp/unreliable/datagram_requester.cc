// Sends datagrams.
#include "fabric/roce/qp/unreliable/datagram_requester.h"

#include <cerrno>

namespace plugfest::roce {

namespace {

// A Q_Key with this bit means the Q_Key of the sending queue pair.
constexpr std::uint32_t kOwnQKey = 1u << 31;

}  // namespace

DatagramRequester::DatagramRequester(Connection& connection, CompletionQueue& completions,
                                     const ibv_qp_cap& capabilities, bool signal_all)
    : UnreliableRequester(connection, completions, capabilities, signal_all),
      max_requests_(capabilities.max_send_wr),
      recipients_(make_lazy_array<Recipient>(max_requests_)) {}

int DatagramRequester::post(const ibv_send_wr& request) {
  const auto* const handle = static_cast<const AddressHandle*>(request.wr.ud.ah);
  if (handle == nullptr || &handle->domain != &connection_.domain) return EINVAL;
  // A message is one packet. Its length is checked before it is queued.
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if (length > connection_.path_mtu_bytes) return EINVAL;
  if (checked_ != handle->destination) {  // opens the socket now, so that post_send can report a failure
    path_to(handle->destination, connection_.nic.ports, connection_.number);
    checked_ = handle->destination;
  }
  const std::uint64_t number = queue_.end();
  const int error = UnreliableRequester::post(request);
  if (error != 0) return error;
  const std::uint32_t q_key = request.wr.ud.remote_qkey;
  recipient_of(number) = {handle->destination, request.wr.ud.remote_qpn & 0xffffffu,
                          (q_key & kOwnQKey) != 0 ? connection_.q_key : q_key};
  return 0;
}

const Path* DatagramRequester::address(std::uint64_t number, const SendRequest& /*request*/, Headers& headers) {
  const Recipient& recipient = recipient_of(number);
  if (path_.socket == nullptr || destination_ != recipient.destination) {
    if (!connection_.nic.batch.flush()) return nullptr;
    path_ = path_to(recipient.destination, connection_.nic.ports, connection_.number);
    destination_ = recipient.destination;
  }
  headers.destination = recipient.number;
  headers.q_key = recipient.q_key;
  headers.source = connection_.number;
  return &path_;
}

}  // namespace plugfest::roce
