#include "fabric/roce/model/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce::model {
namespace {

// Far longer than any exchange takes.
constexpr std::chrono::seconds kTimeout{60};

Setting draw_setting(Random& random) {
  Setting setting;
  const auto kind = draw(random, 0, 9);
  setting.type = kind < 5 ? IBV_QPT_RC : kind < 8 ? IBV_QPT_UC : IBV_QPT_UD;
  setting.queue_pairs = static_cast<unsigned>(draw(random, 1, 4));
  setting.requests = static_cast<unsigned>(draw(random, 10, 60));
  setting.path_mtu = static_cast<ibv_mtu>(draw(random, IBV_MTU_256, IBV_MTU_4096));
  setting.reads_in_flight = static_cast<std::uint8_t>(draw(random, 1, 16));
  setting.psn =
      static_cast<std::uint32_t>(chance(random, 0.5) ? draw(random, 0xffff00, 0xffffff) : random() & 0xffffff);
  setting.max_message_bytes = static_cast<std::uint32_t>(draw(random, 5000, 30000));
  if (setting.type == IBV_QPT_RC && chance(random, 0.2)) {  // long enough for the NIC to receive in place
    setting.queue_pairs = static_cast<unsigned>(draw(random, 1, 2));
    setting.requests = static_cast<unsigned>(draw(random, 5, 20));
    setting.max_message_bytes = static_cast<std::uint32_t>(draw(random, 100'000, 400'000));
    setting.memory_bytes = std::size_t{64} << 20;
  }
  setting.capabilities = {.max_send_wr = static_cast<std::uint32_t>(draw(random, 1, 32)),
                          .max_recv_wr = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_send_sge = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_recv_sge = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_inline_data = static_cast<std::uint32_t>(draw(random, 0, 1024))};
  if (setting.type == IBV_QPT_UD) {  // a datagram is one packet of the port's MTU
    setting.path_mtu = IBV_MTU_4096;
    setting.max_message_bytes = 4096;
  }
  return setting;
}

FaultPlan draw_faults(Random& random) {
  FaultPlan plan;
  if (chance(random, 0.3)) return plan;  // without faults the NIC receives batches directly into memory
  auto some = [&] { return chance(random, 0.5) ? static_cast<double>(draw(random, 1, 80)) / 1000 : 0; };
  plan.loss = some();
  plan.duplicate = some();
  plan.reorder = some();
  plan.corrupt = some();
  if (chance(random, 0.2)) {
    plan.delay = static_cast<Nanoseconds>(draw(random, 0, 100'000));
    plan.jitter = static_cast<Nanoseconds>(draw(random, 1, 100'000));
  }
  plan.direction = static_cast<roce::Direction>(draw(random, 0, 2));
  plan.seed = random();
  return plan;
}

bool any_fault(const FaultPlan& of_sender, const FaultPlan& of_receiver, bool (*predicate)(const FaultPlan&)) {
  return (of_sender.concerns("", roce::Direction::kOut) && predicate(of_sender)) ||
         (of_receiver.concerns("", roce::Direction::kIn) && predicate(of_receiver));
}

}  // namespace

Exchange::Exchange(std::uint64_t seed) : random_(seed), setting_(draw_setting(random_)) {
  a_.faults = draw_faults(random_);
  b_.faults = draw_faults(random_);
  a_.endpoint = std::make_unique<Endpoint>(loopback_address(1), setting_, a_.faults, random_);
  b_.endpoint = std::make_unique<Endpoint>(loopback_address(2), setting_, b_.faults, random_);
  for (unsigned i = 0; i < setting_.queue_pairs; ++i) {
    connect_pair(i);
    a_.directions.push_back(make_direction(a_, b_, i));
    b_.directions.push_back(make_direction(b_, a_, i));
  }
}

void Exchange::connect_pair(unsigned index) {
  QueuePair& of_a = *a_.endpoint->queue_pairs[index];
  QueuePair& of_b = *b_.endpoint->queue_pairs[index];
  if (setting_.type == IBV_QPT_UD) {
    make_ready_for_datagrams(of_a, kQKey);
    make_ready_for_datagrams(of_b, kQKey);
    return;
  }
  Attributes attributes;
  attributes.type = setting_.type;
  attributes.path_mtu = setting_.path_mtu;
  attributes.reads_in_flight = setting_.reads_in_flight;
  attributes.psn = setting_.psn;
  connect(of_a, b_.endpoint->address, of_b.number(), attributes);
  connect(of_b, a_.endpoint->address, of_a.number(), attributes);
}

std::unique_ptr<Direction> Exchange::make_direction(Side& from, Side& to, unsigned index) {
  if (setting_.type == IBV_QPT_RC)
    return std::make_unique<ReliableDirection>(*from.endpoint, *to.endpoint, index, setting_, random_());
  const bool reorders =
      any_fault(from.faults, to.faults, [](const FaultPlan& plan) { return plan.duplicate > 0 || plan.reorder > 0; });
  auto created =
      std::make_unique<UnreliableDirection>(*from.endpoint, *to.endpoint, index, setting_, !reorders, random_());
  from.unreliable_directions.push_back(created.get());
  return created;
}

bool Exchange::done() const {
  const auto is_done = [](const auto& direction) { return direction->done(); };
  return std::ranges::all_of(a_.directions, is_done) && std::ranges::all_of(b_.directions, is_done);
}

void Exchange::dispatch(Side& side, const ibv_wc& completion) {
  for (unsigned i = 0; i < setting_.queue_pairs; ++i) {
    if (side.endpoint->queue_pairs[i]->number() != completion.qp_num) continue;
    Direction& outgoing = *side.directions[i];
    Direction& incoming = *(&side == &a_ ? b_ : a_).directions[i];
    if (completion.wr_id >= kFirstSendId) return outgoing.on_send_completion(completion);
    return incoming.on_receive_completion(completion);
  }
  ADD_FAILURE() << "completion of unknown queue pair " << completion.qp_num;
}

void Exchange::poll(Side& side, CompletionQueue* queue) {
  if (queue == nullptr) return;
  ibv_wc completions[8];
  const int count = queue->poll(static_cast<int>(draw(random_, 1, std::size(completions))), completions);
  ASSERT_GE(count, 0);
  for (int i = 0; i < count; ++i) dispatch(side, completions[i]);
}

void Exchange::exchange_all() {
  const auto start = std::chrono::steady_clock::now();
  while (!done() && !testing::Test::HasFailure()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, kTimeout) << "completions are missing";
    Direction& direction = *(chance(random_, 0.5) ? a_ : b_).directions[draw(random_, 0, setting_.queue_pairs - 1)];
    Side& side = chance(random_, 0.5) ? a_ : b_;
    switch (draw(random_, 0, 3)) {
      case 0:
        direction.post();
        break;
      case 1:
        direction.post_receive();
        break;
      case 2:
        poll(side, side.endpoint->send_completions.get());
        break;
      default:
        poll(side, side.endpoint->receive_completions.get());
    }
  }
}

// Without faults, a message that did not arrive was dropped because no receive was posted, and was counted.
bool Exchange::all_messages_counted(const Side& from, const Side& to) {
  if (any_fault(from.faults, to.faults, [](const FaultPlan& plan) { return plan.any(); })) return true;
  const Counters counters = to.endpoint->nic.counters();
  if (counters.buffer_drops > 0) return true;
  std::uint64_t deliverable = 0;
  std::uint64_t arrived = 0;
  for (const UnreliableDirection* const direction : from.unreliable_directions) {
    deliverable += direction->deliverable();
    arrived += direction->arrived();
  }
  EXPECT_LE(arrived + counters.dropped_messages, deliverable);
  if (arrived + counters.dropped_messages < deliverable) return false;
  for (UnreliableDirection* const direction : from.unreliable_directions) direction->assume_lossless();
  return true;
}

// Packets in flight may still arrive. In ERR the NICs do not access memory, and open receives are flushed.
void Exchange::finish_unreliable() {
  const auto start = std::chrono::steady_clock::now();
  while (!testing::Test::HasFailure() && (!all_messages_counted(a_, b_) || !all_messages_counted(b_, a_))) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, kTimeout) << "messages were lost without faults";
    for (Side* const side : {&a_, &b_}) {
      poll(*side, side->endpoint->send_completions.get());
      poll(*side, side->endpoint->receive_completions.get());
    }
  }
  for (Side* const side : {&a_, &b_}) {
    EXPECT_EQ(side->endpoint->failures(), 0u) << side->endpoint->address;
    side->endpoint->receives.may_flush = true;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    for (const auto& queue_pair : side->endpoint->queue_pairs)
      ASSERT_EQ(queue_pair->modify(attributes, IBV_QP_STATE), 0);
  }
  for (Side* const side : {&a_, &b_}) {
    for (CompletionQueue* const queue :
         {side->endpoint->send_completions.get(), side->endpoint->receive_completions.get()}) {
      ibv_wc completion = {};
      while (queue != nullptr && queue->poll(1, &completion) == 1 && !testing::Test::HasFailure())
        dispatch(*side, completion);
    }
    EXPECT_TRUE(side->endpoint->shared || side->endpoint->receives.open.empty())
        << "receives of " << side->endpoint->address;
  }
  for (Side* const side : {&a_, &b_})
    for (const auto& direction : side->directions) direction->check_remaining();
}

void Exchange::run() {
  exchange_all();
  if (testing::Test::HasFailure()) return;
  if (setting_.type == IBV_QPT_RC) {
    for (const Side* const side : {&a_, &b_}) EXPECT_EQ(side->endpoint->failures(), 0u) << side->endpoint->address;
  } else {
    finish_unreliable();
    if (testing::Test::HasFailure()) return;
  }
  for (const Side* const side : {&a_, &b_}) {
    EXPECT_EQ(side->endpoint->memory.first_difference(), side->endpoint->memory.size())
        << "memory of " << side->endpoint->address;
  }
}

}  // namespace plugfest::roce::model
