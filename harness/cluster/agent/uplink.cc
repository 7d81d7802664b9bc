#include "harness/cluster/agent/uplink.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fabric/system/file.h"
#include "harness/cluster/wire/entrance.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

/// The controller sends something every second. It is gone if it has sent nothing for so long.
constexpr Nanoseconds kLongestSilence = 60'000'000'000;
/// For so long an agent that was told to connect to another one waits for it.
constexpr Nanoseconds kLongestWelcome = 10'000'000'000;
/// After this part of host_seconds without a word, an agent looks for another way to the controller.
constexpr int kSilencePart = 2;

/// Connects within 10 s. Errors: std::runtime_error.
Descriptor connect_to(const Meeting& meeting) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(meeting.port);
  if (inet_pton(AF_INET, meeting.address.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error(fmt::format("\"{}\" is no IPv4 address", meeting.address));
  }
  const std::string where = fmt::format("the controller at {}:{}", meeting.address, meeting.port);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_errno(where);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS) throw_errno(where);
    pollfd ready{socket.get(), POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (poll(&ready, 1, 10'000) > 0) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) throw std::runtime_error(fmt::format("{}: {}", where, std::strerror(error)));
  }
  return socket;
}

}  // namespace

Uplink::Uplink(const Meeting& meeting, std::string name, std::string version)
    : meeting_(meeting), name_(std::move(name)), version_(std::move(version)), instance_(to_hex(make_token())) {
  dial(meeting_, 0);
}

std::string Uplink::own_address() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  char text[INET_ADDRSTRLEN];
  if (getsockname(link_->fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) == nullptr) {
    throw_errno("the address of this host");
  }
  return text;
}

/// Connects to the controller, or to the agent that is to carry the messages of this one. `number`: as in Hello.
void Uplink::dial(const Meeting& meeting, std::uint32_t number) {
  stream_.lose_way();
  link_ = std::make_unique<Link>(connect_to(meeting), Link::Side::kAgent, meeting.token);
  number_ = number;
  greeted_ = false;
  heard_ns_ = now_ns();
}

/// Connects to the controller, whatever is in the way of another agent.
void Uplink::dial_controller() {
  stays_ = true;
  dial(meeting_, 0);
}

void Uplink::greet() {
  Hello hello{.name = name_, .version = version_, .instance = instance_};
  if (port_ != 0) {
    hello.address = own_address();
    hello.port = port_;
  }
  hello.number = number_;
  hello.stays = stays_;
  hello.received = stream_.received();
  link_->send({.kind = Kind::kHello, .body = hello.text()});
}

void Uplink::serve(const std::function<void(Message)>& process) {
  // The link may be another one after each message.
  const Link* const served = link_.get();
  std::vector<Message> messages = link_->receive();
  if (!std::exchange(greeted_, link_->established()) && greeted_) greet();
  for (Message& message : messages) {
    heard_ns_ = now_ns();
    if (message.host != 0 || !take(message)) process(std::move(message));
    if (link_.get() != served) return;
  }
}

/// Counts a message. Returns whether it is about the connection itself.
bool Uplink::take(const Message& message) {
  switch (message.kind) {
    case Kind::kWelcome:
      welcome(json::parse(message.body));
      return true;
    case Kind::kRedirect:
      redirect(json::parse(message.body));
      return true;
    case Kind::kPing:
      stream_.acknowledge(message.body);
      acknowledge();
      return true;
    case Kind::kFinish:  // no part of the stream
      return false;
    default:
      if (stream_.count(message)) acknowledge();
      return false;
  }
}

void Uplink::acknowledge() const {
  stream_.send_beside({.kind = Kind::kPong, .body = std::to_string(stream_.received())});
}

void Uplink::welcome(const json& words) {
  longest_silence_ = static_cast<Nanoseconds>(words.at("host_seconds").get<double>() * 1e9) / kSilencePart;
  const auto received = words.at("received").get<std::uint64_t>();
  stream_.take([this](const Message& it) { link_->send(it); }, received);
}

void Uplink::redirect(const json& words) {
  Meeting carrier = meeting_;
  carrier.address = words.at("address").get<std::string>();
  carrier.port = words.at("port").get<std::uint16_t>();
  try {
    dial(carrier, words.at("number").get<std::uint32_t>());
  } catch (const std::exception&) {
    dial_controller();
  }
}

void Uplink::watch() {
  if (!link_->failure().empty()) {
    if (is_carried()) return dial_controller();
    throw std::runtime_error("the controller: " + link_->failure());
  }
  const Nanoseconds silence = now_ns() - heard_ns_;
  if (is_carried() && silence > (stream_.has_way() ? longest_silence_ : kLongestWelcome)) return dial_controller();
  if (silence > kLongestSilence) throw std::runtime_error("the controller has been silent for 60 s");
}

}  // namespace plugfest::cluster
