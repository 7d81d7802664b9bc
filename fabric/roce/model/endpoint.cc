#include "fabric/roce/model/endpoint.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce::model {
namespace {

// Repeats a random block: drawing every byte is slow with a sanitizer. The block length is prime and therefore differs
// from the lengths of messages and pieces.
std::vector<std::uint8_t> random_bytes(Random& random, std::size_t count) {
  constexpr std::size_t kBlockBytes = 65'521;
  std::vector<std::uint8_t> bytes(count);
  std::generate_n(bytes.begin(), std::min(count, kBlockBytes), [&] { return static_cast<std::uint8_t>(random()); });
  for (std::size_t at = kBlockBytes; at < count; at += kBlockBytes)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(kBlockBytes, count - at));
  return bytes;
}

}  // namespace

ModelMemory::ModelMemory(std::size_t bytes, Random& random)
    : actual_(random_bytes(random, bytes)), expected_(actual_) {}

Range ModelMemory::reserve(Random& random, std::uint32_t length, std::size_t alignment) {
  reserved_ += draw(random, 0, 64);
  reserved_ = (reserved_ + alignment - 1) / alignment * alignment;
  const Range range = {reserved_, length};
  reserved_ += length;
  if (reserved_ > actual_.size()) throw std::logic_error("the model's memory is too small");
  return range;
}

std::vector<Range> ModelMemory::reserve_pieces(Random& random, std::uint32_t length, unsigned max_pieces) {
  std::vector<Range> pieces;
  for (auto left = draw(random, 1, max_pieces); left > 0; --left) {
    const auto part = left == 1 ? length : static_cast<std::uint32_t>(draw(random, 0, length));
    pieces.push_back(reserve(random, part));
    length -= part;
  }
  return pieces;
}

bool ModelMemory::matches(const Range& range) { return std::ranges::equal(actual(range), expected(range)); }

void ModelMemory::scatter_expected(const std::vector<Range>& pieces, std::span<const std::uint8_t> bytes) {
  for (const Range& piece : pieces) {
    const std::size_t part = std::min<std::size_t>(piece.length, bytes.size());
    std::copy_n(bytes.begin(), part, expected(piece).begin());
    bytes = bytes.subspan(part);
  }
}

void ModelMemory::accept(const Range& range) { std::ranges::copy(actual(range), expected(range).begin()); }

std::size_t ModelMemory::first_difference() const {
  constexpr std::size_t kBlockBytes = 4096;
  std::size_t at = 0;
  while (at < actual_.size()) {
    const std::size_t block = std::min(kBlockBytes, actual_.size() - at);
    if (std::memcmp(actual_.data() + at, expected_.data() + at, block) != 0) break;
    at += block;
  }
  const auto from = static_cast<std::ptrdiff_t>(at);
  return static_cast<std::size_t>(std::mismatch(actual_.begin() + from, actual_.end(), expected_.begin() + from).first -
                                  actual_.begin());
}

namespace {

constexpr int kCompletions = 4096;

}  // namespace

Endpoint::Endpoint(std::string its_address, const Setting& setting, const FaultPlan& faults, Random& random)
    : address(std::move(its_address)),
      memory(setting.memory_bytes, random),
      nic({.addresses = {roce::address_of(address)}, .mtu_bytes = 65536, .faults = faults}),
      domain(nic.memory()) {
  CompletionQueueEvents events;
  events.async = [](void* context, ibv_event_type) { ++static_cast<Endpoint*>(context)->failures_; };
  events.context = this;
  send_completions = std::make_unique<CompletionQueue>(nic.context(), kCompletions, events);
  if (chance(random, 0.5)) receive_completions = std::make_unique<CompletionQueue>(nic.context(), kCompletions, events);
  local = std::make_unique<MemoryRegion>(domain, memory.data(), memory.size(), memory.address_of({}),
                                         IBV_ACCESS_LOCAL_WRITE);
  remote = std::make_unique<MemoryRegion>(domain, memory.data(), memory.size(), memory.address_of({}), kAllAccess);
  if (chance(random, 0.25))
    shared = std::make_unique<ReceiveQueue>(setting.capabilities.max_recv_wr, setting.capabilities.max_recv_sge);
  QueuePairSettings settings;
  settings.type = setting.type;
  settings.send_queue = send_completions.get();
  settings.receive_queue = receive_completions ? receive_completions.get() : send_completions.get();
  settings.shared_receives = shared.get();
  settings.capabilities = setting.capabilities;
  settings.async = [](void* context, ibv_event_type event) {
    if (event != IBV_EVENT_COMM_EST) ++static_cast<Endpoint*>(context)->failures_;
  };
  settings.context = this;
  for (unsigned i = 0; i < setting.queue_pairs; ++i)
    queue_pairs.push_back(std::make_unique<QueuePair>(nic.context(), domain, settings));
}

}  // namespace plugfest::roce::model
