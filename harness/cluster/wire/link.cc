#include "harness/cluster/wire/link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/system/file.h"

namespace plugfest::cluster {
namespace {

constexpr std::size_t kHeader = 24;
constexpr std::size_t kSize = 4;
constexpr std::size_t kMac = 16;
constexpr std::size_t kOneRead = 256 * 1024;
constexpr int kMostReads = 4;

template <std::size_t Size>
void put(char (&target)[Size], std::size_t at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) target[at + i] = static_cast<char>(value >> (8 * i));
}

std::uint32_t number_at(std::string_view text, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  }
  return value;
}

Digest batch_mac(const Token& key, std::uint64_t number, std::string_view size, std::string_view messages) {
  char sequence[8];
  put(sequence, 0, number, 8);
  return mac(key, {bytes_of({sequence, 8}), bytes_of(size), bytes_of(messages)});
}

bool only_watches(Kind kind) { return kind == Kind::kPing || kind == Kind::kPong; }

}  // namespace

Link::Link(Descriptor socket, Side side, const Token& token) : socket_(std::move(socket)), handshake_(side, token) {
  const int one = 1;
  // Fails for a socket that is not of TCP, which tests use.
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (fcntl(fd(), F_SETFL, O_NONBLOCK) != 0) throw_errno("a connection");
  outbox_ = handshake_.greeting();
}

void Link::queue(Bytes bytes) {
  if (sent_ == outbox_.size()) {
    outbox_.clear();
    sent_ = 0;
  }
  outbox_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void Link::flush() {
  close_batch();
  while (has_unsent() && failure_.empty()) {
    const ssize_t size = ::send(fd(), outbox_.data() + sent_, outbox_.size() - sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size < 0) return fail(std::string("the connection broke: ") + std::strerror(errno));
    sent_ += static_cast<std::size_t>(size);
    counters_.bytes += static_cast<std::uint64_t>(size);
  }
}

void Link::flush_until(Nanoseconds deadline_ns) {
  flush();
  while (has_unsent() && failure_.empty() && now_ns() < deadline_ns) {
    pollfd ready{fd(), POLLOUT, 0};
    poll(&ready, 1, 50);
    flush();
  }
}

void Link::gather(const Message& message) {
  char header[kHeader];
  put(header, 0, message.body.size(), 4);
  put(header, 4, static_cast<std::uint32_t>(message.kind), 4);
  put(header, 8, message.rank, 4);
  put(header, 12, message.channel, 4);
  put(header, 16, message.opened, 4);
  put(header, 20, message.host, 4);
  batch_.append(header, kHeader).append(message.body);
  batch_watches_ &= only_watches(message.kind);
  ++counters_.messages;
  if (batch_.size() >= kFullBatch) close_batch();
}

void Link::close_batch() {
  if (batch_.empty()) return;
  char size[kSize];
  put(size, 0, batch_.size(), kSize);
  const std::string_view text(size, kSize);
  queue(bytes_of(text));
  queue(bytes_of(batch_));
  queue(Bytes(batch_mac(handshake_.send_key(), next_sent_++, text, batch_)).first(kMac));
  batch_.clear();
  count_batch(std::exchange(batch_watches_, true));
}

void Link::count_batch(bool watches) {
  ++counters_.batches;
  if (watches) ++counters_.watching_batches;
}

bool Link::take_handshake() {
  std::string answer;
  const bool taken = handshake_.take(inbox_, answer);
  if (!handshake_.failure().empty()) fail(handshake_.failure());
  queue(bytes_of(answer));
  if (taken) flush();
  return taken;
}

bool Link::take_batch(std::vector<Message>& messages) {
  const std::string_view all = std::string_view(inbox_).substr(taken_);
  if (all.size() < kSize) return false;
  const std::size_t size = number_at(all, 0);
  if (size >= kFullBatch + kHeader + kLargestBody) return fail("the peer sent a message that is too large"), false;
  if (all.size() < kSize + size + kMac) return false;
  std::string_view batch = all.substr(kSize, size);
  const Digest expected = batch_mac(handshake_.receive_key(), next_received_, all.substr(0, kSize), batch);
  if (!equal(bytes_of(all.substr(kSize + size, kMac)), Bytes(expected).first(kMac))) {
    return fail("the peer sent a message with a wrong MAC"), false;
  }
  ++next_received_;
  taken_ += kSize + size + kMac;
  bool watches = true;
  while (!batch.empty()) {
    const std::size_t body = batch.size() < kHeader ? 0 : number_at(batch, 0);
    if (batch.size() < kHeader + body) return fail("the peer sent a batch that ends in a message"), false;
    messages.push_back({static_cast<Kind>(number_at(batch, 4)), number_at(batch, 8), number_at(batch, 12),
                        number_at(batch, 16), std::string(batch.substr(kHeader, body)), number_at(batch, 20)});
    watches &= only_watches(messages.back().kind);
    ++counters_.messages;
    batch.remove_prefix(kHeader + body);
  }
  count_batch(watches);
  return true;
}

bool Link::fill() {
  inbox_.erase(0, std::exchange(taken_, 0));
  const std::size_t before = inbox_.size();
  // Bounds what a stranger can make this side keep.
  const std::size_t most = established() ? kOneRead : Handshake::kMostBytes;
  inbox_.resize(before + most);
  ssize_t size = -1;
  do {
    size = recv(fd(), inbox_.data() + before, most, 0);
  } while (size < 0 && errno == EINTR);
  const int error = errno;
  inbox_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (size > 0) {
    counters_.bytes += static_cast<std::uint64_t>(size);
    return true;
  }
  if (size == 0) {
    fail("the peer closed the connection");
  } else if (error != EAGAIN && error != EWOULDBLOCK) {
    fail(std::string("the connection broke: ") + std::strerror(error));
  }
  return false;
}

std::vector<Message> Link::receive() {
  std::vector<Message> messages;
  // What is left makes the descriptor readable again.
  for (int reads = 0; reads < kMostReads && failure_.empty() && fill(); ++reads) {
    while (!established() && failure_.empty() && take_handshake()) {
    }
    while (established() && failure_.empty() && take_batch(messages)) {
    }
  }
  return messages;
}

}  // namespace plugfest::cluster
