#include "fabric/roce/model/direction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace plugfest::roce::model {
namespace {

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_write(ibv_wr_opcode opcode) { return completion_opcode(opcode) == IBV_WC_RDMA_WRITE; }
bool is_send(ibv_wr_opcode opcode) { return completion_opcode(opcode) == IBV_WC_SEND; }
bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

Range draw_part(Random& random, const Range& whole, std::uint32_t length) {
  return {whole.offset + draw(random, 0, whole.length - length), length};
}

Direction::Direction(Endpoint& sender, Endpoint& receiver, unsigned queue_pair, const Setting& setting,
                     std::uint64_t seed)
    : sender_(sender),
      receiver_(receiver),
      sender_qp_(*sender.queue_pairs[queue_pair]),
      receiver_qp_(*receiver.queue_pairs[queue_pair]),
      setting_(setting),
      random_(seed),
      receive_random_(seed + 1),
      source_(sender.memory.reserve(random_, 2 * setting.max_message_bytes)),
      left_(setting.requests) {}

std::uint32_t Direction::draw_length() {
  const std::uint32_t mtu = 128u << setting_.path_mtu;
  const auto kind = draw(random_, 0, 9);
  if (kind == 0) return 0;
  if (kind <= 3) return static_cast<std::uint32_t>(draw(random_, 1, 64));
  if (kind <= 6) {
    const auto packets = draw(random_, 1, setting_.max_message_bytes / mtu);
    return std::min(static_cast<std::uint32_t>(packets * mtu + draw(random_, 0, 2)) - 1, setting_.max_message_bytes);
  }
  return static_cast<std::uint32_t>(draw(random_, 1, setting_.max_message_bytes));
}

void Direction::prepare_data() {
  ibv_send_wr& request = next_.request;
  next_.length = draw_length();
  const bool is_inline = chance(random_, 0.3);
  if (is_inline) next_.length = std::min(next_.length, setting_.capabilities.max_inline_data);
  const unsigned max_pieces = setting_.capabilities.max_send_sge;
  std::uint32_t left = next_.length;
  for (auto pieces = draw(random_, left == 0 ? 0 : 1, max_pieces); pieces > 0; --pieces) {
    const auto part = pieces == 1 ? left : static_cast<std::uint32_t>(draw(random_, 0, left));
    const Range from = draw_part(random_, source_, part);
    next_.segments.push_back(sender_.segment_of(from));
    const auto bytes = sender_.memory.expected(from);
    next_.bytes.insert(next_.bytes.end(), bytes.begin(), bytes.end());
    left -= part;
  }
  if (is_inline) {  // needs no registered memory, and only until post_send() returns
    request.send_flags |= IBV_SEND_INLINE;
    next_.inline_data = next_.bytes;
    next_.segments = {{reinterpret_cast<std::uint64_t>(next_.inline_data.data()), next_.length, 0}};
  }
  if (has_immediate(request.opcode)) request.imm_data = static_cast<std::uint32_t>(random_());
  if (chance(random_, 0.5)) request.send_flags |= IBV_SEND_SOLICITED;
}

void Direction::post() {
  if (left_ == 0) return;
  if (!prepared_) {
    next_ = {};
    next_.request.wr_id = next_id_++;
    // The completion of the last request implies that all requests are complete.
    if (left_ == 1 || chance(random_, 0.7)) next_.request.send_flags |= IBV_SEND_SIGNALED;
    prepare();
    for (const Range& piece : next_.destination) next_.segments.push_back(sender_.segment_of(piece));
    prepared_ = true;
  }
  next_.request.sg_list = next_.segments.data();
  next_.request.num_sge = static_cast<int>(next_.segments.size());
  ibv_send_wr* bad = nullptr;
  const int error = sender_qp_.post_send(&next_.request, &bad);
  if (error == ENOMEM) return;  // queue full: retry with the next call
  ASSERT_EQ(error, 0);
  std::ranges::fill(next_.inline_data, std::uint8_t{0xee});
  apply();
  prepared_ = false;
  --left_;
}

void Direction::expect_send_completion() {
  if ((next_.request.send_flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc completion = {};
  completion.wr_id = next_.request.wr_id;
  completion.opcode = completion_opcode(next_.request.opcode);
  completion.byte_len = next_.length;
  expected_sends_.push_back({completion, next_.destination});
}

void Direction::on_send_completion(const ibv_wc& completion) {
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  ASSERT_FALSE(expected_sends_.empty()) << "unexpected completion of request " << completion.wr_id;
  const ExpectedSend expected = std::move(expected_sends_.front());
  expected_sends_.pop_front();
  ASSERT_EQ(completion.wr_id, expected.completion.wr_id);
  EXPECT_EQ(completion.opcode, expected.completion.opcode) << "request " << completion.wr_id;
  for (const Range& piece : expected.destination)
    EXPECT_TRUE(sender_.memory.matches(piece)) << "data of request " << completion.wr_id;
  EXPECT_TRUE(expected.destination.empty() || completion.byte_len == expected.completion.byte_len)
      << "request " << completion.wr_id << ": " << completion.byte_len << " bytes";
}

void Direction::post_receive() {
  const std::size_t open = receiver_.shared ? receiver_.receives.open.size() : posted_receives_.size();
  if (open >= setting_.capabilities.max_recv_wr || !wants_receive(open)) return;
  const std::vector<Range> pieces =
      receiver_.memory.reserve_pieces(receive_random_, draw_receive_length(), setting_.capabilities.max_recv_sge);
  std::vector<ibv_sge> segments;
  for (const Range& piece : pieces) segments.push_back(receiver_.segment_of(piece));
  ibv_recv_wr request = {};
  request.wr_id = receiver_.receives.pieces.size();
  request.sg_list = segments.data();
  request.num_sge = static_cast<int>(segments.size());
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(receiver_.shared ? receiver_.shared->post(&request, &bad) : receiver_qp_.post_receive(&request, &bad), 0);
  receiver_.receives.open.insert(request.wr_id);
  if (!receiver_.shared) posted_receives_.push_back(request.wr_id);
  receiver_.receives.pieces.push_back(pieces);
}

void Direction::on_receive_completion(const ibv_wc& completion) {
  if (receiver_.shared) {
    ASSERT_TRUE(receiver_.receives.open.contains(completion.wr_id)) << "receive " << completion.wr_id << " is not open";
  } else {
    ASSERT_FALSE(posted_receives_.empty());
    ASSERT_EQ(completion.wr_id, posted_receives_.front());
    posted_receives_.pop_front();
  }
  receiver_.receives.open.erase(completion.wr_id);
  const std::vector<Range>& pieces = receiver_.receives.pieces[completion.wr_id];
  if (completion.status == IBV_WC_WR_FLUSH_ERR && receiver_.receives.may_flush) {
    // The first flushed receive may contain a part of a message. From a shared queue only such receives are flushed.
    if (receiver_.shared || !flushed_)
      for (const Range& piece : pieces) receiver_.memory.accept(piece);
    flushed_ = true;
    return;
  }
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  on_message(completion, pieces);
}

}  // namespace plugfest::roce::model
