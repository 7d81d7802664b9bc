#include "plugins/mesh/relay/tunnel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint32_t kMagic = 0x5248534d;  // "MSHR"
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kMaxBodyBytes = 4 + 255 * 16;
// The longest wait for the answer of a relay.
constexpr std::int64_t kStageTimeoutMs = 3000;

enum Type : std::uint8_t { kQuery = 1, kAnswer, kGreeting, kRequest, kReply };

std::vector<std::uint8_t> with_header(Type type, ByteWriter body) {
  return framed(kMagic, kVersion, static_cast<std::uint8_t>(type), std::move(body));
}

std::vector<std::uint8_t> proven(std::vector<std::uint8_t> message, const Secret& key, const Nonce& nonce) {
  const Proof proof = key.prove(nonce, message);
  message.insert(message.end(), proof.begin(), proof.end());
  return message;
}

std::size_t proof_bytes(std::uint8_t type) { return type == kGreeting ? 0 : sizeof(Proof); }

// The body of a message of this type; nullopt if the header is invalid.
std::optional<Bytes> body_of(Bytes message, Type type) {
  ByteReader reader(message);
  if (reader.number<std::uint32_t>() != kMagic || reader.number<std::uint8_t>() != kVersion ||
      reader.number<std::uint8_t>() != type)
    return std::nullopt;
  const std::size_t length = reader.number<std::uint16_t>();
  if (!reader.ok() || message.size() != kHeaderBytes + length + proof_bytes(type)) return std::nullopt;
  return message.subspan(kHeaderBytes, length);
}

bool has_proof(Bytes message, const Secret& key, const Nonce& nonce) {
  Proof proof;
  const Bytes content = message.first(message.size() - proof.size());
  std::copy_n(message.end() - static_cast<std::ptrdiff_t>(proof.size()), proof.size(), proof.begin());
  return equal(key.prove(nonce, content), proof);
}

}  // namespace

Secret relay_key(const std::string& text) {
  return {Secret().prove({}, Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()))};
}

std::vector<std::uint8_t> encode(const Query& query, const Secret& key) {
  ByteWriter body;
  body.bytes(query.nonce);
  return proven(with_header(kQuery, std::move(body)), key, query.nonce);
}
std::vector<std::uint8_t> encode(const Answer& answer, const Secret& key) {
  ByteWriter body;
  body.number(answer.host);
  body.number(answer.port);
  return proven(with_header(kAnswer, std::move(body)), key, answer.nonce);
}
std::vector<std::uint8_t> encode(const Greeting& greeting) {
  ByteWriter body;
  body.bytes(greeting.nonce);
  return with_header(kGreeting, std::move(body));
}
std::vector<std::uint8_t> encode(const Request& request, const Secret& key, const Nonce& nonce) {
  const std::size_t count = std::min<std::size_t>(request.addresses.size(), 255);
  ByteWriter body;
  body.number(request.hops);
  body.number(request.port);
  body.number(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) body.bytes(request.addresses[i].bytes);
  return proven(with_header(kRequest, std::move(body)), key, nonce);
}
std::vector<std::uint8_t> encode(TunnelStatus status, const Secret& key, const Nonce& nonce) {
  ByteWriter body;
  body.number(static_cast<std::uint8_t>(status));
  return proven(with_header(kReply, std::move(body)), key, nonce);
}

std::optional<Query> decode_query(Bytes bytes, const Secret& key) {
  const std::optional<Bytes> body = body_of(bytes, kQuery);
  if (!body) return std::nullopt;
  ByteReader reader(*body);
  Query query;
  reader.bytes(query.nonce);
  if (!reader.at_end() || !has_proof(bytes, key, query.nonce)) return std::nullopt;
  return query;
}
std::optional<Answer> decode_answer(Bytes bytes, const Secret& key, const Nonce& nonce) {
  const std::optional<Bytes> body = body_of(bytes, kAnswer);
  if (!body) return std::nullopt;
  ByteReader reader(*body);
  Answer answer{.nonce = nonce};
  answer.host = reader.number<std::uint64_t>();
  answer.port = reader.number<std::uint16_t>();
  if (!reader.at_end() || answer.port == 0 || !has_proof(bytes, key, nonce)) return std::nullopt;
  return answer;
}
std::optional<Greeting> decode_greeting(Bytes bytes) {
  const std::optional<Bytes> body = body_of(bytes, kGreeting);
  if (!body) return std::nullopt;
  ByteReader reader(*body);
  Greeting greeting;
  reader.bytes(greeting.nonce);
  if (!reader.at_end()) return std::nullopt;
  return greeting;
}
std::optional<Request> decode_request(Bytes bytes, const Secret& key, const Nonce& nonce) {
  const std::optional<Bytes> body = body_of(bytes, kRequest);
  if (!body) return std::nullopt;
  ByteReader reader(*body);
  Request request;
  request.hops = reader.number<std::uint8_t>();
  request.port = reader.number<std::uint16_t>();
  for (int left = reader.number<std::uint8_t>(); left > 0 && reader.ok(); --left)
    reader.bytes(request.addresses.emplace_back().bytes);
  if (!reader.at_end() || request.hops < 1 || request.hops > kMaxHops || request.port == 0 ||
      request.addresses.empty() || !has_proof(bytes, key, nonce))
    return std::nullopt;
  return request;
}
std::optional<TunnelStatus> decode_status(Bytes bytes, const Secret& key, const Nonce& nonce) {
  const std::optional<Bytes> body = body_of(bytes, kReply);
  if (!body || body->size() != 1 || !has_proof(bytes, key, nonce)) return std::nullopt;
  const std::uint8_t status = body->front();
  if (status < 1 || status > 3) return std::nullopt;
  return static_cast<TunnelStatus>(status);
}

