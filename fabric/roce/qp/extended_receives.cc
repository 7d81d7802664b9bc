// XRC: the shared receive queue of each request.
#include "fabric/roce/qp/reliable_responder.h"

namespace plugfest::roce {

// With XRC, uses the shared receive queue that a request names. False if it does not exist, or if the
// message has used another one.
bool ReliableResponder::use_queue_of(const Headers& headers) {
  if (connection_.transport != Transport::kExtended) return true;
  forget_receive_of_destroyed_queue();
  if (receive_taken_ && headers.shared_queue != shared_queue_) return false;
  const ExtendedReceives* const queue =
      connection_.nic.extended_receives.find(headers.shared_queue, connection_.extended_domain);
  if (queue == nullptr) return false;
  shared_queue_ = headers.shared_queue;
  receives_ = &queue->receives;
  completions_ = &queue->completions;
  domain_ = &queue->domain;
  return true;
}

void ReliableResponder::forget_receive_of_destroyed_queue() {
  if (receive_taken_ && connection_.transport == Transport::kExtended &&
      connection_.nic.extended_receives.find(shared_queue_, connection_.extended_domain) == nullptr)
    receive_taken_ = false;
}

}  // namespace plugfest::roce
