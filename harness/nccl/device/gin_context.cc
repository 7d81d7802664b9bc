#include "harness/nccl/device/gin_context.h"

#include <atomic>

namespace plugfest::nccl::device {
namespace {

// The lowest bit of each word of a descriptor.
constexpr std::uint64_t kReady = 1;
// Operations of a descriptor.
constexpr std::uint64_t kPut = 1, kWithIncrement = 8;

template <typename Word>
Word load(Word& word, std::memory_order order) {
  return std::atomic_ref<Word>(word).load(order);
}

}  // namespace

GinContext::GinContext(const v2_28::DeviceComm& comm, std::size_t number)
    : comm_(comm), number_(number), queues_(*static_cast<const v2_28::GinQueues*>(comm.gin_handles[number])) {}

bool GinContext::put(int peer, Place target, Place source, std::size_t bytes, std::uint32_t signal) {
  const auto offset = [](const Place& place) {
    return place.window == nullptr ? 0 : std::uint64_t{4096} * place.window->gin_offset + place.offset;
  };
  const auto handle = [&](const Place& place) {
    return place.window == nullptr ? 0 : reinterpret_cast<std::uint64_t>(place.window->gin_handles[number_]);
  };
  std::uint32_t& produced = queues_.produced[peer];
  if (produced - load(queues_.consumed[peer], std::memory_order_relaxed) >= queues_.length) return false;

  const std::uint64_t signal_number = comm_.first_signal + signal;
  const std::uint64_t added = 1;
  const v2_28::GinDescriptor words = {(kPut | kWithIncrement) << 1 | bytes << 7,
                                      offset(source) << 1,
                                      handle(source) << 1,
                                      offset(target) << 1,
                                      handle(target) << 1,
                                      signal_number << 24 | added << 40,
                                      0,
                                      0};
  v2_28::GinDescriptor& slot =
      queues_.descriptors[static_cast<std::size_t>(peer) * queues_.length + produced % queues_.length];
  std::atomic_ref(produced).store(produced + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i)
    std::atomic_ref(slot[i]).store(words[i] | kReady, std::memory_order_relaxed);
  return true;
}

std::uint64_t GinContext::read_signal(std::uint32_t signal) const {
  return load(queues_.signals[comm_.first_signal + signal], std::memory_order_acquire);
}

void GinContext::reset_signal(std::uint32_t signal) const {
  std::atomic_ref(queues_.signals[comm_.first_signal + signal]).store(0, std::memory_order_relaxed);
}

bool GinContext::is_flushed(int peer) const {
  // The numbers wrap.
  return static_cast<std::int32_t>(load(queues_.consumed[peer], std::memory_order_acquire) - queues_.produced[peer]) >=
         0;
}

}  // namespace plugfest::nccl::device
