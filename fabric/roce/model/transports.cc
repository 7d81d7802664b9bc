#include "fabric/roce/model/transports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>

#include <algorithm>
#include <cstring>

#include "fabric/roce/qp/datagram.h"
#include "fabric/roce/tests/two_nics.h"

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
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      store(remote, before + atomic.compare_add);
    else if (before == atomic.compare_add)
      store(remote, atomic.swap);
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
  EXPECT_TRUE(!message.has_immediate || completion.imm_data == message.immediate) << completion.imm_data;
  if (message.is_send) receiver_.memory.scatter_expected(pieces, message.bytes);
  for (const Range& piece : pieces) EXPECT_TRUE(receiver_.memory.matches(piece)) << "receive " << completion.wr_id;
  const bool is_latest = message.writes_before == writes_ && !prepared_;
  EXPECT_TRUE(!is_latest || receiver_.memory.matches(message.written_before))
      << "WRITE before receive " << completion.wr_id;
}

namespace {

// Immediate data of the final empty messages. Other messages may have the same value.
constexpr std::uint32_t kEnd = 0xe4de4de4;

std::unique_ptr<AddressHandle> handle_for(Endpoint& sender, const Endpoint& receiver, const Setting& setting) {
  if (setting.type != IBV_QPT_UD) return nullptr;
  ibv_ah_attr attributes = path_attributes(receiver.address);
  attributes.grh.hop_limit = 9;
  attributes.grh.traffic_class = 0x20;
  return std::make_unique<AddressHandle>(sender.nic.context(), sender.domain, attributes);
}

std::vector<std::uint8_t> gathered(ModelMemory& memory, const std::vector<Range>& pieces) {
  std::vector<std::uint8_t> bytes;
  for (const Range& piece : pieces) {
    const auto part = memory.actual(piece);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

}  // namespace

UnreliableDirection::UnreliableDirection(Endpoint& sender, Endpoint& receiver, unsigned queue_pair,
                                         const Setting& setting, bool in_order, std::uint64_t seed)
    : Direction(sender, receiver, queue_pair, setting, seed),
      is_datagram_(setting.type == IBV_QPT_UD),
      in_order_(in_order),
      recipient_(handle_for(sender, receiver, setting)) {}

void UnreliableDirection::prepare_datagram() {
  auto& ud = next_.request.wr.ud;
  ud.ah = recipient_.get();
  ud.remote_qpn = receiver_qp_.number();
  ud.remote_qkey = kQKey;
  if (!invalid_target_) return;
  if (chance(random_, 0.5)) {
    ud.remote_qkey = kQKey ^ 1;
    return;
  }
  const auto exists = [&](const auto& queue_pair) { return queue_pair->number() == ud.remote_qpn; };
  while (std::ranges::any_of(receiver_.queue_pairs, exists))
    ud.remote_qpn ^= static_cast<std::uint32_t>(draw(random_, 1, 0xffff));
}

void UnreliableDirection::prepare() {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE_WITH_IMM};
  invalid_target_ = left_ > 1 && chance(random_, 0.05);
  next_.request.opcode = kOpcodes[draw(random_, 0, is_datagram_ ? 1 : 3)];
  if (left_ == 1) {  // repeated until it arrives
    next_.request.opcode = IBV_WR_SEND_WITH_IMM;
    next_.request.imm_data = kEnd;
  } else {
    prepare_data();
  }
  if (is_datagram_) return prepare_datagram();
  if (!is_write(next_.request.opcode)) {
    invalid_target_ = false;
    return;
  }
  next_.remote = receiver_.memory.reserve(random_, next_.length);
  next_.request.wr.rdma = {receiver_.memory.address_of(next_.remote),
                           receiver_.remote->key() ^ (invalid_target_ ? 1u : 0u)};
}

void UnreliableDirection::apply() {
  const ibv_send_wr& request = next_.request;
  const bool send = is_send(request.opcode);
  const bool immediate = has_immediate(request.opcode);
  // The receiver does not check the R_Key of a request without data.
  const bool refused = !send && invalid_target_ && next_.length > 0;
  const bool completes = is_datagram_ ? !invalid_target_ : !refused && (send || immediate);
  if (completes) messages_.push_back({send, immediate, request.imm_data, next_.bytes, writes_.size()});
  if (!send && !refused) writes_.push_back({next_.remote, next_.bytes, immediate});
  if (completes || refused) ++deliverable_;
  expect_send_completion();
  if (left_ == 1 && !end_arrived_) ++left_;
}

std::uint32_t UnreliableDirection::draw_receive_length() {
  const std::uint32_t least = is_datagram_ ? kGrhBytes : 0;
  // Some receives are too short; they remain posted until a message fits.
  if (chance(receive_random_, 0.05)) return least + static_cast<std::uint32_t>(draw(receive_random_, 0, 100));
  return least + setting_.max_message_bytes;
}

bool UnreliableDirection::matches(const Message& message, const ibv_wc& completion,
                                  const std::vector<std::uint8_t>& got) const {
  if (message.is_send != (completion.opcode == IBV_WC_RECV)) return false;
  if (message.has_immediate != ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)) return false;
  if (message.has_immediate && message.immediate != completion.imm_data) return false;
  if (message.is_send) return message.bytes == got;
  if (message.bytes.size() != completion.byte_len) return false;
  // Unless packets arrive in order, the NIC may write a duplicate at this moment; check_remaining() compares the bytes.
  return !in_order_ || std::ranges::equal(message.bytes, receiver_.memory.actual(writes_[message.write].range));
}

