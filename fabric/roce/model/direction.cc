// Draws requests, carries them out in the model, compares.
#include "fabric/roce/model/direction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
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

// Spreads bytes over pieces, as scatter lists do.
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

Range draw_part(Random& random, const Range& whole, std::uint32_t length) {
  return {whole.offset + draw(random, 0, whole.length - length), length};
}

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

Direction::Direction(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting, std::uint64_t seed)
    : here_(here),
      there_(there),
      queue_pair_(*here.queue_pairs[queue_pair]),
      peer_(*there.queue_pairs[queue_pair]),
      setting_(setting),
      random_(seed),
      receive_random_(seed + 1),
      source_(here.reserve(random_, 2 * setting.longest_bytes)),
      target_(there.reserve(random_, 2 * setting.longest_bytes)),
      words_(there.reserve(random_, kWords * kWordBytes, kWordBytes)),
      left_(setting.requests) {}

// Mostly around multiples of the path MTU, where packets begin and end.
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

void Direction::prepare_outgoing() {
  ibv_send_wr& request = next_.request;
  const bool is_write = request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
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
  if (request.opcode == IBV_WR_SEND_WITH_IMM || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
    request.imm_data = static_cast<std::uint32_t>(random_());
  if (chance(random_, 0.5)) request.send_flags |= IBV_SEND_SOLICITED;
  if (!is_write) return;
  next_.remote = draw_part(random_, target_, next_.length);
  request.wr.rdma = {there_.address_of(next_.remote), there_.remote->key()};
  // Without data the peer's memory is not looked at.
  if (next_.length == 0) request.wr.rdma = {random_(), static_cast<std::uint32_t>(random_())};
}

void Direction::prepare_incoming() {
  const Range& whole = chance(random_, 0.8) ? target_ : words_;
  next_.length = std::min(draw_length(), whole.length);
  next_.remote = draw_part(random_, whole, next_.length);
  next_.landing = here_.reserve_pieces(random_, next_.length, setting_.capabilities.max_send_sge);
  next_.request.wr.rdma = {there_.address_of(next_.remote), there_.remote->key()};
}

void Direction::prepare_atomic() {
  next_.length = kWordBytes;
  next_.landing = here_.reserve_pieces(random_, kWordBytes, setting_.capabilities.max_send_sge);
  next_.remote = {words_.offset + draw(random_, 0, kWords - 1) * kWordBytes, kWordBytes};
  std::uint64_t compare_add = random_();
  // Every other comparison finds what it looks for, if nothing comes between.
  if (next_.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP && chance(random_, 0.5))
    compare_add = load(there_.expected(next_.remote));
  next_.request.wr.atomic = {there_.address_of(next_.remote), compare_add, random_(), there_.remote->key()};
}

void Direction::prepare() {
  static constexpr ibv_wr_opcode kOpcodes[] = {
      IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM,
      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  next_ = {};
  next_.request.wr_id = next_id_++;
  next_.request.opcode = kOpcodes[draw(random_, 0, std::size(kOpcodes) - 1)];
  // The last one tells that all before it are done.
  if (left_ == 1 || chance(random_, 0.7)) next_.request.send_flags |= IBV_SEND_SIGNALED;
  const bool is_read = next_.request.opcode == IBV_WR_RDMA_READ;
  const bool is_atomic = completion_opcode(next_.request.opcode) == IBV_WC_COMP_SWAP ||
                         completion_opcode(next_.request.opcode) == IBV_WC_FETCH_ADD;
  if (is_atomic) {
    prepare_atomic();
  } else if (is_read) {
    prepare_incoming();
  } else {
    prepare_outgoing();
  }
  for (const Range& piece : next_.landing) next_.segments.push_back(here_.segment_of(piece));
  const bool changes_what_is_read =
      !is_read && std::ranges::any_of(being_read_, [&](const Range& read) { return read.overlaps(next_.remote); });
  if (changes_what_is_read || chance(random_, 0.1)) next_.request.send_flags |= IBV_SEND_FENCE;
}

void Direction::post() {
  if (left_ == 0) return;
  if (!is_prepared_) prepare();
  is_prepared_ = true;
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

void Direction::carry_out() {
  const ibv_send_wr& request = next_.request;
  if ((request.send_flags & IBV_SEND_FENCE) != 0) being_read_.clear();
  const std::span<std::uint8_t> remote = there_.expected(next_.remote);
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      std::ranges::copy(next_.bytes, remote.begin());
      last_written_ = next_.remote;
      ++writes_;
      break;
    case IBV_WR_RDMA_READ:
      scatter(here_, next_.landing, remote);
      being_read_.push_back(next_.remote);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      const std::uint64_t before = load(remote);
      const auto& atomic = request.wr.atomic;
      scatter(here_, next_.landing, remote);
      if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        store(remote, before + atomic.compare_add);
      } else if (before == atomic.compare_add) {
        store(remote, atomic.swap);
      }
      break;
    }
    default:
      break;
  }
  const bool has_immediate = request.opcode == IBV_WR_SEND_WITH_IMM || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool is_send = completion_opcode(request.opcode) == IBV_WC_SEND;
  if (is_send || has_immediate)
    messages_.push_back({is_send, has_immediate, request.imm_data, next_.length, next_.bytes, last_written_, writes_});
  if ((request.send_flags & IBV_SEND_SIGNALED) != 0) {
    ibv_wc completion = {};
    completion.wr_id = request.wr_id;
    completion.opcode = completion_opcode(request.opcode);
    completion.byte_len = next_.length;
    expected_sends_.push_back({completion, next_.landing});
  }
}

