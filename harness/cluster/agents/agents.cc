#include "harness/cluster/agents/agents.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <utility>

namespace plugfest::cluster {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
// Time limit for a connection to become an agent, and maximum number of such connections.
constexpr Nanoseconds kJoinTime = 10 * kSecond;
constexpr std::size_t kMaxCandidates = 1024;
// Pause before another attempt to accept, if no file descriptor is left.
constexpr Nanoseconds kAcceptPause = kSecond / 5;
constexpr std::size_t kMaxName = 64;

void add(HubCounters& sum, const Link::Counters& link) {
  sum.messages += link.messages;
  sum.bytes += link.bytes;
}

}  // namespace

bool is_valid_name(const std::string& host) {
  return !host.empty() && host.size() <= kMaxName && host.front() != '.' && host.front() != '-' &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}

Agents::Agents(const HubOptions& options, const Token& token, HubShared& shared, Process process, Lost lost)
    : options_(options), token_(token), shared_(shared), process_(std::move(process)), lost_(std::move(lost)) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  if (inet_pton(AF_INET, options.address.c_str(), &where.sin_addr) != 1)
    throw std::runtime_error(fmt::format("\"{}\" is not an IPv4 address", options.address));
  listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t size = sizeof(where);
  if (!listener_ || bind(listener_.get(), reinterpret_cast<const sockaddr*>(&where), size) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0)
    throw_errno("listen on " + options.address);
  port_ = ntohs(where.sin_port);
}

JoinedAgent* Agents::find(const std::string& host) {
  const auto found = agents_.find(host);
  return found == agents_.end() ? nullptr : &found->second;
}

HubCounters Agents::counters() const {
  HubCounters sum = counters_;
  for (const auto& [name, agent] : agents_) add(sum, agent.link->counters());
  return sum;
}

void Agents::add_to(std::vector<pollfd>& polled) const {
  for (const auto& [name, agent] : agents_) polled.push_back(agent.link->polled());
  // A connection that cannot be accepted would keep the listener readable. poll() ignores a descriptor of -1.
  polled.push_back({now_ns() < accepts_from_ns_ ? -1 : listener_.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_) polled.push_back(candidate.link->polled());
}

void Agents::serve(std::vector<pollfd>::const_iterator next) {
  // Serving in this order keeps `next` valid for the rest when agents are added and removed.
  for (auto& [name, agent] : agents_)
    if ((*next++).revents != 0) process(agent, agent.link->receive());
  const bool comes = (*next++).revents != 0;
  for (auto candidate = candidates_.begin(); candidate != candidates_.end();) {
    const bool is_ready = (*next++).revents != 0;
    if (is_ready) serve(*candidate);
    if (candidate->link && (!candidate->link->failure().empty() || now_ns() > candidate->deadline_ns)) {
      ++counters_.refused;
      candidate->link.reset();
    }
    candidate = candidate->link ? std::next(candidate) : candidates_.erase(candidate);
  }
  if (comes) accept_all();
}

// Reads data of a candidate. Takes its link if it becomes an agent or is refused.
void Agents::serve(Candidate& candidate) {
  std::vector<Message> messages = candidate.link->receive();
  if (messages.empty()) return;
  const std::string host = candidate.link->host();
  if (messages.front().kind != Kind::kHello || !admit(candidate.link, messages.front().body)) {
    ++counters_.refused;
    candidate.link.reset();
    return;
  }
  messages.erase(messages.begin());
  process(agents_.at(host), std::move(messages));
}

void Agents::accept_all() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (must_pause_accepting(errno)) accepts_from_ns_ = now_ns() + kAcceptPause;
      return;
    }
    if (candidates_.size() >= kMaxCandidates) {
      ++counters_.refused;
      continue;
    }
    try {
      candidates_.push_back(
          {std::make_unique<Link>(std::move(socket), Link::Side::kController, token_), now_ns() + kJoinTime});
    } catch (const std::exception&) {  // no memory; the peer sees a closed connection
      ++counters_.refused;
    }
  }
}

bool Agents::admit(std::unique_ptr<Link>& link, const std::string& version) {
  const std::string name = link->host();
  // If memory is used up, nothing is entered: a host that has joined has an agent, or is lost.
  std::map<std::string, JoinedAgent> joining;
  JoinedAgent& agent = joining[name];
  agent.name = name;
  agent.heard_ns = now_ns();
  {
    const std::lock_guard lock(shared_.mutex);
    if (!is_valid_name(name) || shared_.hosts.contains(name)) return false;
    if (!shared_.expected.empty() && !shared_.expected.contains(name)) return false;
    HostStatus status;
    status.version = version.substr(0, kMaxName);
    shared_.hosts.emplace(name, std::move(status));
    shared_.changed.notify_all();
  }
  agent.link = std::move(link);
  agents_.merge(joining);
  return true;
}

void Agents::process(JoinedAgent& agent, std::vector<Message> messages) {
  for (Message& message : messages) {
    agent.heard_ns = now_ns();
    if (message.kind == Kind::kPong)
      ++counters_.watching;
    else
      process_(agent, std::move(message));
  }
}

void Agents::watch() {
  if (now_ns() - asked_ns_ >= kSecond) {
    asked_ns_ = now_ns();
    for (auto& [name, agent] : agents_) agent.link->send({.kind = Kind::kPing});
    counters_.watching += agents_.size();
  }
  for (auto next = agents_.begin(); next != agents_.end();) {
    const auto current = next++;
    const std::string reason = reason_of_loss(current->second);
    if (reason.empty()) continue;
    lose(current, reason);
  }
}

void Agents::lose_all(const std::string& reason) {
  while (!agents_.empty()) lose(agents_.begin(), reason);
}

void Agents::lose(std::map<std::string, JoinedAgent>::iterator agent, const std::string& reason) {
  auto lost = agents_.extract(agent);
  add(counters_, lost.mapped().link->counters());
  lost_(lost.mapped(), reason);
}

// Why the agent is lost; "": it is not lost.
std::string Agents::reason_of_loss(const JoinedAgent& agent) const {
  if (!agent.link->failure().empty())
    return fmt::format("host {}: the connection to its agent has ended: {}", agent.name, agent.link->failure());
  if (now_ns() - agent.heard_ns <= static_cast<Nanoseconds>(options_.host_seconds * 1e9)) return "";
  return fmt::format("host {} has not answered for {:g} s", agent.name, options_.host_seconds);
}

void Agents::finish() {
  for (auto& [name, agent] : agents_) agent.link->send({.kind = Kind::kFinish});
  const Nanoseconds deadline = now_ns() + kSecond;
  for (auto& [name, agent] : agents_) agent.link->flush_until(deadline);
}

}  // namespace plugfest::cluster
