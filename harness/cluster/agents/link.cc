#include "harness/cluster/agents/link.h"

#include <fcntl.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace plugfest::cluster {
namespace {

constexpr std::size_t kSize = sizeof(std::uint32_t);
// Size of the largest body with the other fields.
constexpr std::size_t kMaxMessage = Link::kMaxBody + 64;
// Maximum number of records (16 KiB each) in one read. The rest makes the descriptor readable again.
constexpr int kMaxReads = 64;

// The link removes sent bytes from the outbox when they reach this number.
constexpr std::size_t kMaxSentBytes = 1 << 20;

const char* kProtocols[] = {"plugfest-certify/4", nullptr};
// Ciphers without tables: Mbed TLS fills tables at the first use without a lock.
constexpr int kCiphers[] = {MBEDTLS_TLS_PSK_WITH_CHACHA20_POLY1305_SHA256, 0};

const unsigned char* raw(const void* bytes) { return static_cast<const unsigned char*>(bytes); }

int fill_randomly(void*, unsigned char* bytes, std::size_t size) {
  return getrandom(bytes, size, 0) == static_cast<ssize_t>(size) ? 0 : MBEDTLS_ERR_SSL_NO_RNG;
}

void require(int error) {
  if (error != 0) throw std::runtime_error("cannot set up TLS");
}

// Frees what a constructor of Tls that throws has initialized.
struct TlsObjects {
  TlsObjects() {
    mbedtls_ssl_init(&context);
    mbedtls_ssl_config_init(&config);
  }
  ~TlsObjects() {
    mbedtls_ssl_free(&context);
    mbedtls_ssl_config_free(&config);
  }
  TlsObjects(const TlsObjects&) = delete;
  TlsObjects& operator=(const TlsObjects&) = delete;

  mbedtls_ssl_context context;
  mbedtls_ssl_config config;
};

}  // namespace