void Direction::on_send_completion(const ibv_wc& completion) {
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  ASSERT_FALSE(expected_sends_.empty()) << "completion of request " << completion.wr_id << ", which is complete";
  const ExpectedSend& expected = expected_sends_.front();
  ASSERT_EQ(completion.wr_id, expected.completion.wr_id);
  EXPECT_EQ(completion.opcode, expected.completion.opcode) << "request " << completion.wr_id;
  for (const Range& piece : expected.landing) {
    EXPECT_TRUE(as_expected(here_, piece)) << "what request " << completion.wr_id << " brought";
  }
  if (!expected.landing.empty()) {
    EXPECT_EQ(completion.byte_len, expected.completion.byte_len) << "request " << completion.wr_id;
  }
  expected_sends_.pop_front();
}

void Direction::post_receive() {
  const std::size_t open = there_.shared ? there_.open_receives : posted_receives_.size();
  const std::size_t limit = setting_.capabilities.max_recv_wr;
  if (open >= (there_.shared ? limit : std::min(limit, messages_.size() + 2))) return;
  std::uint32_t length = setting_.longest_bytes;
  // As long as the message that it will take, or with room left.
  if (!there_.shared && open < messages_.size() && chance(receive_random_, 0.5))
    length = messages_[open].is_send ? messages_[open].length : 0;
  const std::vector<Range> pieces = there_.reserve_pieces(receive_random_, length, setting_.capabilities.max_recv_sge);
  std::vector<ibv_sge> segments;
  for (const Range& piece : pieces) segments.push_back(there_.segment_of(piece));
  ibv_recv_wr request = {};
  request.wr_id = there_.receives.size();
  request.sg_list = segments.data();
  request.num_sge = static_cast<int>(segments.size());
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(there_.shared ? there_.shared->post(&request, &bad) : peer_.post_receive(&request, &bad), 0);
  if (there_.shared) {
    ++there_.open_receives;
  } else {
    posted_receives_.push_back(request.wr_id);
  }
  there_.receives.push_back(pieces);
}

void Direction::on_receive_completion(const ibv_wc& completion) {
  ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  ASSERT_FALSE(messages_.empty()) << "a message that was never sent";
  ASSERT_LT(completion.wr_id, there_.receives.size());
  const Message& message = messages_.front();
  EXPECT_EQ(completion.opcode, message.is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(completion.byte_len, message.length);
  EXPECT_EQ(completion.src_qp, queue_pair_.number());
  EXPECT_EQ(completion.wc_flags, message.has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0u);
  if (message.has_immediate) {
    EXPECT_EQ(completion.imm_data, message.immediate);
  }
  if (there_.shared) {
    --there_.open_receives;
  } else {
    ASSERT_FALSE(posted_receives_.empty());
    EXPECT_EQ(completion.wr_id, posted_receives_.front());
    posted_receives_.pop_front();
  }
  const std::vector<Range>& pieces = there_.receives[completion.wr_id];
  if (message.is_send) scatter(there_, pieces, message.bytes);
  for (const Range& piece : pieces) {
    EXPECT_TRUE(as_expected(there_, piece)) << "receive " << completion.wr_id;
  }
  if (message.writes_before == writes_ && !is_prepared_) {
    EXPECT_TRUE(as_expected(there_, message.written_before)) << "written before receive " << completion.wr_id;
  }
  messages_.pop_front();
}

}  // namespace plugfest::roce::model
