// Draws data, posts, and compares completions.
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

void scatter(Endpoint& end, const std::vector<Range>& pieces, std::span<const std::uint8_t> bytes) {
  for (const Range& piece : pieces) {
    const std::size_t part = std::min<std::size_t>(piece.length, bytes.size());
    std::copy_n(bytes.begin(), part, end.expected(piece).begin());
    bytes = bytes.subspan(part);
  }
}

bool as_expected(Endpoint& end, const Range& range) {
  return std::ranges::equal(end.actual(range), end.expected(range));
}

Direction::Direction(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting, std::uint64_t seed)
    : here_(here),
      there_(there),
      queue_pair_(*here.queue_pairs[queue_pair]),
      peer_(*there.queue_pairs[queue_pair]),
      setting_(setting),
      random_(seed),
      receive_random_(seed + 1),
      source_(here.reserve(random_, 2 * setting.longest_bytes)),
      left_(setting.requests) {}

std::uint32_t Direction::draw_length() {
  const std::uint32_t mtu = 128u << setting_.path_mtu;
  const auto kind = draw(random_, 0, 9);
  if (kind == 0) return 0;
  if (kind <= 3) return static_cast<std::uint32_t>(draw(random_, 1, 64));
  if (kind <= 6) {
    const auto packets = draw(random_, 1, setting_.longest_bytes / mtu);
    return std::min(static_cast<std::uint32_t>(packets * mtu + draw(random_, 0, 2)) - 1, setting_.longest_bytes);
  }
  return static_cast<std::uint32_t>(draw(random_, 1, setting_.longest_bytes));
}

void Direction::prepare_data() {
  ibv_send_wr& request = next_.request;
  next_.length = draw_length();
  const bool is_inline = chance(random_, 0.3);
  if (is_inline) next_.length = std::min(next_.length, setting_.capabilities.max_inline_data);
  const unsigned most = setting_.capabilities.max_send_sge;
  std::uint32_t left = next_.length;
  for (auto pieces = draw(random_, left == 0 ? 0 : 1, most); pieces > 0; --pieces) {
    const auto part = pieces == 1 ? left : static_cast<std::uint32_t>(draw(random_, 0, left));
    const Range from = draw_part(random_, source_, part);
    next_.segments.push_back(here_.segment_of(from));
    const auto bytes = here_.expected(from);
    next_.bytes.insert(next_.bytes.end(), bytes.begin(), bytes.end());
    left -= part;
  }
  if (is_inline) {  // any memory will do, and not for longer than the call
    request.send_flags |= IBV_SEND_INLINE;
    next_.given = next_.bytes;
    next_.segments = {{reinterpret_cast<std::uint64_t>(next_.given.data()), next_.length, 0}};
  }
  if (has_immediate(request.opcode)) request.imm_data = static_cast<std::uint32_t>(random_());
  if (chance(random_, 0.5)) request.send_flags |= IBV_SEND_SOLICITED;
}

void Direction::post() {
  if (left_ == 0) return;
  if (!is_prepared_) {
    next_ = {};
    next_.request.wr_id = next_id_++;
    // The last one tells that all before it are done.
    if (left_ == 1 || chance(random_, 0.7)) next_.request.send_flags |= IBV_SEND_SIGNALED;
    prepare();
    for (const Range& piece : next_.landing) next_.segments.push_back(here_.segment_of(piece));
    is_prepared_ = true;
  }
  next_.request.sg_list = next_.segments.data();
  next_.request.num_sge = static_cast<int>(next_.segments.size());
  ibv_send_wr* bad = nullptr;
  const int error = queue_pair_.post_send(&next_.request, &bad);
  if (error == ENOMEM) return;  // full: another time
  ASSERT_EQ(error, 0);
  std::ranges::fill(next_.given, std::uint8_t{0xee});
  carry_out();
  is_prepared_ = false;
  --left_;
}

void Direction::expect_completion() {
  if ((next_.request.send_flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc completion = {};
  completion.wr_id = next_.request.wr_id;
  completion.opcode = completion_opcode(next_.request.opcode);
  completion.byte_len = next_.length;
  expected_sends_.push_back({completion, next_.landing});
}

void Direction::on_send_completion(const ibv_wc& completion) {
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  ASSERT_FALSE(expected_sends_.empty()) << "completion of request " << completion.wr_id << ", which is complete";
  const ExpectedSend expected = std::move(expected_sends_.front());
  expected_sends_.pop_front();
  ASSERT_EQ(completion.wr_id, expected.completion.wr_id);
  EXPECT_EQ(completion.opcode, expected.completion.opcode) << "request " << completion.wr_id;
  for (const Range& piece : expected.landing) {
    EXPECT_TRUE(as_expected(here_, piece)) << "what request " << completion.wr_id << " brought";
  }
  if (!expected.landing.empty()) {
    EXPECT_EQ(completion.byte_len, expected.completion.byte_len) << "request " << completion.wr_id;
  }
}

void Direction::post_receive() {
  const std::size_t open = there_.shared ? there_.open_receives.size() : posted_receives_.size();
  if (open >= setting_.capabilities.max_recv_wr || !wants_receive(open)) return;
  const std::vector<Range> pieces =
      there_.reserve_pieces(receive_random_, draw_receive_length(), setting_.capabilities.max_recv_sge);
  std::vector<ibv_sge> segments;
  for (const Range& piece : pieces) segments.push_back(there_.segment_of(piece));
  ibv_recv_wr request = {};
  request.wr_id = there_.receives.size();
  request.sg_list = segments.data();
  request.num_sge = static_cast<int>(segments.size());
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(there_.shared ? there_.shared->post(&request, &bad) : peer_.post_receive(&request, &bad), 0);
  there_.open_receives.insert(request.wr_id);
  if (!there_.shared) posted_receives_.push_back(request.wr_id);
  there_.receives.push_back(pieces);
}

void Direction::on_receive_completion(const ibv_wc& completion) {
  if (there_.shared) {
    ASSERT_TRUE(there_.open_receives.contains(completion.wr_id)) << "receive " << completion.wr_id << " is not open";
  } else {
    ASSERT_FALSE(posted_receives_.empty());
    ASSERT_EQ(completion.wr_id, posted_receives_.front());
    posted_receives_.pop_front();
  }
  there_.open_receives.erase(completion.wr_id);
  const std::vector<Range>& pieces = there_.receives[completion.wr_id];
  if (completion.status == IBV_WC_WR_FLUSH_ERR && there_.ending) {
    // A part of a message may be in the first one. Of those that are shared, none but such come back.
    if (there_.shared || !flushed_)
      for (const Range& piece : pieces) std::ranges::copy(there_.actual(piece), there_.expected(piece).begin());
    flushed_ = true;
    return;
  }
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  on_message(completion, pieces);
}

}  // namespace plugfest::roce::model
