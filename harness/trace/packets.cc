#include "harness/trace/packets.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/file.h"
#include "fabric/system/pcapng.h"
#include "harness/trace/recording.h"

namespace plugfest::trace {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uintmax_t kMaxBytes = 1u << 30;
constexpr std::uint32_t kInterfaceDescription = 1, kEnhancedPacket = 6, kByteOrderMagic = 0x1a2b3c4d;
constexpr std::uint16_t kCommentOption = 1, kFlagsOption = 2, kResolutionOption = 9;

template <typename Number>
Number number(Bytes bytes, std::size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Reads a number in network byte order.
std::uint16_t big16(Bytes bytes, std::size_t at) { return ntohs(number<std::uint16_t>(bytes, at)); }

struct Frame {
  std::int64_t time_ns;
  bool outbound;
  std::string from, to;
  roce::Headers headers;
  std::size_t payload_bytes;
  std::string comment;
};

// The value of an option; nothing if it is absent or damaged.
std::optional<Bytes> option(Bytes options, std::uint16_t wanted) {
  while (options.size() >= 4) {
    const auto code = number<std::uint16_t>(options, 0), length = number<std::uint16_t>(options, 2);
    const std::size_t whole = 4 + (std::size_t{length} + 3) / 4 * 4;
    if (code == 0 || whole > options.size()) break;
    if (code == wanted) return options.subspan(4, length);
    options = options.subspan(whole);
  }
  return std::nullopt;
}

std::string address_text(int family, Bytes bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, bytes.data(), text.data(), text.size());
  return text.data();
}

// Removes the headers of IP and UDP; nothing if the packet is not for the RoCE port. `missing`: number of bytes at its
// end that were not captured.
std::optional<Frame> parse(Bytes bytes, std::size_t missing, pcapng::LinkType link) {
  constexpr std::size_t kEthernet = 14, kUdp = 8, kIpv6 = 40, kIpv4 = 20;
  if (link == pcapng::LinkType::kEthernet) {
    if (bytes.size() < kEthernet) return std::nullopt;
    bytes = bytes.subspan(kEthernet);
  }
  if (bytes.size() < kIpv4) return std::nullopt;
  const auto version = static_cast<unsigned>(bytes[0]) >> 4;
  std::size_t header = kIpv6, protocol = 6, source = 8, address = 16;
  if (version == 4) {
    header = (static_cast<std::size_t>(bytes[0]) & 15) * 4;
    std::tie(protocol, source, address) = std::tuple<std::size_t, std::size_t, std::size_t>(9, 12, 4);
  }
  if ((version != 4 && version != 6) || header < kIpv4 || bytes.size() < header + kUdp) return std::nullopt;
  if (bytes[protocol] != std::byte{IPPROTO_UDP} || big16(bytes, header + 2) != roce::kRoceUdpPort) return std::nullopt;
  const std::size_t udp_bytes = big16(bytes, header + 4);
  if (udp_bytes < kUdp || udp_bytes > bytes.size() + missing - header) return std::nullopt;
  Bytes content = bytes.subspan(header + kUdp, std::min(bytes.size() - header, udp_bytes) - kUdp);
  const std::size_t captured = content.size();
  std::vector<std::byte> completed;
  if (captured < udp_bytes - kUdp) {
    completed.assign(content.begin(), content.end());
    completed.resize(udp_bytes - kUdp);
    content = completed;
  }
  const std::optional<roce::Packet> packet = roce::decode(content);
  if (!packet || captured < roce::header_bytes(packet->headers.transport, packet->headers.operation))
    return std::nullopt;
  const int family = version == 4 ? AF_INET : AF_INET6;
  return Frame{.time_ns = 0,
               .outbound = false,
               .from = address_text(family, bytes.subspan(source, address)),
               .to = address_text(family, bytes.subspan(source + address, address)),
               .headers = packet->headers,
               .payload_bytes = packet->payload.size(),
               .comment = {}};
}

// Nothing if the time is damaged. `resolution`: see Reader::Interface.
std::optional<std::int64_t> time_ns(std::uint64_t ticks, unsigned resolution) {
  constexpr std::uint64_t kEnd = kTimeLimitNs, kPerSecond = 1'000'000'000;
  const unsigned exponent = resolution & 127;
  if (resolution >= 128) {
    const double ns = std::ldexp(static_cast<double>(ticks), -static_cast<int>(exponent)) * kPerSecond;
    if (ns >= static_cast<double>(kEnd)) return std::nullopt;
    // A double cannot hold nanoseconds since 1970, so whole seconds are apart.
    const std::uint64_t seconds = exponent < 64 ? ticks >> exponent : 0;
    const std::uint64_t rest = exponent < 64 ? ticks - (seconds << exponent) : ticks;
    return static_cast<std::int64_t>(seconds * kPerSecond) +
           std::llround(std::ldexp(static_cast<double>(rest), -static_cast<int>(exponent)) * kPerSecond);
  }
  for (unsigned i = 9; i < exponent; ++i) ticks /= 10;
  for (unsigned i = exponent; i < 9; ++i) {
    if (ticks >= kEnd / 10) return std::nullopt;
    ticks *= 10;
  }
  return ticks < kEnd ? std::optional(static_cast<std::int64_t>(ticks)) : std::nullopt;
}

// Iterates over the blocks of a file.
class Reader {
 public:
  Reader(const std::string& path, Bytes bytes) : path_(path), bytes_(bytes) {}

