// Builds a NIC with drawn queues.
#include "fabric/roce/model/endpoint.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce::model {

namespace {

constexpr int kCompletions = 4096;

// A short piece again and again, as drawing and comparing all of it byte by byte takes a sanitizer long. Nothing in the
// model has its length, a prime number.
std::vector<std::uint8_t> random_bytes(Random& random, std::size_t count) {
  constexpr std::size_t kPieceBytes = 65'521;
  std::vector<std::uint8_t> bytes(count);
  std::generate_n(bytes.begin(), std::min(count, kPieceBytes), [&] { return static_cast<std::uint8_t>(random()); });
  for (std::size_t at = kPieceBytes; at < count; at += kPieceBytes)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(kPieceBytes, count - at));
  return bytes;
}

}  // namespace

Endpoint::Endpoint(std::string its_address, const Setting& setting, const FaultPlan& faults, Random& random)
    : address(std::move(its_address)),
      memory_(random_bytes(random, setting.memory_bytes)),
      expected_(memory_),
      nic({.addresses = {roce::address_of(address)}, .mtu_bytes = 65536, .faults = faults}),
      domain(nic) {
  CompletionQueueEvents events;
  events.async = [](void* context, ibv_event_type) { ++static_cast<Endpoint*>(context)->failures_; };
  events.context = this;
  sent = std::make_unique<CompletionQueue>(nic, kCompletions, events);
  if (chance(random, 0.5)) received = std::make_unique<CompletionQueue>(nic, kCompletions, events);
  local =
      std::make_unique<MemoryRegion>(domain, memory_.data(), memory_.size(), address_of({}), IBV_ACCESS_LOCAL_WRITE);
  remote = std::make_unique<MemoryRegion>(domain, memory_.data(), memory_.size(), address_of({}), kAllAccess);
  if (chance(random, 0.25))
    shared = std::make_unique<ReceiveQueue>(setting.capabilities.max_recv_wr, setting.capabilities.max_recv_sge);
  QueuePairSettings settings;
  settings.type = setting.type;
  settings.send_queue = sent.get();
  settings.receive_queue = received ? received.get() : sent.get();
  settings.shared_receives = shared.get();
  settings.capabilities = setting.capabilities;
  settings.async = [](void* context, ibv_event_type event) {
    if (event != IBV_EVENT_COMM_EST) ++static_cast<Endpoint*>(context)->failures_;
  };
  settings.context = this;
  for (unsigned i = 0; i < setting.queue_pairs; ++i)
    queue_pairs.push_back(std::make_unique<QueuePair>(domain, settings));
}

Range Endpoint::reserve(Random& random, std::uint32_t length, std::size_t alignment) {
  reserved_ += draw(random, 0, 64);
  reserved_ = (reserved_ + alignment - 1) / alignment * alignment;
  const Range range = {reserved_, length};
  reserved_ += length;
  if (reserved_ > memory_.size()) throw std::logic_error("the model's memory is too small");
  return range;
}

std::vector<Range> Endpoint::reserve_pieces(Random& random, std::uint32_t length, unsigned most) {
  std::vector<Range> pieces;
  for (auto left = draw(random, 1, most); left > 0; --left) {
    const auto part = left == 1 ? length : static_cast<std::uint32_t>(draw(random, 0, length));
    pieces.push_back(reserve(random, part));
    length -= part;
  }
  return pieces;
}

std::size_t Endpoint::first_difference() const {
  constexpr std::size_t kBlockBytes = 4096;
  std::size_t at = 0;
  while (at < memory_.size()) {
    const std::size_t block = std::min(kBlockBytes, memory_.size() - at);
    if (std::memcmp(memory_.data() + at, expected_.data() + at, block) != 0) break;
    at += block;
  }
  const auto from = static_cast<std::ptrdiff_t>(at);
  return static_cast<std::size_t>(std::mismatch(memory_.begin() + from, memory_.end(), expected_.begin() + from).first -
                                  memory_.begin());
}

}  // namespace plugfest::roce::model
