#include "harness/cluster/wire/entrance.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "fabric/system/file.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

constexpr Nanoseconds kHandshakeTime = 10'000'000'000;
/// Connections whose handshake is not complete.
constexpr std::size_t kMostStrangers = 1024;

}  // namespace

std::string Hello::text() const {
  return json{{"name", name}, {"version", version}, {"instance", instance}, {"address", address},
              {"port", port}, {"number", number},   {"stays", stays},       {"received", received}}
      .dump();
}

Hello Hello::parse(const std::string& text) {
  const json object = json::parse(text);
  return {.name = object.at("name").get<std::string>(),
          .version = object.at("version").get<std::string>(),
          .instance = object.value("instance", ""),
          .address = object.value("address", ""),
          .port = object.value<std::uint16_t>("port", 0),
          .number = object.value("number", 0u),
          .stays = object.value("stays", false),
          .received = object.value<std::uint64_t>("received", 0)};
}

Entrance::Entrance(const std::string& address, const Token& token) : token_(token) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1) {
    throw std::runtime_error(fmt::format("\"{}\" is no IPv4 address", address));
  }
  listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t size = sizeof where;
  if (!listener_ || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&where), size) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0) {
    throw_errno("cannot listen on " + address);
  }
  port_ = ntohs(where.sin_port);
}

void Entrance::add_to(std::vector<pollfd>& polled) const {
  polled.push_back({listener_.get(), POLLIN, 0});
  for (const Stranger& it : strangers_) {
    polled.push_back(it.link->polled());
  }
}

void Entrance::serve(std::vector<pollfd>::const_iterator& next, const Admit& admit) {
  const bool comes = (*next++).revents != 0;
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const pollfd& ready = *next++;
    const auto current = it++;
    Link& link = *current->link;
    if ((ready.revents & POLLOUT) != 0) link.flush();
    std::vector<Message> messages;
    if (ready.revents != 0) messages = link.receive();
    bool admitted = false;
    if (messages.empty() && link.failure().empty() && now_ns() <= current->deadline_ns) continue;
    if (!messages.empty() && messages.front().kind == Kind::kHello) {
      try {
        const Hello hello = Hello::parse(messages.front().body);
        messages.erase(messages.begin());
        admitted = admit(std::move(current->link), hello, std::move(messages));
      } catch (const json::exception&) {
        admitted = false;
      }
    }
    if (!admitted) ++refused_;
    strangers_.erase(current);
  }
  if (comes) accept_all();
}

void Entrance::accept_all() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (strangers_.size() >= kMostStrangers) {
      ++refused_;
      continue;
    }
    auto link = std::make_unique<Link>(std::move(socket), Link::Side::kController, token_);
    link->flush();
    strangers_.push_back({std::move(link), now_ns() + kHandshakeTime});
  }
}

}  // namespace plugfest::cluster
