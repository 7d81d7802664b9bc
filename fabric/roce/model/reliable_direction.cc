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

ReliableDirection::ReliableDirection(Endpoint& sender, Endpoint& receiver, unsigned queue_pair, const Setting& setting,
                                     std::uint64_t seed)
    : Direction(sender, receiver, queue_pair, setting, seed),
      target_(receiver.memory.reserve(random_, 2 * setting.max_message_bytes)),
      words_(receiver.memory.reserve(random_, kWords * kWordBytes, kWordBytes)) {}

void ReliableDirection::prepare_write() {
  next_.remote = draw_part(random_, target_, next_.length);
  next_.request.wr.rdma = {receiver_.memory.address_of(next_.remote), receiver_.remote->key()};
  // The responder does not check the memory of a request without data.
  if (next_.length == 0) next_.request.wr.rdma = {random_(), static_cast<std::uint32_t>(random_())};
}

void ReliableDirection::prepare_read() {
  const Range& whole = chance(random_, 0.8) ? target_ : words_;
  next_.length = std::min(draw_length(), whole.length);
  next_.remote = draw_part(random_, whole, next_.length);
  next_.destination = sender_.memory.reserve_pieces(random_, next_.length, setting_.capabilities.max_send_sge);
  next_.request.wr.rdma = {receiver_.memory.address_of(next_.remote), receiver_.remote->key()};
}

void ReliableDirection::prepare_atomic() {
  next_.length = kWordBytes;
  next_.destination = sender_.memory.reserve_pieces(random_, kWordBytes, setting_.capabilities.max_send_sge);
  next_.remote = {words_.offset + draw(random_, 0, kWords - 1) * kWordBytes, kWordBytes};
  std::uint64_t compare_add = random_();
  // Half of the comparisons succeed, unless another atomic comes first.
  if (next_.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP && chance(random_, 0.5))
    compare_add = load(receiver_.memory.expected(next_.remote));
  next_.request.wr.atomic = {receiver_.memory.address_of(next_.remote), compare_add, random_(),
                             receiver_.remote->key()};
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
  const bool overwrites_read =
      !is_read && std::ranges::any_of(unfenced_reads_, [&](const Range& read) { return read.overlaps(next_.remote); });
  if (overwrites_read || chance(random_, 0.1)) next_.request.send_flags |= IBV_SEND_FENCE;
}

void ReliableDirection::apply() {
  const ibv_send_wr& request = next_.request;
  if ((request.send_flags & IBV_SEND_FENCE) != 0) unfenced_reads_.clear();
  const std::span<std::uint8_t> remote = receiver_.memory.expected(next_.remote);
  if (is_write(request.opcode)) {
    std::ranges::copy(next_.bytes, remote.begin());
    last_written_ = next_.remote;
    ++writes_;
  } else if (request.opcode == IBV_WR_RDMA_READ) {
    sender_.memory.scatter_expected(next_.destination, remote);
    unfenced_reads_.push_back(next_.remote);
  } else if (is_atomic(request.opcode)) {
    const std::uint64_t before = load(remote);
    const auto& atomic = request.wr.atomic;
    sender_.memory.scatter_expected(next_.destination, remote);
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
  expect_send_completion();
}

std::uint32_t ReliableDirection::draw_receive_length() {
  // Exactly as long as its message, or longer.
  const std::size_t open = posted_receives_.size();
  if (!receiver_.shared && open < messages_.size() && chance(receive_random_, 0.5))
    return messages_[open].is_send ? messages_[open].length : 0;
  return setting_.max_message_bytes;
}

void ReliableDirection::on_message(const ibv_wc& completion, const std::vector<Range>& pieces) {
  ASSERT_FALSE(messages_.empty()) << "unexpected message";
  const Message message = std::move(messages_.front());
  messages_.pop_front();
  EXPECT_EQ(completion.opcode, message.is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(completion.byte_len, message.length);
  EXPECT_EQ(completion.src_qp, sender_qp_.number());
  EXPECT_EQ(completion.wc_flags, message.has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0u);
  if (message.has_immediate) {
    EXPECT_EQ(completion.imm_data, message.immediate);
  }
  if (message.is_send) receiver_.memory.scatter_expected(pieces, message.bytes);
  for (const Range& piece : pieces) {
    EXPECT_TRUE(receiver_.memory.matches(piece)) << "receive " << completion.wr_id;
  }
  if (message.writes_before == writes_ && !prepared_) {
    EXPECT_TRUE(receiver_.memory.matches(message.written_before)) << "WRITE before receive " << completion.wr_id;
  }
}

}  // namespace plugfest::roce::model
