// Writes pcapng blocks.
#include "fabric/roce/capture/pcapng.h"

#include <netinet/in.h>

#include <array>
#include <cstring>

namespace plugfest::roce {

namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint16_t kLinkTypeRaw = 101;  // packets begin with the IP header

constexpr std::uint16_t kEndOfOptions = 0;
constexpr std::uint16_t kComment = 1;
constexpr std::uint16_t kInterfaceName = 2;
constexpr std::uint16_t kPacketFlags = 2;
constexpr std::uint16_t kApplication = 4;
constexpr std::uint16_t kTimeResolution = 9;

constexpr std::uint32_t kInbound = 1;
constexpr std::uint32_t kOutbound = 2;

// One block: its type and length, what is put between, and its length again.
class Block {
 public:
  Block(std::vector<std::byte>& blocks, std::uint32_t type) : blocks_(blocks), start_(blocks.size()) {
    put(type);
    put(std::uint32_t{0});
  }
  ~Block() {
    const auto length = static_cast<std::uint32_t>(blocks_.size() - start_ + sizeof(std::uint32_t));
    put(length);
    std::memcpy(blocks_.data() + start_ + sizeof(std::uint32_t), &length, sizeof(length));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <typename Number>
  void put(Number number) {
    put(&number, sizeof(number));
  }
  void put(const void* bytes, std::size_t count) {
    const auto* from = static_cast<const std::byte*>(bytes);
    blocks_.insert(blocks_.end(), from, from + count);
  }
  void pad() { blocks_.resize((blocks_.size() + 3) / 4 * 4); }  // blocks begin at multiples of 4
  void option(std::uint16_t code, const void* bytes, std::size_t count) {
    put(code);
    put(static_cast<std::uint16_t>(count));
    put(bytes, count);
    pad();
  }
  void end_options() { put(std::uint32_t{kEndOfOptions}); }

 private:
  std::vector<std::byte>& blocks_;
  const std::size_t start_;
};

// The headers in front of the UDP payload.
class Front {
 public:
  // The UDP checksum is left out where it may be, over IPv4.
  Front(const WireHeaders& headers, std::span<const iovec> payload, std::size_t payload_bytes) {
    const std::size_t udp_bytes = kUdpBytes + payload_bytes;
    if (headers.source.is_ipv4()) {
      put_ipv4(headers, udp_bytes);
    } else {
      put_ipv6(headers, udp_bytes);
    }
    const std::size_t udp = length_;
    length_ += kUdpBytes;
    put16(udp, headers.source_port);
    put16(udp + 2, headers.destination_port);
    put16(udp + 4, udp_bytes);
    if (!headers.source.is_ipv4()) put16(udp + 6, udp_checksum(payload, udp_bytes));
  }

  const std::uint8_t* data() const { return bytes_.data(); }
  std::size_t size() const { return length_; }

 private:
  static constexpr std::size_t kIpv4Bytes = 20;
  static constexpr std::size_t kIpv6Bytes = 40;
  static constexpr std::size_t kUdpBytes = 8;

  void put16(std::size_t offset, std::size_t value) {
    bytes_[offset] = static_cast<std::uint8_t>(value >> 8);
    bytes_[offset + 1] = static_cast<std::uint8_t>(value);
  }

  static std::uint16_t complement(std::uint64_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
  }

  std::uint64_t sum(std::size_t begin, std::size_t end) const {
    std::uint64_t total = 0;
    for (std::size_t i = begin; i < end; i += 2) total += static_cast<unsigned>(bytes_[i] << 8 | bytes_[i + 1]);
    return total;
  }

