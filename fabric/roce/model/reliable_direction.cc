// Draws requests of a reliable connection, carries them out in the model, compares.
#include "fabric/roce/model/reliable_direction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace plugfest::roce::model {

namespace {

constexpr std::uint32_t kWords = 8;
constexpr std::uint32_t kWordBytes = 8;

std::uint64_t load(std::span<const std::uint8_t> bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

void store(std::span<std::uint8_t> bytes, std::uint64_t value) { std::memcpy(bytes.data(), &value, sizeof(value)); }

}  // namespace

ReliableDirection::ReliableDirection(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting,
                                     std::uint64_t seed)
    : Direction(here, there, queue_pair, setting, seed),
      target_(there.reserve(random_, 2 * setting.longest_bytes)),
      words_(there.reserve(random_, kWords * kWordBytes, kWordBytes)) {}

void ReliableDirection::prepare_write() {
  next_.remote = draw_part(random_, target_, next_.length);
  next_.request.wr.rdma = {there_.address_of(next_.remote), there_.remote->key()};
  // Without data the peer's memory is not looked at.
  if (next_.length == 0) next_.request.wr.rdma = {random_(), static_cast<std::uint32_t>(random_())};
}

void ReliableDirection::prepare_read() {
  const Range& whole = chance(random_, 0.8) ? target_ : words_;
  next_.length = std::min(draw_length(), whole.length);
  next_.remote = draw_part(random_, whole, next_.length);
  next_.landing = here_.reserve_pieces(random_, next_.length, setting_.capabilities.max_send_sge);
  next_.request.wr.rdma = {there_.address_of(next_.remote), there_.remote->key()};
}

void ReliableDirection::prepare_atomic() {
  next_.length = kWordBytes;
  next_.landing = here_.reserve_pieces(random_, kWordBytes, setting_.capabilities.max_send_sge);
  next_.remote = {words_.offset + draw(random_, 0, kWords - 1) * kWordBytes, kWordBytes};
  std::uint64_t compare_add = random_();
  // Every other comparison finds what it looks for, if nothing comes between.
  if (next_.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP && chance(random_, 0.5))
    compare_add = load(there_.expected(next_.remote));
  next_.request.wr.atomic = {there_.address_of(next_.remote), compare_add, random_(), there_.remote->key()};
}

void ReliableDirection::prepare() {
  static constexpr ibv_wr_opcode kOpcodes[] = {
      IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM,
      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  next_.request.opcode = kOpcodes[draw(random_, 0, std::size(kOpcodes) - 1)];
  const bool is_read = next_.request.opcode == IBV_WR_RDMA_READ;
  if (is_atomic(next_.request.opcode)) {
    prepare_atomic();
  } else if (is_read) {
    prepare_read();
  } else {
    prepare_data();
    if (is_write(next_.request.opcode)) prepare_write();
  }
  const bool changes_what_is_read =
      !is_read && std::ranges::any_of(being_read_, [&](const Range& read) { return read.overlaps(next_.remote); });
  if (changes_what_is_read || chance(random_, 0.1)) next_.request.send_flags |= IBV_SEND_FENCE;
}

void ReliableDirection::carry_out() {
  const ibv_send_wr& request = next_.request;
  if ((request.send_flags & IBV_SEND_FENCE) != 0) being_read_.clear();
  const std::span<std::uint8_t> remote = there_.expected(next_.remote);
  if (is_write(request.opcode)) {
    std::ranges::copy(next_.bytes, remote.begin());
    last_written_ = next_.remote;
    ++writes_;
  } else if (request.opcode == IBV_WR_RDMA_READ) {
    scatter(here_, next_.landing, remote);
    being_read_.push_back(next_.remote);
  } else if (is_atomic(request.opcode)) {
    const std::uint64_t before = load(remote);
    const auto& atomic = request.wr.atomic;
    scatter(here_, next_.landing, remote);
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      store(remote, before + atomic.compare_add);
    } else if (before == atomic.compare_add) {
      store(remote, atomic.swap);
    }
  }
  const bool send = is_send(request.opcode);
  const bool immediate = has_immediate(request.opcode);
  if (send || immediate)
    messages_.push_back({send, immediate, request.imm_data, next_.length, next_.bytes, last_written_, writes_});
  expect_completion();
}

std::uint32_t ReliableDirection::draw_receive_length() {
  // As long as the message that it will take, or with room left.
  const std::size_t open = posted_receives_.size();
  if (!there_.shared && open < messages_.size() && chance(receive_random_, 0.5))
    return messages_[open].is_send ? messages_[open].length : 0;
  return setting_.longest_bytes;
}

void ReliableDirection::on_message(const ibv_wc& completion, const std::vector<Range>& pieces) {
  ASSERT_FALSE(messages_.empty()) << "a message that was never sent";
  const Message message = std::move(messages_.front());
  messages_.pop_front();
  EXPECT_EQ(completion.opcode, message.is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(completion.byte_len, message.length);
  EXPECT_EQ(completion.src_qp, queue_pair_.number());
  EXPECT_EQ(completion.wc_flags, message.has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0u);
  if (message.has_immediate) {
    EXPECT_EQ(completion.imm_data, message.immediate);
  }
  if (message.is_send) scatter(there_, pieces, message.bytes);
  for (const Range& piece : pieces) {
    EXPECT_TRUE(as_expected(there_, piece)) << "receive " << completion.wr_id;
  }
  if (message.writes_before == writes_ && !is_prepared_) {
    EXPECT_TRUE(as_expected(there_, message.written_before)) << "written before receive " << completion.wr_id;
  }
}

}  // namespace plugfest::roce::model
