#include "fabric/system/pcapng.h"

#include <algorithm>
#include <cstring>

namespace plugfest::pcapng {
namespace {

constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;

constexpr std::uint16_t kEndOfOptions = 0;
constexpr std::uint16_t kComment = 1;
constexpr std::uint16_t kInterfaceName = 2;
constexpr std::uint16_t kPacketFlags = 2;
constexpr std::uint16_t kApplication = 4;
constexpr std::uint16_t kTimeResolution = 9;

// Appends a block: type, length, body, length.
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
  void pad() { blocks_.resize((blocks_.size() + 3) / 4 * 4); }  // blocks are 4-byte aligned
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

}  // namespace

void add_section(std::vector<std::byte>& blocks) {
  constexpr std::string_view kName = "plugfest";
  Block header(blocks, kSectionHeader);
  header.put(kByteOrderMagic);
  header.put(std::uint16_t{1});  // version 1.0
  header.put(std::uint16_t{0});
  header.put(~std::uint64_t{0});  // unspecified section length
  header.option(kApplication, kName.data(), kName.size());
  header.end_options();
}

void add_interface(std::vector<std::byte>& blocks, std::string_view name, LinkType type, std::uint32_t snap_length) {
  constexpr std::uint8_t kNanoseconds = 9;
  Block description(blocks, kInterfaceDescription);
  description.put(type);
  description.put(std::uint16_t{0});
  description.put(snap_length);
  description.option(kInterfaceName, name.data(), name.size());
  description.option(kTimeResolution, &kNanoseconds, 1);
  description.end_options();
}

void add_packet(std::vector<std::byte>& blocks, const PacketInfo& info, std::span<const iovec> pieces) {
  std::uint32_t length = 0;
  for (const iovec& piece : pieces) length += static_cast<std::uint32_t>(piece.iov_len);
  Block packet(blocks, kEnhancedPacket);
  packet.put(info.interface);
  packet.put(static_cast<std::uint32_t>(info.time_ns >> 32));
  packet.put(static_cast<std::uint32_t>(info.time_ns));
  std::size_t captured = info.snap_length == 0 ? length : std::min(length, info.snap_length);
  packet.put(static_cast<std::uint32_t>(captured));
  packet.put(length);
  for (const iovec& piece : pieces) {
    const std::size_t taken = std::min(captured, piece.iov_len);
    packet.put(piece.iov_base, taken);
    captured -= taken;
  }
  packet.pad();
  if (!info.comment.empty()) packet.option(kComment, info.comment.data(), info.comment.size());
  if (info.direction != Direction::kUnknown) packet.option(kPacketFlags, &info.direction, sizeof(info.direction));
  packet.end_options();
}

}  // namespace plugfest::pcapng
