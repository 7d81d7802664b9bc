#include "fabric/rdma_cm/message.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace plugfest::rdma_cm {
namespace {

constexpr std::array<std::byte, 5> kPrefix = {std::byte{'P'}, std::byte{'F'}, std::byte{'C'}, std::byte{'M'},
                                              std::byte{1}};
constexpr std::uint32_t kMax24 = 0xff'ffff;

template <typename Value, typename Like>
using MaybeConst = std::conditional_t<std::is_const_v<Like>, const Value, Value>;

// Calls `field` with each number of a message, in the order of their bytes.
template <typename AnyMessage, typename Field>
void for_each_number(AnyMessage& message, Field field) {
  field(message.qp_type);
  field(message.port_space);
  field(message.destination_port);
  field(message.source_port);
  field(message.qp_number);
  field(message.qkey);
  field(message.psn);
  field(message.mtu);
  field(message.responder_resources);
  field(message.initiator_depth);
  field(message.flow_control);
  field(message.retry_count);
  field(message.rnr_retry_count);
  field(message.srq);
  field(reinterpret_cast<MaybeConst<std::uint8_t, AnyMessage>&>(message.reason));
  field(message.private_size);
}

// The offset of the next number of `size` bytes; moves `offset` past it.
std::size_t place(std::size_t& offset, std::size_t size) {
  const std::size_t at = (offset + size - 1) / size * size;
  offset = at + size;
  return at;
}

bool is_valid(const Message& message) {
  const bool known_type = message.type >= MessageType::kRequest && message.type <= MessageType::kReject;
  const bool opens = message.type == MessageType::kRequest || message.type == MessageType::kReply;
  return known_type && message.private_size <= max_private_bytes(message.type, is_datagram(message.port_space)) &&
         message.qp_number <= kMax24 && message.psn <= kMax24 && message.retry_count <= 7 &&
         message.rnr_retry_count <= 7 && (!opens || (message.mtu >= IBV_MTU_256 && message.mtu <= IBV_MTU_4096));
}

}  // namespace

MessageBytes encode(const Message& message) {
  MessageBytes bytes = {};
  std::copy(kPrefix.begin(), kPrefix.end(), bytes.begin());
  std::size_t offset = kPrefix.size();
  bytes[offset++] = static_cast<std::byte>(message.type);
  for_each_number(message, [&](auto number) {
    const std::size_t at = place(offset, sizeof(number));
    for (std::size_t i = 0; i < sizeof(number); ++i)
      bytes[at + i] = static_cast<std::byte>(number >> (8 * (sizeof(number) - 1 - i)));
  });
  std::memcpy(&bytes[offset], message.private_data.data(), message.private_size);
  return bytes;
}

std::optional<Message> decode(std::span<const std::byte, kMessageBytes> bytes) {
  if (!std::equal(kPrefix.begin(), kPrefix.end(), bytes.begin())) return std::nullopt;
  Message message;
  std::size_t offset = kPrefix.size();
  message.type = static_cast<MessageType>(bytes[offset++]);
  for_each_number(message, [&](auto& number) {
    const std::size_t at = place(offset, sizeof(number));
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < sizeof(number); ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  });
  if (!is_valid(message)) return std::nullopt;
  std::memcpy(message.private_data.data(), &bytes[offset], message.private_size);
  return message;
}

}  // namespace plugfest::rdma_cm