  std::vector<Frame> frames() {
    std::vector<Frame> all;
    while (at_ < bytes_.size()) {
      const Bytes rest = bytes_.subspan(at_);
      if (rest.size() < 12) fail("ends in the middle of a block");
      const auto type = number<std::uint32_t>(rest, 0), length = number<std::uint32_t>(rest, 4);
      if (type == pcapng::kSectionHeader && number<std::uint32_t>(rest, 8) != kByteOrderMagic)
        fail("a section that is not of pcapng, or of another byte order");
      if (at_ == 0 && type != pcapng::kSectionHeader) fail("not a pcapng file");
      if (length < 12 || length % 4 != 0 || length > rest.size()) fail("a block of an impossible length");
      take(type, rest.subspan(8, length - 12), all);
      at_ += length;
    }
    return all;
  }

 private:
  struct Interface {
    pcapng::LinkType link;
    unsigned resolution;  // the exponent of 10, or 128 plus the exponent of 2, of the unit of its times: 1 / 10^6 s
  };

  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error(fmt::format("{}: offset {}: {}", path_, at_, what));
  }

  void take(std::uint32_t type, Bytes body, std::vector<Frame>& all) {
    if (type == pcapng::kSectionHeader) {
      interfaces_.clear();
    } else if (type == kInterfaceDescription) {
      if (body.size() < 8) fail("a description of an interface that is too short");
      const std::optional<Bytes> given = option(body.subspan(8), kResolutionOption);
      interfaces_.push_back({static_cast<pcapng::LinkType>(number<std::uint16_t>(body, 0)),
                             given && !given->empty() ? static_cast<unsigned>((*given)[0]) : 6});
    } else if (type == kEnhancedPacket) {
      if (body.size() < 20) fail("a packet block that is too short");
      const auto interface = number<std::uint32_t>(body, 0), captured = number<std::uint32_t>(body, 12);
      const auto original = number<std::uint32_t>(body, 16);
      if (interface >= interfaces_.size()) fail("a packet of an interface that is not described");
      const std::size_t padded = (std::size_t{captured} + 3) / 4 * 4;
      if (padded > body.size() - 20) fail("a packet that is longer than its block");
      std::optional<Frame> frame =
          parse(body.subspan(20, captured), std::max(original, captured) - captured, interfaces_[interface].link);
      if (!frame) return;
      const auto ticks =
          static_cast<std::uint64_t>(number<std::uint32_t>(body, 4)) << 32 | number<std::uint32_t>(body, 8);
      const std::optional<std::int64_t> time = time_ns(ticks, interfaces_[interface].resolution);
      if (!time) fail("a packet with an impossible time");
      frame->time_ns = *time;
      const Bytes options = body.subspan(20 + padded);
      if (const std::optional<Bytes> comment = option(options, kCommentOption))
        frame->comment.assign(reinterpret_cast<const char*>(comment->data()), comment->size());
      const std::optional<Bytes> flags = option(options, kFlagsOption);
      frame->outbound =
          flags && flags->size() == 4 &&
          (number<std::uint32_t>(*flags, 0) & 3) == static_cast<std::uint32_t>(pcapng::Direction::kOutbound);
      all.push_back(*frame);
    }
  }

  const std::string& path_;
  const Bytes bytes_;
  std::size_t at_ = 0;
  std::vector<Interface> interfaces_;
};

