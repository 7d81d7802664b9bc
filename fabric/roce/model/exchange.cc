// Draws a setting, connects, posts and polls.
#include "fabric/roce/model/exchange.h"

#include <gtest/gtest.h>

#include <chrono>

#include "fabric/roce/two_nics.h"

namespace plugfest::roce::model {

namespace {

// Only an exchange that is stuck takes as long as this.
constexpr std::chrono::seconds kPatience{60};

Setting draw_setting(Random& random) {
  Setting setting;
  setting.queue_pairs = static_cast<unsigned>(draw(random, 1, 4));
  setting.requests = static_cast<unsigned>(draw(random, 10, 60));
  setting.path_mtu = static_cast<ibv_mtu>(draw(random, IBV_MTU_256, IBV_MTU_4096));
  setting.reads_in_flight = static_cast<std::uint8_t>(draw(random, 1, 16));
  setting.psn =
      static_cast<std::uint32_t>(chance(random, 0.5) ? draw(random, 0xffff00, 0xffffff) : random() & 0xffffff);
  setting.longest_bytes = static_cast<std::uint32_t>(draw(random, 5000, 30000));
  setting.capabilities = {.max_send_wr = static_cast<std::uint32_t>(draw(random, 1, 32)),
                          .max_recv_wr = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_send_sge = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_recv_sge = static_cast<std::uint32_t>(draw(random, 1, 16)),
                          .max_inline_data = static_cast<std::uint32_t>(draw(random, 0, 1024))};
  return setting;
}

FaultPlan draw_faults(Random& random) {
  FaultPlan plan;
  if (chance(random, 0.3)) return plan;  // batches stay whole, and go straight into memory
  auto some = [&] { return chance(random, 0.5) ? static_cast<double>(draw(random, 1, 80)) / 1000 : 0; };
  plan.drop = some();
  plan.duplicate = some();
  plan.reorder = some();
  plan.corrupt = some();
  plan.seed = random();
  return plan;
}

}  // namespace

Exchange::Exchange(std::uint64_t seed) : random_(seed), setting_(draw_setting(random_)) {
  const FaultPlan faults_of_a = draw_faults(random_);
  const FaultPlan faults_of_b = draw_faults(random_);
  a_ = std::make_unique<Endpoint>(loopback_address(1), setting_, faults_of_a, random_);
  b_ = std::make_unique<Endpoint>(loopback_address(2), setting_, faults_of_b, random_);
  Attributes attributes;
  attributes.path_mtu = setting_.path_mtu;
  attributes.reads_in_flight = setting_.reads_in_flight;
  attributes.psn = setting_.psn;
  for (unsigned i = 0; i < setting_.queue_pairs; ++i) {
    connect(*a_->queue_pairs[i], b_->address, b_->queue_pairs[i]->number(), attributes);
    connect(*b_->queue_pairs[i], a_->address, a_->queue_pairs[i]->number(), attributes);
    from_a_.emplace_back(*a_, *b_, i, setting_, random_());
    from_b_.emplace_back(*b_, *a_, i, setting_, random_());
  }
}

bool Exchange::done() const {
  for (unsigned i = 0; i < setting_.queue_pairs; ++i)
    if (!from_a_[i].done() || !from_b_[i].done()) return false;
  return true;
}

void Exchange::take(Endpoint& end, const ibv_wc& completion) {
  for (unsigned i = 0; i < setting_.queue_pairs; ++i) {
    if (end.queue_pairs[i]->number() != completion.qp_num) continue;
    Direction& outgoing = &end == a_.get() ? from_a_[i] : from_b_[i];
    Direction& incoming = &end == a_.get() ? from_b_[i] : from_a_[i];
    if ((completion.opcode & IBV_WC_RECV) != 0) return incoming.on_receive_completion(completion);
    return outgoing.on_send_completion(completion);
  }
  ADD_FAILURE() << "a completion of queue pair " << completion.qp_num << ", which is none of ours";
}

void Exchange::poll(Endpoint& end, CompletionQueue* queue) {
  if (queue == nullptr) return;
  ibv_wc completions[8];
  const int count = queue->poll(static_cast<int>(draw(random_, 1, std::size(completions))), completions);
  ASSERT_GE(count, 0);
  for (int i = 0; i < count; ++i) take(end, completions[i]);
}

void Exchange::run() {
  const auto start = std::chrono::steady_clock::now();
  while (!done() && !testing::Test::HasFailure()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, kPatience) << "completions are missing";
    Direction& direction = (chance(random_, 0.5) ? from_a_ : from_b_)[draw(random_, 0, setting_.queue_pairs - 1)];
    Endpoint& end = chance(random_, 0.5) ? *a_ : *b_;
    switch (draw(random_, 0, 3)) {
      case 0:
        direction.post();
        break;
      case 1:
        direction.post_receive();
        break;
      case 2:
        poll(end, end.sent.get());
        break;
      default:
        poll(end, end.received.get());
    }
  }
  if (testing::Test::HasFailure()) return;
  for (Endpoint* const end : {a_.get(), b_.get()}) {
    EXPECT_EQ(end->first_difference(), end->memory_bytes()) << "the memory of " << end->address;
    EXPECT_EQ(end->failures(), 0u) << end->address;
  }
}

}  // namespace plugfest::roce::model