MessageReader::Result MessageReader::read(const Socket& socket) {
  for (;;) {
    std::size_t wanted = kHeaderBytes;
    if (bytes_.size() >= kHeaderBytes) {
      const std::size_t length = bytes_[6] | static_cast<std::size_t>(bytes_[7]) << 8;
      if (length > kMaxBodyBytes) return Result::kFailed;
      wanted = kHeaderBytes + length + proof_bytes(bytes_[5]);
      if (bytes_.size() == wanted) return Result::kComplete;
    }
    const std::size_t before = bytes_.size();
    bytes_.resize(wanted);
    const ssize_t count = recv(socket.fd(), bytes_.data() + before, wanted - before, MSG_DONTWAIT);
    bytes_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0) continue;
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Result::kIncomplete : Result::kFailed;
  }
}

bool send_all(const Socket& socket, const std::vector<std::uint8_t>& bytes) {
  return send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

TunnelOpener::TunnelOpener(const Secret& key, Request request, std::vector<Neighbor> neighbors)
    : key_(key), request_(std::move(request)), neighbors_(std::move(neighbors)) {}

// Continues with the next neighbor. `skip_host`: skip the other processes of the same host.
void TunnelOpener::next(bool skip_host) {
  const std::uint64_t host = neighbors_[index_++].host;
  while (skip_host && index_ < neighbors_.size() && neighbors_[index_].host == host) ++index_;
  socket_ = Socket();
  stage_ = Stage::kNext;
}

bool TunnelOpener::step() {
  for (;;) {
    if (stage_ != Stage::kNext && stage_ != Stage::kDone && coarse_now_ms() - since_ms_ > kStageTimeoutMs) next(false);
    switch (stage_) {
      case Stage::kDone:
        return false;
      case Stage::kNext: {
        if (index_ == neighbors_.size()) {
          stage_ = Stage::kDone;
          break;
        }
        since_ms_ = coarse_now_ms();
        reader_ = MessageReader();
        try {
          socket_ = begin_connect(neighbors_[index_].local, neighbors_[index_].address, neighbors_[index_].port);
          stage_ = Stage::kConnecting;
        } catch (const Failure&) {
          next(false);
        }
        break;
      }
      case Stage::kConnecting: {
        const std::optional<int> error = connect_result(socket_);
        if (!error) return true;
        if (*error != 0)
          next(false);
        else
          stage_ = Stage::kGreeting;
        break;
      }
      case Stage::kGreeting:
      case Stage::kReply: {
        const MessageReader::Result result = reader_.read(socket_);
        if (result == MessageReader::Result::kIncomplete) return true;
        if (result == MessageReader::Result::kFailed) {
          next(false);
        } else if (stage_ == Stage::kGreeting) {
          const std::optional<Greeting> greeting = decode_greeting(reader_.bytes());
          reader_ = MessageReader();
          if (greeting && send_all(socket_, encode(request_, key_, greeting->nonce))) {
            nonce_ = greeting->nonce;
            stage_ = Stage::kReply;
          } else {
            next(false);
          }
        } else {
          const std::optional<TunnelStatus> status = decode_status(reader_.bytes(), key_, nonce_);
          if (status == TunnelStatus::kOpen)
            stage_ = Stage::kDone;
          else
            next(status == TunnelStatus::kNoPath);
        }
        break;
      }
    }
  }
}

}  // namespace mesh