std::string name_of(roce::Operation operation) {
  static constexpr std::array kNames = {"SEND first",
                                        "SEND middle",
                                        "SEND last",
                                        "SEND last immediate",
                                        "SEND only",
                                        "SEND only immediate",
                                        "WRITE first",
                                        "WRITE middle",
                                        "WRITE last",
                                        "WRITE last immediate",
                                        "WRITE only",
                                        "WRITE only immediate",
                                        "READ request",
                                        "READ response first",
                                        "READ response middle",
                                        "READ response last",
                                        "READ response only",
                                        "ACK",
                                        "ATOMIC ACK",
                                        "CMP_SWAP",
                                        "FETCH_ADD",
                                        "",
                                        "SEND last invalidate",
                                        "SEND only invalidate"};
  const auto number = static_cast<std::size_t>(operation);
  return number < kNames.size() ? kNames[number] : "CNP";
}

// The meaning of an acknowledgement; empty for a positive one.
std::string syndrome_mark(std::uint8_t syndrome) {
  const std::uint8_t kind = syndrome & roce::kSyndromeKindMask;
  if (kind == roce::kSyndromeRnr) return "RNR NAK";
  if (kind != roce::kSyndromeNak) return "";
  static constexpr std::pair<roce::NakCode, const char*> kNames[] = {
      {roce::NakCode::kSequence, "NAK: PSN sequence error"},
      {roce::NakCode::kInvalidRequest, "NAK: invalid request"},
      {roce::NakCode::kRemoteAccess, "NAK: remote access error"},
      {roce::NakCode::kRemoteOperation, "NAK: remote operational error"}};
  for (const auto& [code, name] : kNames)
    if (code == static_cast<roce::NakCode>(syndrome & roce::kSyndromeValueMask)) return name;
  return "NAK";
}

std::string read_capture(const std::string& path) {
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown && size > kMaxBytes)
    throw std::runtime_error(fmt::format("{}: is too large: {} bytes, the limit is {}", path, size, kMaxBytes));
  return read_file(path);
}

}  // namespace

report::Capture read_packets(const std::string& path, std::size_t most, CaptureDetails* details) {
  const std::string content = read_capture(path);
  Reader reader(path, std::as_bytes(std::span(content)));
  std::vector<Frame> frames = reader.frames();
  // Packets captured by their sender count; copies captured at the receiver are duplicates.
  std::set<std::string> senders;
  for (const Frame& frame : frames)
    if (frame.outbound) senders.insert(frame.from);
  std::erase_if(frames, [&](const Frame& frame) { return !frame.outbound && senders.contains(frame.from); });
  std::stable_sort(frames.begin(), frames.end(), [](const Frame& a, const Frame& b) { return a.time_ns < b.time_ns; });

  if (details != nullptr) {
    details->first_ns = frames.empty() ? 0 : frames.front().time_ns;
    for (const Frame& frame : frames)
      if (!frame.comment.empty()) details->comments.push_back({frame.time_ns, frame.from, frame.comment});
  }
  report::Capture capture{.file = path, .packets = {}, .left_out = 0};
  std::map<std::tuple<std::string, std::string, std::uint32_t>, roce::Psn> newest;
  for (const Frame& frame : frames) {
    const roce::Headers& headers = frame.headers;
    const roce::OperationTraits& traits = roce::traits_of(headers.operation);
    std::string mark = traits.has_aeth ? syndrome_mark(headers.syndrome) : "";
    if (headers.operation == roce::Operation::kCongestionNotification) mark = "congestion notification";
    if (traits.request && roce::is_reliable(headers.transport)) {
      const auto [known, is_new] = newest.try_emplace({frame.from, frame.to, headers.destination}, headers.psn);
      if (!is_new && headers.psn.after(known->second) <= 0)
        mark = "retransmission";
      else
        known->second = headers.psn;
    }
    capture.packets.push_back({.time = static_cast<double>(frame.time_ns - frames.front().time_ns) / 1e9,
                               .from = frame.from,
                               .to = frame.to,
                               .what = name_of(headers.operation),
                               .queue_pair = headers.destination,
                               .psn = headers.psn.value(),
                               .bytes = static_cast<std::uint32_t>(frame.payload_bytes),
                               .mark = mark});
  }
  if (capture.packets.size() > most) {
    capture.left_out = capture.packets.size() - most;
    capture.packets.erase(capture.packets.begin(), capture.packets.end() - static_cast<std::ptrdiff_t>(most));
  }
  return capture;
}

}  // namespace plugfest::trace
