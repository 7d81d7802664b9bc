// Selects requester and responder by transport.
#include "fabric/roce/qp/transports.h"

#include <cerrno>
#include <system_error>

#include "fabric/roce/qp/reliable/reliable_requester.h"
#include "fabric/roce/qp/reliable/reliable_responder.h"
#include "fabric/roce/qp/unreliable/datagram_requester.h"
#include "fabric/roce/qp/unreliable/datagram_responder.h"
#include "fabric/roce/qp/unreliable/unreliable_requester.h"
#include "fabric/roce/qp/unreliable/unreliable_responder.h"

namespace plugfest::roce {

Transport transport_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return Transport::kReliable;
    case IBV_QPT_UC:
      return Transport::kUnreliable;
    case IBV_QPT_UD:
      return Transport::kDatagram;
    default:
      throw std::system_error(EOPNOTSUPP, std::generic_category(), "queue pair type");
  }
}

std::unique_ptr<Requester> make_requester(Connection& connection, const QueuePairSettings& settings) {
  CompletionQueue& completions = *settings.send_queue;
  const ibv_qp_cap& capabilities = settings.capabilities;
  const bool signal_all = settings.signal_all;
  switch (connection.transport) {
    case Transport::kUnreliable:
      return std::make_unique<UnreliableRequester>(connection, completions, capabilities, signal_all);
    case Transport::kDatagram:
      return std::make_unique<DatagramRequester>(connection, completions, capabilities, signal_all);
    case Transport::kReliable:
    case Transport::kNotification:  // no queue pair has this transport
      break;
  }
  return std::make_unique<ReliableRequester>(connection, completions, capabilities, signal_all);
}

std::unique_ptr<Responder> make_responder(Connection& connection, CompletionQueue& completions,
                                          ReceiveQueue& receives) {
  switch (connection.transport) {
    case Transport::kUnreliable:
      return std::make_unique<UnreliableResponder>(connection, completions, receives);
    case Transport::kDatagram:
      return std::make_unique<DatagramResponder>(connection, completions, receives);
    case Transport::kReliable:
    case Transport::kNotification:  // no queue pair has this transport
      break;
  }
  return std::make_unique<ReliableResponder>(connection, completions, receives);
}

}  // namespace plugfest::roce
