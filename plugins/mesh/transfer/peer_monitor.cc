// Reads the peer's Goodbye and the end of its TCP connection.
#include "plugins/mesh/transfer/peer_monitor.h"

#include "plugins/mesh/clock.h"
#include "plugins/mesh/failure.h"

namespace mesh {
namespace {

constexpr std::int64_t kGraceMs = 20;

}  // namespace

void PeerMonitor::read() {
  if (left_) return;
  if (stream_ != nullptr) {
    left_ = stream_->ended();
    messages_received_ = stream_->goodbye();
    if (left_) left_at_ms_ = coarse_now_ms();
    return;
  }
  try {
    while (const std::optional<Message> message = link_.receive()) {
      left_ = true;
      const auto* goodbye = std::get_if<Goodbye>(&*message);
      if (goodbye != nullptr && goodbye->of_listener != key_.is_listener &&
          is_proven(*goodbye, key_.secret, key_.nonce)) {
        messages_received_ = goodbye->messages_received;
      } else {
        break;
      }
    }
    if (link_.ended()) left_ = true;
  } catch (const Failure&) {
    left_ = true;  // a malformed message
  }
  if (left_) left_at_ms_ = coarse_now_ms();
}

bool PeerMonitor::poll(std::int64_t now_ms) {
  if (now_ms == polled_at_ms_) return false;
  polled_at_ms_ = now_ms;
  if (left_) return now_ms - left_at_ms_ >= kGraceMs;
  read();
  return false;
}

void PeerMonitor::say_goodbye(std::uint64_t messages_received) {
  if (stream_ != nullptr) return stream_->say_goodbye(messages_received);
  const Goodbye goodbye = {.messages_received = messages_received, .of_listener = key_.is_listener};
  link_.send(with_proof(goodbye, key_.secret, key_.nonce));
  link_.finish();
}

}  // namespace mesh
