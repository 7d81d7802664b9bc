#include "conformance/net/script/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "fabric/system/text.h"

namespace plugfest::conformance {

using control::Buffer;
using control::Connection;
using control::Endpoint;
using control::Part;

Flow::Flow(Traffic& traffic, std::mt19937_64& random, Endpoint sender, Endpoint receiver, Connection connection,
           std::size_t slots, std::size_t slot_size)
    : traffic_(&traffic),
      random_(&random),
      sender_(std::move(sender)),
      receiver_(std::move(receiver)),
      connection_(std::move(connection)),
      slot_size_(slot_size),
      from_(allocate(sender_.rank, connection_.send, slots * slot_size)),
      to_(allocate(receiver_.rank, connection_.receive, slots * slot_size)) {}

Buffer Flow::source(std::size_t slot, std::size_t size) const { return from_.buffer(slot * slot_size_, bytes(size)); }

Buffer Flow::target(std::size_t slot, std::size_t size) const { return to_.buffer(slot * slot_size_, bytes(size)); }

Buffer Flow::fill(std::size_t slot, std::size_t size, int tag) {
  const Buffer buffer = source(slot, size);
  const std::uint64_t seed = (*random_)();
  sender_.rank.fill(buffer.slice, seed);
  unchecked_.insert_or_assign(slot, Message{seed, buffer.slice.size, tag});
  return buffer;
}

Flow::Ticket Flow::send(std::size_t slot, std::size_t size, int tag) {
  return traffic_->send(connection_.send, fill(slot, size, tag), tag);
}

Flow::Ticket Flow::send_filled(std::size_t slot) {
  const Message& message = unchecked_.at(slot);
  return traffic_->send(connection_.send, source(slot, message.size), message.tag);
}

Flow::Ticket Flow::receive(std::size_t slot, std::size_t size, int tag, const control::PostOptions& options) {
  return traffic_->receive(connection_.receive, target(slot, size), tag, options);
}

std::vector<Part> Flow::parts(std::size_t first, const std::vector<int>& tags) const {
  std::vector<Part> parts;
  for (const int tag : tags) parts.push_back({target(first++), tag});
  return parts;
}

Flow::Ticket Flow::receive_group(std::size_t first, const std::vector<int>& tags) {
  return traffic_->receive(connection_.receive, parts(first, tags));
}

control::Started<control::WatchOutcome> Flow::watch(std::size_t slot) {
  const Message& message = unchecked_.at(slot);
  return control::start_watching(receiver_.rank, target(slot, message.size).slice, message.seed);
}

void Flow::check(std::size_t slot) {
  const Message message = unchecked_.at(slot);
  unchecked_.erase(slot);
  require_content(receiver_.rank, target(slot, message.size).slice, message.seed,
                  fmt::format("message {} ({}, tag {})", slot, counted(message.size, "byte"), message.tag));
}

void Flow::check() {
  while (!unchecked_.empty()) check(unchecked_.begin()->first);
}

void Flow::finish() {
  traffic_->finish();
  check();
}

int Flow::exchange(std::size_t slot, std::size_t size, int tag) {
  const Ticket received = receive(slot, size, tag);
  send(slot, size, tag);
  finish();
  return traffic_->size(received);
}

Traffic& MessageRule::traffic() {
  if (!traffic_) traffic_.emplace(stall_limit());
  return *traffic_;
}

Flow MessageRule::make_flow(std::size_t slots, std::size_t slot_size) {
  return make_flow(sender(), receiver(), slots, slot_size);
}

Flow MessageRule::make_flow(const Endpoint& from, const Endpoint& to, std::size_t slots, std::size_t slot_size) {
  return {traffic(), random(), from, to, control::connect(from, to), slots, slot_size};
}

Flow MessageRule::make_flow(const Connection& connection, std::size_t slots, std::size_t slot_size) {
  return {traffic(), random(), sender(), receiver(), connection, slots, slot_size};
}

std::size_t MessageRule::max_recvs() {
  Endpoint endpoint = receiver();
  return static_cast<std::size_t>(std::clamp(endpoint.rank.properties(endpoint.device).max_recvs, 1, 64));
}

std::size_t MessageRule::widest_group() {
  const std::size_t widest = max_recvs();
  if (widest < 2) not_applicable("maxRecvs is 1: no grouped receives");
  return widest;
}

std::vector<std::size_t> MessageRule::shuffled(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random_between(0, i)]);
  return order;
}

std::vector<int> tags_from(int first, std::size_t count) {
  std::vector<int> tags(count);
  std::iota(tags.begin(), tags.end(), first);
  return tags;
}

}  // namespace plugfest::conformance
