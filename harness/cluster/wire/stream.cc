#include "harness/cluster/wire/stream.h"

#include <charconv>
#include <utility>

namespace plugfest::cluster {
namespace {

/// Many bytes are acknowledged before the next kPing or kPong.
constexpr std::size_t kMostOwed = 256 * 1024;

}  // namespace

void Stream::send(Message message) {
  kept_bytes_ += message.body.size();
  kept_.push_back(std::move(message));
  send_beside(kept_.back());
}

void Stream::send_beside(const Message& message) const {
  if (way_) way_(message);
}

void Stream::take(Way way, std::uint64_t received) {
  forget(received);
  way_ = std::move(way);
  for (const Message& message : kept_) way_(message);
}

bool Stream::count(const Message& message) {
  ++received_;
  owed_bytes_ += message.body.size();
  if (owed_bytes_ < kMostOwed) return false;
  owed_bytes_ = 0;
  return true;
}

void Stream::acknowledge(const std::string& received) {
  std::uint64_t count = 0;
  std::from_chars(received.data(), received.data() + received.size(), count);
  forget(count);
}

void Stream::forget(std::uint64_t received) {
  for (; acknowledged_ < received && !kept_.empty(); ++acknowledged_) {
    kept_bytes_ -= kept_.front().body.size();
    kept_.pop_front();
  }
}

}  // namespace plugfest::cluster
