// Draws messages that may be lost, and tells whether what came is one of them.
#include "fabric/roce/model/unreliable_direction.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>

#include <algorithm>
#include <cstring>

#include "fabric/roce/qp/unreliable/datagram_responder.h"
#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce::model {

namespace {

// Immediate data of the empty messages at the end. That a drawn one is the same does no harm.
constexpr std::uint32_t kEnd = 0xe4de4de4;

std::unique_ptr<AddressHandle> handle_for(Endpoint& here, const Endpoint& there, const Setting& setting) {
  if (setting.type != IBV_QPT_UD) return nullptr;
  ibv_ah_attr attributes = {};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.hop_limit = 9;
  attributes.grh.traffic_class = 0x20;
  attributes.grh.dgid = gid_of_address(roce::address_of(there.address));
  return std::make_unique<AddressHandle>(here.domain, attributes);
}

std::vector<std::uint8_t> gathered(Endpoint& end, const std::vector<Range>& pieces) {
  std::vector<std::uint8_t> bytes;
  for (const Range& piece : pieces) {
    const auto part = end.actual(piece);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

}  // namespace

UnreliableDirection::UnreliableDirection(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting,
                                         bool wire_keeps_order, std::uint64_t seed)
    : Direction(here, there, queue_pair, setting, seed),
      is_datagram_(setting.type == IBV_QPT_UD),
      wire_keeps_order_(wire_keeps_order),
      recipient_(handle_for(here, there, setting)) {}

void UnreliableDirection::prepare_datagram() {
  auto& ud = next_.request.wr.ud;
  ud.ah = recipient_.get();
  ud.remote_qpn = peer_.number();
  ud.remote_qkey = kQKey;
  if (!nowhere_) return;
  if (chance(random_, 0.5)) {
    ud.remote_qkey = kQKey ^ 1;
    return;
  }
  const auto exists = [&](const auto& one) { return one->number() == ud.remote_qpn; };
  while (std::ranges::any_of(there_.queue_pairs, exists))
    ud.remote_qpn ^= static_cast<std::uint32_t>(draw(random_, 1, 0xffff));
}

void UnreliableDirection::prepare() {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE_WITH_IMM};
  nowhere_ = left_ > 1 && chance(random_, 0.05);
  next_.request.opcode = kOpcodes[draw(random_, 0, is_datagram_ ? 1 : 3)];
  if (left_ == 1) {  // stays the last one until it arrives
    next_.request.opcode = IBV_WR_SEND_WITH_IMM;
    next_.request.imm_data = kEnd;
  } else {
    prepare_data();
  }
  if (is_datagram_) return prepare_datagram();
  if (!is_write(next_.request.opcode)) {
    nowhere_ = false;
    return;
  }
  next_.remote = there_.reserve(random_, next_.length);
  next_.request.wr.rdma = {there_.address_of(next_.remote), there_.remote->key() ^ (nowhere_ ? 1u : 0u)};
}

void UnreliableDirection::carry_out() {
  const ibv_send_wr& request = next_.request;
  const bool send = is_send(request.opcode);
  const bool immediate = has_immediate(request.opcode);
  // Without data no key is looked at.
  const bool refused = !send && nowhere_ && next_.length > 0;
  if (!send && !refused) writes_.push_back({next_.remote, next_.bytes, immediate});
  const bool comes = is_datagram_ ? !nowhere_ : !refused && (send || immediate);
  if (comes) messages_.push_back({send, immediate, request.imm_data, next_.bytes, next_.remote});
  if (comes || refused) ++countable_;
  expect_completion();
  if (left_ == 1 && !end_arrived_) ++left_;
}

std::uint32_t UnreliableDirection::draw_receive_length() {
  const std::uint32_t least = is_datagram_ ? kGrhBytes : 0;
  // One that is too short stays for a message that it can take.
  if (chance(receive_random_, 0.05)) return least + static_cast<std::uint32_t>(draw(receive_random_, 0, 100));
  return least + setting_.longest_bytes;
}

bool UnreliableDirection::may_be(const Message& message, const ibv_wc& completion,
                                 const std::vector<std::uint8_t>& got) const {
  if (message.is_send != (completion.opcode == IBV_WC_RECV)) return false;
  if (message.has_immediate != ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)) return false;
  if (message.has_immediate && message.immediate != completion.imm_data) return false;
  if (message.is_send) return message.bytes == got;
  return message.bytes.size() == completion.byte_len &&
         std::ranges::equal(message.bytes, there_.actual(message.written));
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
  EXPECT_EQ(header.saddr, roce::address_of(here_.address).s_addr);
  EXPECT_EQ(header.daddr, roce::address_of(there_.address).s_addr);
}

void UnreliableDirection::on_message(const ibv_wc& completion, const std::vector<Range>& pieces) {
  ++arrived_;
  EXPECT_EQ(completion.src_qp, queue_pair_.number());
  EXPECT_EQ((completion.wc_flags & IBV_WC_GRH) != 0, is_datagram_);
  std::vector<std::uint8_t> got = gathered(there_, pieces);
  // Behind the message may lie what there was before of another one that was dropped; of a datagram nothing.
  const std::size_t touched = is_datagram_ ? completion.byte_len : got.size();
  scatter(there_, pieces, std::span(got).first(std::min(touched, got.size())));
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
      std::find_if(begin, messages_.end(), [&](const Message& message) { return may_be(message, completion, got); });
  ASSERT_NE(found, messages_.end()) << "receive " << completion.wr_id << ": " << completion.byte_len
                                    << " bytes, which are no message that can come now";
  if (wire_keeps_order_) first_possible_ = static_cast<std::size_t>(found - messages_.begin()) + 1;
  if (found->has_immediate && found->immediate == kEnd && found->bytes.empty()) {
    end_arrived_ = true;
    left_ = 0;
    is_prepared_ = false;
  }
}

// Packet by packet: a packet's bytes are all there or none of them.
void UnreliableDirection::settle() {
  const std::uint32_t mtu = 128u << setting_.path_mtu;
  for (const Write& write : writes_) {
    for (std::uint32_t offset = 0; offset < write.range.length; offset += mtu) {
      const Range packet = {write.range.offset + offset, std::min(mtu, write.range.length - offset)};
      const auto sent = std::span(write.bytes).subspan(offset, packet.length);
      const bool came = std::ranges::equal(there_.actual(packet), sent);
      // The last packet with immediate data may have lacked a receive.
      const bool may_lack = !nothing_was_lost_ || (write.has_immediate && offset + mtu >= write.range.length);
      EXPECT_TRUE(came || (may_lack && as_expected(there_, packet)))
          << "packet " << offset / mtu << " of a WRITE of " << write.range.length << " bytes";
      std::ranges::copy(sent, there_.expected(packet).begin());
      if (!came) std::ranges::copy(there_.actual(packet), there_.expected(packet).begin());
    }
  }
}

}  // namespace plugfest::roce::model