  void put_ipv4(const WireHeaders& headers, std::size_t udp_bytes) {
    const in_addr source = headers.source.ipv4(), destination = headers.destination.ipv4();
    bytes_[0] = 0x45;
    bytes_[1] = headers.traffic_class;
    put16(2, kIpv4Bytes + udp_bytes);
    put16(4, headers.identification);
    bytes_[6] = 0x40;  // don't fragment
    bytes_[8] = headers.hop_limit;
    bytes_[9] = IPPROTO_UDP;
    std::memcpy(bytes_.data() + 12, &source, 4);
    std::memcpy(bytes_.data() + 16, &destination, 4);
    put16(10, complement(sum(0, kIpv4Bytes)));
    length_ = kIpv4Bytes;
  }

  void put_ipv6(const WireHeaders& headers, std::size_t udp_bytes) {
    put16(0, 0x6000u | static_cast<unsigned>(headers.traffic_class << 4));
    put16(4, udp_bytes);
    bytes_[6] = IPPROTO_UDP;
    bytes_[7] = headers.hop_limit;
    std::memcpy(bytes_.data() + 8, headers.source.bytes.data(), 16);
    std::memcpy(bytes_.data() + 24, headers.destination.bytes.data(), 16);
    length_ = kIpv6Bytes;
  }

  // Over both addresses, length and protocol, the UDP header and the payload.
  std::uint16_t udp_checksum(std::span<const iovec> payload, std::size_t udp_bytes) const {
    std::uint64_t total = sum(8, kIpv6Bytes + kUdpBytes) + udp_bytes + IPPROTO_UDP;
    std::size_t index = 0;
    for (const iovec& piece : payload) {
      const auto* bytes = static_cast<const std::uint8_t*>(piece.iov_base);
      for (std::size_t i = 0; i < piece.iov_len; ++i, ++index)
        total += index % 2 == 0 ? static_cast<unsigned>(bytes[i] << 8) : bytes[i];
    }
    const std::uint16_t checksum = complement(total);
    return checksum == 0 ? 0xffff : checksum;
  }

  std::array<std::uint8_t, kIpv6Bytes + kUdpBytes> bytes_ = {};
  std::size_t length_ = 0;
};

}  // namespace

void add_section(std::vector<std::byte>& blocks, std::string_view interface) {
  {
    constexpr std::string_view kName = "plugfest";
    Block header(blocks, kSectionHeader);
    header.put(kByteOrderMagic);
    header.put(std::uint16_t{1});  // version 1.0
    header.put(std::uint16_t{0});
    header.put(~std::uint64_t{0});  // the section's length is not known
    header.option(kApplication, kName.data(), kName.size());
    header.end_options();
  }
  Block description(blocks, kInterfaceDescription);
  constexpr std::uint8_t kNanoseconds = 9;
  description.put(kLinkTypeRaw);
  description.put(std::uint16_t{0});
  description.put(std::uint32_t{0});  // packets are kept whole
  description.option(kInterfaceName, interface.data(), interface.size());
  description.option(kTimeResolution, &kNanoseconds, 1);
  description.end_options();
}

void add_packet(std::vector<std::byte>& blocks, std::uint64_t time_ns, bool outbound, const WireHeaders& headers,
                std::span<const iovec> payload, std::string_view comment) {
  std::size_t payload_bytes = 0;
  for (const iovec& piece : payload) payload_bytes += piece.iov_len;
  const Front front(headers, payload, payload_bytes);
  const auto length = static_cast<std::uint32_t>(front.size() + payload_bytes);
  Block packet(blocks, kEnhancedPacket);
  packet.put(std::uint32_t{0});  // the section's only interface
  packet.put(static_cast<std::uint32_t>(time_ns >> 32));
  packet.put(static_cast<std::uint32_t>(time_ns));
  packet.put(length);
  packet.put(length);
  packet.put(front.data(), front.size());
  for (const iovec& piece : payload) packet.put(piece.iov_base, piece.iov_len);
  packet.pad();
  if (!comment.empty()) packet.option(kComment, comment.data(), comment.size());
  const std::uint32_t flags = outbound ? kOutbound : kInbound;
  packet.option(kPacketFlags, &flags, sizeof(flags));
  packet.end_options();
}

}  // namespace plugfest::roce
