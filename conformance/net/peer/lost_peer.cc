// Sends and waits for the error.
#include "conformance/net/peer/lost_peer.h"

#include <fmt/format.h>

#include <thread>

#include "fabric/system/text.h"

namespace plugfest::conformance {

using control::Outcome;
using control::PointerOutcome;
using control::Request;

void LostPeer::connect_ranks(const control::Environment& environment) {
  sender_ = near_endpoint({.fresh = true, .environment = environment});
  receiver_ = far_endpoint({.fresh = true, .environment = environment});
  connection_ = connect_and_deliver(*sender_, *receiver_, random()());
  from_ = allocate(sender_->rank, connection_->send, kMessages * kSize);
  to_ = allocate(receiver_->rank, connection_->receive, kMessages * kSize);
  receives_ = post_ahead(connection_->receive, *to_, kSize, kMessages);
}

std::optional<PointerOutcome> LostPeer::post_send(std::size_t index) {
  control::StallLimit limit = detection_limit();
  while (!limit.expired()) {
    PointerOutcome outcome = connection_->send.try_isend(from_->buffer(index * kSize, kSize));
    if (!outcome.ok() || outcome.value != 0) return outcome;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

Outcome LostPeer::send_until_error(std::string_view event, std::vector<Request> requests, std::size_t first) {
  control::StallLimit limit = detection_limit();
  for (std::size_t i = 0; first + i < receives_.size(); ++i) {
    if (i == requests.size()) {
      const auto sent = post_send(first + i);
      expect(sent.has_value(),
             fmt::format("rank {}: isend still returned no request {} s after {}, expected a request or an error",
                         sender_->rank.name(), limit.seconds(), event));
      if (!sent->ok()) return *sent;
      requests.push_back(connection_->send.request(sent->value));
    }
    for (;;) {
      const control::TestOutcome outcome = requests[i].try_test();
      if (!outcome.ok()) return outcome;
      if (outcome.done == 1) break;
      expect(!limit.expired(), fmt::format("rank {}: test still wrote *done = 0 {} s after {}, expected an error",
                                           sender_->rank.name(), limit.seconds(), event));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  broken(fmt::format("rank {}: test completed {} of {} bytes although {} before they arrived, expected an error",
                     sender_->rank.name(), counted(requests.size(), "send"), kSize, event));
}

void LostPeer::check_code(const Outcome& outcome, std::string_view event) {
  observe(fmt::format("the error after {} was {}", event, control::result_name(outcome.code)));
  should(outcome.code == control::kSystemError || outcome.code == control::kRemoteError,
         fmt::format("{} returned {} after {}, expected ncclSystemError or ncclRemoteError", outcome.call,
                     control::result_name(outcome.code), event));
}

}  // namespace plugfest::conformance
