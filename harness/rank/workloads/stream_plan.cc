#include "harness/rank/workloads/stream_plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "harness/rank/workloads/pattern.h"

namespace plugfest::rank {

namespace {

// Selects an independent sequence of random numbers for each purpose.
enum Purpose : std::uint64_t { kForSize = 1, kForContents = 2, kForWidth = 3, kForOrder = 4 };

std::uint64_t draw(std::uint64_t seed, Purpose purpose, std::uint64_t index) { return mix(seed * 8 + purpose, index); }

}  // namespace

StreamPlan::StreamPlan(const Stream& request) : request_(request) {
  if (request_.sizes.empty() || request_.window == 0 || request_.group == 0 || request_.check_every == 0) {
    throw std::invalid_argument("a stream needs sizes, a window, a group and check_every of at least 1");
  }
  largest_ = std::max(request_.posted_size, *std::max_element(request_.sizes.begin(), request_.sizes.end()));
}

std::uint32_t StreamPlan::size(std::uint64_t k) const {
  return request_.sizes[draw(request_.seed, kForSize, k) % request_.sizes.size()];
}

std::uint32_t StreamPlan::posted_size(std::uint64_t k) const {
  return request_.posted_size != 0 ? request_.posted_size : size(k);
}

std::uint64_t StreamPlan::contents(std::uint64_t k) const { return draw(request_.seed, kForContents, k); }

Group StreamPlan::next(const Group& group) const {
  Group next;
  next.first = group.first + group.width;
  next.number = group.width == 0 ? 0 : group.number + 1;
  const std::uint64_t left = request_.count - next.first;
  next.width = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(left, 1 + draw(request_.seed, kForWidth, next.number) % request_.group));
  return next;
}

std::vector<std::uint32_t> StreamPlan::posting_order(const Group& group) const {
  std::vector<std::uint32_t> places(group.width);
  std::iota(places.begin(), places.end(), 0u);
  for (std::uint32_t i = group.width; i > 1; --i) {
    const std::uint64_t other = draw(request_.seed, kForOrder, group.first + i) % i;
    std::swap(places[i - 1], places[other]);
  }
  return places;
}

}  // namespace plugfest::rank
