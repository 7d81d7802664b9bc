#include "harness/kernels/run/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace plugfest::kernels {
namespace {

bool same(Place one, Place other) { return one.line == other.line && std::strcmp(one.file, other.file) == 0; }

}  // namespace

std::string text_of(Place place) { return fmt::format("{}:{}", place.file, place.line); }

std::string text_of(const Index& index) { return fmt::format("({},{},{})", index.x, index.y, index.z); }

bool Barrier::arrive(Fiber& fiber, unsigned threads, Place place, unsigned alive, Released& released) {
  if (waiting_.empty()) {
    threads_ = threads;
    place_ = place;
  } else if (threads != threads_) {
    throw std::invalid_argument(
        fmt::format("the threads at a barrier expect different numbers of threads: {} at {}, {} at {}", threads_,
                    text_of(place_), threads, text_of(place)));
  } else if (threads == 0 && !same(place, place_)) {
    throw std::invalid_argument(
        fmt::format("threads of a block wait at different barriers: {} at {}, another one at {}", waiting_.size(),
                    text_of(place_), text_of(place)));
  }
  if (waiting_.size() + 1 >= (threads == 0 ? alive : threads)) {
    release(released);
    return true;
  }
  waiting_.push_back(&fiber);
  return false;
}

void Barrier::lose(unsigned alive, Released& released) {
  if (!waiting_.empty() && threads_ == 0 && waiting_.size() >= alive) release(released);
}

void Barrier::release(Released& released) {
  released.insert(released.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
}

Warp::Exchange& Warp::arrive(Fiber& fiber, std::uint32_t mask, std::uint64_t value, Released& released) {
  const std::uint32_t bit = 1U << fiber.lane();
  if ((mask & bit) == 0)
    throw std::invalid_argument(fmt::format("lane {} is not in its own mask {:#x}", fiber.lane(), mask));
  Exchange* exchange = nullptr;
  for (const auto& one : exchanges_) {
    if (one->mask == mask && one->readers == 0) {
      exchange = one.get();
      break;
    }
    if (one->mask == 0) exchange = one.get();
  }
  if (exchange == nullptr) exchange = exchanges_.emplace_back(std::make_unique<Exchange>()).get();
  exchange->mask = mask;
  exchange->arrived |= bit;
  exchange->values[fiber.lane()] = value;
  complete_if_all_are_there(*exchange, released);
  if (exchange->readers == 0) exchange->waiting.push_back(&fiber);
  return *exchange;
}

std::uint32_t Warp::read(Exchange& exchange, const Fiber& fiber, std::uint64_t* all) {
  const std::uint32_t took_part = exchange.arrived;
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    all[lane] = (took_part >> lane & 1U) != 0 ? exchange.values[lane] : 0;
  exchange.readers &= ~(1U << fiber.lane());
  if (exchange.readers == 0) exchange.mask = exchange.arrived = 0;
  return took_part;
}

void Warp::lose(const Fiber& fiber, Released& released) {
  alive_ &= ~(1U << fiber.lane());
  for (const auto& one : exchanges_)
    if (one->mask != 0 && one->readers == 0) complete_if_all_are_there(*one, released);
}

void Warp::complete_if_all_are_there(Exchange& exchange, Released& released) const {
  if (exchange.arrived != (exchange.mask & alive_)) return;
  exchange.readers = exchange.arrived;
  released.insert(released.end(), exchange.waiting.begin(), exchange.waiting.end());
  exchange.waiting.clear();
}

}  // namespace plugfest::kernels
