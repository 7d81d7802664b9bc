// A TCP port gets untrusted input, so parsing checks every byte.
#include "plugins/mesh/handshake/message.h"

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::uint32_t kMagic = 0x3148534d;  // "MSH1"
constexpr std::uint8_t kVersion = 5;
constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kMaxAddresses = 255;
constexpr std::size_t kMaxBodyBytes = 1 + kMaxAddresses * 18 + sizeof(Proof);
constexpr std::uint32_t kMax24Bits = 0xffffff;

enum Type : std::uint8_t { kHello = 1, kWelcome, kReady, kRefused, kAsk, kAddresses, kClose };

Failure malformed(const std::string& why) {
  return {Result::kRemoteError,
          "the peer sent an invalid handshake message (" + why + "): use the same plugin on all ranks"};
}

std::size_t get_lane_count(ByteReader& reader) {
  const std::size_t count = reader.number<std::uint8_t>();
  if (!reader.ok()) throw malformed("too short");
  if (count < 1 || count > kMaxLanes) throw malformed(std::to_string(count) + " lanes");
  return count;
}

std::uint32_t get_eager_bytes(ByteReader& reader) {
  const auto bytes = reader.number<std::uint32_t>();
  if (bytes > kMaxEagerBytes) throw malformed("eager messages of " + std::to_string(bytes) + " bytes");
  return bytes;
}

struct BodyWriter {
  ByteWriter& writer;

  Type operator()(const Hello& hello) const {
    writer.bytes(hello.listener);
    writer.bytes(hello.nonce);
    writer.number(static_cast<std::uint8_t>(hello.lanes.size()));
    for (const LaneOffer& lane : hello.lanes) {
      put(writer, lane.endpoint);
      writer.bytes(lane.peer.bytes);
    }
    writer.number(hello.eager_bytes);
    writer.bytes(hello.proof);
    return kHello;
  }
  Type operator()(const Welcome& welcome) const {
    writer.number(static_cast<std::uint8_t>(welcome.endpoints.size()));
    for (const Endpoint& endpoint : welcome.endpoints) put(writer, endpoint);
    writer.number(welcome.bounce.bytes);
    writer.number(welcome.bounce.remote_key);
    writer.number(welcome.bounce.address);
    writer.bytes(welcome.proof);
    return kWelcome;
  }
  Type operator()(const Ready&) const { return kReady; }
  Type operator()(const Refused& refused) const {
    writer.number(static_cast<std::uint8_t>(refused.reason));
    return kRefused;
  }
  Type operator()(const Ask& ask) const {
    writer.bytes(ask.listener);
    writer.bytes(ask.nonce);
    writer.bytes(ask.proof);
    return kAsk;
  }
  Type operator()(const Addresses& list) const {
    const std::size_t count = std::min(list.addresses.size(), kMaxAddresses);
    writer.number(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const PeerAddress& address = list.addresses[i];
      writer.bytes(address.network.address.bytes);
      writer.number(static_cast<std::uint8_t>(address.network.prefix));
      writer.number(static_cast<std::uint8_t>(address.of_listening_device));
    }
    writer.bytes(list.proof);
    return kAddresses;
  }
  Type operator()(const Close& close) const {
    writer.number(close.messages_received);
    writer.number(static_cast<std::uint8_t>(close.of_listener));
    writer.bytes(close.proof);
    return kClose;
  }
};

Addresses get_addresses(ByteReader& reader) {
  Addresses list;
  for (int left = reader.number<std::uint8_t>(); left > 0 && reader.ok(); --left) {
    PeerAddress address;
    reader.bytes(address.network.address.bytes);
    address.network.prefix = reader.number<std::uint8_t>();
    address.of_listening_device = reader.number<std::uint8_t>() != 0;
    if (address.network.prefix > (address.network.address.is_ipv4() ? 32 : 128))
      throw malformed("invalid prefix length");
    list.addresses.push_back(address);
  }
  reader.bytes(list.proof);
  return list;
}