void UnreliableDirection::expect_grh(std::span<const std::uint8_t> grh, std::uint32_t length) const {
  iphdr header;
  std::memcpy(&header, grh.data() + kGrhBytes - sizeof(header), sizeof(header));
  const std::uint32_t padded = (length + 3) / 4 * 4;
  const std::uint32_t least = sizeof(header) + 8 + kBthBytes + 8 + padded + kIcrcBytes;
  EXPECT_EQ(header.version, 4);
  EXPECT_GE(ntohs(header.tot_len), least);
  EXPECT_LE(ntohs(header.tot_len), least + 4);  // immediate data
  EXPECT_EQ(header.ttl, 9);
  EXPECT_EQ(header.tos, 0x20);
  EXPECT_EQ(header.saddr, roce::address_of(sender_.address).s_addr);
  EXPECT_EQ(header.daddr, roce::address_of(receiver_.address).s_addr);
}

void UnreliableDirection::on_message(const ibv_wc& completion, const std::vector<Range>& pieces) {
  ++arrived_;
  EXPECT_EQ(completion.src_qp, sender_qp_.number());
  EXPECT_EQ((completion.wc_flags & IBV_WC_GRH) != 0, is_datagram_);
  std::vector<std::uint8_t> got = gathered(receiver_.memory, pieces);
  // Behind the message, a receive may contain a part of a dropped message, except for datagrams.
  const std::size_t touched = is_datagram_ ? completion.byte_len : got.size();
  receiver_.memory.scatter_expected(pieces, std::span(got).first(std::min(touched, got.size())));
  if (completion.opcode == IBV_WC_RECV) {
    ASSERT_LE(completion.byte_len, got.size());
    got.resize(completion.byte_len);
  }
  if (is_datagram_) {
    ASSERT_GE(got.size(), kGrhBytes);
    expect_grh(got, static_cast<std::uint32_t>(got.size() - kGrhBytes));
    got.erase(got.begin(), got.begin() + kGrhBytes);
  }
  const auto begin = messages_.begin() + static_cast<std::ptrdiff_t>(first_possible_);
  const auto found =
      std::find_if(begin, messages_.end(), [&](const Message& message) { return matches(message, completion, got); });
  ASSERT_NE(found, messages_.end()) << "receive " << completion.wr_id << ": " << completion.byte_len
                                    << " bytes match no expected message";
  if (in_order_) first_possible_ = static_cast<std::size_t>(found - messages_.begin()) + 1;
  if (!found->is_send) writes_[found->write].completed = true;
  if (found->has_immediate && found->immediate == kEnd && found->bytes.empty()) {
    end_arrived_ = true;
    left_ = 0;
    prepared_ = false;
  }
}

// Each packet of a WRITE is written completely or not at all, and all packets of a completed one are written.
void UnreliableDirection::check_remaining() {
  const std::uint32_t mtu = 128u << setting_.path_mtu;
  for (const Write& write : writes_) {
    for (std::uint32_t offset = 0; offset < write.range.length; offset += mtu) {
      const Range packet = {write.range.offset + offset, std::min(mtu, write.range.length - offset)};
      const auto sent = std::span(write.bytes).subspan(offset, packet.length);
      const bool written = std::ranges::equal(receiver_.memory.actual(packet), sent);
      // The last packet of a WRITE with immediate data is dropped if no receive is posted.
      const bool ends_message = write.has_immediate && offset + mtu >= write.range.length;
      const bool may_be_lost = !write.completed && (!lossless_ || ends_message);
      EXPECT_TRUE(written || (may_be_lost && receiver_.memory.matches(packet)))
          << "packet " << offset / mtu << " of a WRITE of " << write.range.length << " bytes";
      receiver_.memory.accept(packet);
    }
  }
}

}  // namespace plugfest::roce::model