struct Link::Tls : TlsObjects {
  explicit Tls(Link& link, Side side) {
    const bool controls = side == Side::kController;
    require(mbedtls_ssl_config_defaults(&config, controls ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
                                        MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_min_version(&config, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
    mbedtls_ssl_conf_rng(&config, fill_randomly, nullptr);
    mbedtls_ssl_conf_ciphersuites(&config, kCiphers);
    require(mbedtls_ssl_conf_alpn_protocols(&config, kProtocols));
    if (controls) {
      mbedtls_ssl_conf_psk_cb(&config, admit, &link);
    } else {
      require(mbedtls_ssl_conf_psk(&config, raw(link.token_.data()), link.token_.size(), raw(link.host_.data()),
                                   link.host_.size()));
    }
    require(mbedtls_ssl_setup(&context, &config));
    mbedtls_ssl_set_bio(&context, &link, write, read, nullptr);
  }
  static int admit(void* link, mbedtls_ssl_context* context, const unsigned char* name, std::size_t size) {
    auto& self = *static_cast<Link*>(link);
    self.host_.assign(reinterpret_cast<const char*>(name), size);
    return mbedtls_ssl_set_hs_psk(context, raw(self.token_.data()), self.token_.size());
  }
  static int write(void* link, const unsigned char* bytes, std::size_t size) {
    static_cast<Link*>(link)->outbox_.append(reinterpret_cast<const char*>(bytes), size);
    return static_cast<int>(size);
  }
  static int read(void* link, unsigned char* bytes, std::size_t size) {
    auto& self = *static_cast<Link*>(link);
    const ssize_t got = recv(self.fd(), bytes, size, 0);
    if (got >= 0) self.counters_.bytes += static_cast<std::uint64_t>(got);
    if (got >= 0) return static_cast<int>(got);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return MBEDTLS_ERR_SSL_WANT_READ;
    self.fail(std::string("the connection broke: ") + std::strerror(errno));
    return MBEDTLS_ERR_NET_RECV_FAILED;
  }
};

Link::Link(Descriptor socket, Side side, const Token& token, const std::string& host)
    : socket_(std::move(socket)), token_(token), host_(host), tls_(std::make_unique<Tls>(*this, side)) {
  const int one = 1;
  // Fails if the socket is not TCP, as in tests.
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (fcntl(fd(), F_SETFL, O_NONBLOCK) != 0) throw_errno("make a connection non-blocking");
}

Link::~Link() = default;

void Link::fail(const std::string& why) {
  const bool is_first = failure_.empty();
  flush();  // sends the alert, and fails if the peer has closed the connection
  if (is_first) failure_ = why;
}

void Link::fail(int error) {
  if (error == MBEDTLS_ERR_SSL_CONN_EOF || error == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY) {
    fail("the peer closed the connection");
  } else if (established_) {
    fail(error == MBEDTLS_ERR_SSL_INVALID_MAC ? "the peer sent a message with a wrong MAC"
                                              : "the peer sent an invalid message");
  } else if (error == MBEDTLS_ERR_SSL_INVALID_MAC) {
    fail("the peer does not know the token");
  } else if (error == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE) {
    fail("the peer refuses this token or this version of plugfest");
  } else {
    fail("the peer is not plugfest of this version");
  }
}

void Link::flush() {
  while (unsent_bytes() != 0 && failure_.empty()) {
    const ssize_t size = ::send(fd(), outbox_.data() + sent_, unsent_bytes(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size < 0) {
      failure_ = std::string("the connection broke: ") + std::strerror(errno);
      return;
    }
    sent_ += static_cast<std::size_t>(size);
    counters_.bytes += static_cast<std::uint64_t>(size);
    if (sent_ >= kMaxSentBytes) {  // a link that is never empty does not keep all that it sent
      outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<std::ptrdiff_t>(sent_));
      sent_ = 0;
    }
  }
  outbox_.clear();
  sent_ = 0;
}

void Link::flush_until(Nanoseconds deadline_ns) {
  flush();
  while (unsent_bytes() != 0 && failure_.empty() && now_ns() < deadline_ns) {
    pollfd ready{fd(), POLLOUT, 0};
    poll(&ready, 1, 50);
    flush();
  }
}

void Link::send(const Message& message) {
  std::vector<std::byte> bytes(kSize);
  wire::Writer{bytes}(message);
  const auto size = static_cast<std::uint32_t>(bytes.size() - kSize);
  std::memcpy(bytes.data(), &size, kSize);
  for (std::size_t done = 0; done < bytes.size() && failure_.empty();) {
    const int written = mbedtls_ssl_write(&tls_->context, raw(bytes.data() + done), bytes.size() - done);
    if (written < 0) return fail(written);
    done += static_cast<std::size_t>(written);
  }
  ++counters_.messages;
  flush();
}

// Removes one message from the inbox; false if none is complete.
bool Link::take(std::vector<Message>& messages) {
  const auto all = std::as_bytes(std::span(inbox_)).subspan(taken_);
  std::uint32_t size = 0;
  if (all.size() < kSize) return false;
  std::memcpy(&size, all.data(), kSize);
  if (size > kMaxMessage) {
    fail("the peer sent a message that is too large");
    return false;
  }
  if (all.size() < kSize + size) return false;
  try {
    messages.push_back(wire::decode<Message>(all.subspan(kSize, size)));
  } catch (const wire::WireError&) {
    fail("the peer sent an invalid message");
    return false;
  }
  taken_ += kSize + size;
  ++counters_.messages;
  return true;
}

std::vector<Message> Link::receive() {
  std::vector<Message> messages;
  flush();
  for (int reads = 0; reads < kMaxReads && failure_.empty(); ++reads) {
    int result = 0;
    if (!established_) {
      result = mbedtls_ssl_handshake(&tls_->context);
      established_ = result == 0;
      if (established_ || result == MBEDTLS_ERR_SSL_WANT_READ) flush();  // fail() sends an alert, and keeps the reason
    }
    unsigned char bytes[MBEDTLS_SSL_MAX_CONTENT_LEN];
    if (result == 0) result = mbedtls_ssl_read(&tls_->context, bytes, sizeof(bytes));
    if (result == MBEDTLS_ERR_SSL_WANT_READ) break;
    if (result <= 0) {
      fail(result == 0 ? MBEDTLS_ERR_SSL_CONN_EOF : result);
      break;
    }
    inbox_.erase(0, std::exchange(taken_, 0));
    inbox_.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(result));
    while (failure_.empty() && take(messages)) {
    }
  }
  return messages;
}

}  // namespace plugfest::cluster