Message parse(std::uint8_t type, std::span<const std::uint8_t> body) {
  ByteReader reader(body);
  const Message message = [&]() -> Message {
    switch (type) {
      case kHello: {
        Hello hello;
        reader.bytes(hello.listener);
        reader.bytes(hello.nonce);
        for (std::size_t left = get_lane_count(reader); left > 0; --left) {
          LaneOffer& offer = hello.lanes.emplace_back();
          offer.endpoint = get_endpoint(reader);
          reader.bytes(offer.peer.bytes);
        }
        hello.eager_bytes = get_eager_bytes(reader);
        reader.bytes(hello.proof);
        return hello;
      }
      case kWelcome: {
        Welcome welcome;
        for (std::size_t left = get_lane_count(reader); left > 0; --left)
          welcome.endpoints.push_back(get_endpoint(reader));
        welcome.bounce.bytes = get_eager_bytes(reader);
        welcome.bounce.remote_key = reader.number<std::uint32_t>();
        welcome.bounce.address = reader.number<std::uint64_t>();
        reader.bytes(welcome.proof);
        return welcome;
      }
      case kReady:
        return Ready{};
      case kRefused:
        return Refused{static_cast<Refusal>(reader.number<std::uint8_t>())};
      case kAsk: {
        Ask ask;
        reader.bytes(ask.listener);
        reader.bytes(ask.nonce);
        reader.bytes(ask.proof);
        return ask;
      }
      case kAddresses:
        return get_addresses(reader);
      case kClose: {
        Close close;
        close.messages_received = reader.number<std::uint64_t>();
        const auto side = reader.number<std::uint8_t>();
        if (side > 1) throw malformed("invalid side");
        close.of_listener = side == 1;
        reader.bytes(close.proof);
        return close;
      }
      default:
        throw malformed("message type " + std::to_string(type));
    }
  }();
  if (!reader.at_end()) throw malformed("wrong length");
  return message;
}

}  // namespace

void put(ByteWriter& writer, const Endpoint& endpoint) {
  writer.bytes(endpoint.gid.bytes);
  writer.number(endpoint.queue_pair);
  writer.number(endpoint.packet_sequence);
  writer.number(endpoint.max_message_bytes);
  writer.number(endpoint.mtu);
}

Endpoint get_endpoint(ByteReader& reader) {
  Endpoint endpoint;
  reader.bytes(endpoint.gid.bytes);
  endpoint.queue_pair = reader.number<std::uint32_t>();
  endpoint.packet_sequence = reader.number<std::uint32_t>();
  endpoint.max_message_bytes = reader.number<std::uint32_t>();
  endpoint.mtu = reader.number<std::uint8_t>();
  if (!reader.ok()) throw malformed("too short");
  if (endpoint.queue_pair > kMax24Bits || endpoint.packet_sequence > kMax24Bits)
    throw malformed("queue pair number or PSN of more than 24 bits");
  if (endpoint.mtu < 1 || endpoint.mtu > 5) throw malformed("invalid MTU");
  return endpoint;
}

std::vector<std::uint8_t> encode(const Message& message) {
  ByteWriter body;
  const Type type = std::visit(BodyWriter{body}, message);
  return framed(kMagic, kVersion, static_cast<std::uint8_t>(type), std::move(body));
}

std::optional<Message> MessageParser::next() {
  // The magic is checked byte by byte, so that a wrong first byte is refused before a whole header arrives.
  ByteReader magic(pending_);
  for (std::size_t i = 0; i < std::min<std::size_t>(pending_.size(), 4); ++i)
    if (magic.number<std::uint8_t>() != static_cast<std::uint8_t>(kMagic >> (8 * i))) throw malformed("wrong magic");
  if (pending_.size() < kHeaderBytes) return std::nullopt;
  const std::uint8_t version = pending_[4];
  if (version != kVersion)
    throw malformed("version " + std::to_string(version) + ", expected " + std::to_string(kVersion));
  const std::size_t length = pending_[6] | static_cast<std::size_t>(pending_[7]) << 8;
  if (length > kMaxBodyBytes) throw malformed("too long");
  if (pending_.size() < kHeaderBytes + length) return std::nullopt;
  const Message message = parse(pending_[5], std::span(pending_).subspan(kHeaderBytes, length));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(kHeaderBytes + length));
  return message;
}

}  // namespace mesh
