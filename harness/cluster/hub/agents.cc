#include "harness/cluster/hub/agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace plugfest::cluster {
namespace {

using nlohmann::json;

constexpr Nanoseconds kSecond = 1'000'000'000;
/// An agent whose messages nobody carries any more may take this part of host_seconds to come back.
constexpr int kReturnPart = 4;
constexpr std::size_t kLongestName = 64;

/// Names are parts of ranks' names, of files in the archive, and of texts for a terminal.
bool is_good_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char it) {
           return (it >= 'a' && it <= 'z') || (it >= 'A' && it <= 'Z') || (it >= '0' && it <= '9') || it == '-' ||
                  it == '_' || it == '.';
         });
}

void lose_way(AgentHere& agent, const std::string& why) {
  agent.way = nullptr;
  agent.stream.lose_way();
  agent.gone_ns = now_ns();
  agent.gone = why;
}

void add(HubCounters& sum, const Link::Counters& link) {
  sum.messages += link.messages;
  sum.bytes += link.bytes;
  sum.batches += link.batches;
  sum.watching_batches += link.watching_batches;
}

}  // namespace

Agents::Agents(const HubOptions& options, const Token& token, HubShared& shared, Process process, Lost lost)
    : options_(options),
      shared_(shared),
      process_(std::move(process)),
      lost_(std::move(lost)),
      entrance_(options.address, token) {}

AgentHere* Agents::find(const std::string& host) {
  const auto found = agents_.find(host);
  return found == agents_.end() ? nullptr : &found->second;
}

HubCounters Agents::counters() const {
  HubCounters sum = counters_;
  sum.refused = entrance_.refused();
  for (const auto& [name, connection] : connections_) add(sum, connection.link->counters());
  return sum;
}

void Agents::add_to(std::vector<pollfd>& polled) const {
  for (const auto& [name, connection] : connections_) polled.push_back(connection.link->polled());
  entrance_.add_to(polled);
}

void Agents::serve(std::vector<pollfd>::const_iterator& next) {
  // In this order, `next` describes the rest whatever each of them adds and removes.
  for (auto& [name, connection] : connections_) {
    if ((*next++).revents == 0) continue;
    for (Message& message : connection.link->receive()) process_from(name, connection, std::move(message));
  }
  entrance_.serve(next, [this](std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest) {
    return admit(std::move(link), hello, std::move(rest));
  });
}

void Agents::flush() {
  for (auto& [name, connection] : connections_) connection.link->flush();
}

void Agents::finish() {
  for (auto& [name, agent] : agents_) {
    if (agent.number != 0) agent.stream.send_beside({.kind = Kind::kFinish});
  }
  for (auto& [name, connection] : connections_) connection.link->send({.kind = Kind::kFinish});
  const Nanoseconds deadline = now_ns() + kSecond;
  for (auto& [name, connection] : connections_) connection.link->flush_until(deadline);
}

/// Takes an agent that has connected to the controller, or tells it which agent to connect to.
bool Agents::admit(std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest) {
  if (AgentHere* known = find(hello.name)) {
    if (hello.instance.empty() || hello.instance != known->instance || connections_.contains(hello.name)) return false;
    // It has lost what carried its messages.
    known->number = 0;
    welcome(*known, connect(std::move(link), hello), hello.received);
    return true;
  }
  if (!may_join(hello.name)) return false;
  const auto carrier = std::min_element(connections_.begin(), connections_.end(), [](auto& one, auto& other) {
    return std::pair(one.second.port == 0, one.second.redirected) <
           std::pair(other.second.port == 0, other.second.redirected);
  });
  if (connections_.size() >= options_.fan_out && !hello.stays && carrier->second.port != 0) {
    redirect(*link, carrier->second, hello.name);
    return true;
  }
  Connection& connection = connect(std::move(link), hello);
  join(hello, connection, 0);
  for (Message& message : rest) process_from(hello.name, connection, std::move(message));
  return true;
}

void Agents::redirect(Link& link, Connection& carrier, const std::string& name) {
  ++carrier.redirected;
  names_.emplace(++last_number_, name);
  link.send({.kind = Kind::kRedirect,
             .body = json{{"address", carrier.address}, {"port", carrier.port}, {"number", last_number_}}.dump()});
  add(counters_, link.counters());
}

Connection& Agents::connect(std::unique_ptr<Link> link, const Hello& hello) {
  Connection& connection = connections_[hello.name];
  connection = {.link = std::move(link), .address = hello.address, .port = hello.port};
  counters_.connections = std::max<std::uint64_t>(counters_.connections, connections_.size());
  return connection;
}

bool Agents::may_join(const std::string& name) const {
  const std::lock_guard lock(shared_.mutex);
  return is_good_name(name) && !shared_.hosts.contains(name) &&
         (shared_.expected.empty() || shared_.expected.contains(name));
}

void Agents::join(const Hello& hello, Connection& way, std::uint32_t number) {
  {
    const std::lock_guard lock(shared_.mutex);
    shared_.hosts[hello.name].version = hello.version.substr(0, kLongestName);
    shared_.changed.notify_all();
  }
  AgentHere& agent = agents_[hello.name];
  agent.name = hello.name;
  agent.instance = hello.instance;
  agent.number = number;
  welcome(agent, way, hello.received);
}

void Agents::join_behind(Connection& connection, const Message& message, const std::string& name) {
  try {
    const Hello hello = Hello::parse(message.body);
    if (hello.name == name && may_join(name)) return join(hello, connection, message.host);
  } catch (const json::exception&) {
    // It is refused.
  }
  connection.link->gather({.kind = Kind::kFinish, .host = message.host});
}

/// From now on `way` carries the messages of the agent, of which it has received so many.
void Agents::welcome(AgentHere& agent, Connection& way, std::uint64_t received) {
  agent.way = &way;
  agent.gone_ns = 0;
  agent.heard_ns = now_ns();
  const Stream::Way send = [link = way.link.get(), number = agent.number](const Message& message) {
    Message addressed = message;
    addressed.host = number;
    link->gather(addressed);
  };
  send({.kind = Kind::kWelcome,
        .body = json{{"host_seconds", options_.host_seconds}, {"received", agent.stream.received()}}.dump()});
  agent.stream.take(send, received);
}

/// A message that has come through the connection with the agent of `carrier`.
void Agents::process_from(const std::string& carrier, Connection& connection, Message message) {
  if (message.host == 0) return process(agents_.at(carrier), std::move(message));
  const auto name = names_.find(message.host);
  if (name == names_.end()) return;
  if (message.kind == Kind::kHello) {
    join_behind(connection, message, name->second);
    return;
  }
  AgentHere* const agent = find(name->second);
  // What is late on a way that the agent has left has come another way, too.
  if (agent == nullptr || agent->way != &connection || agent->number != message.host) return;
  if (message.kind == Kind::kGone) return lose_way(*agent, message.body);
  process(*agent, std::move(message));
}

void Agents::process(AgentHere& agent, Message message) {
  agent.heard_ns = now_ns();
  if (message.kind == Kind::kPong) {
    agent.stream.acknowledge(message.body);
    ++counters_.watching;
    return;
  }
  if (agent.stream.count(message)) ask(agent);
  process_(agent, std::move(message));
}

void Agents::ask(const AgentHere& agent) {
  if (!agent.stream.has_way()) return;
  agent.stream.send_beside({.kind = Kind::kPing, .body = std::to_string(agent.stream.received())});
  ++counters_.watching;
}

void Agents::watch() {
  if (now_ns() - asked_ns_ >= kSecond) {
    asked_ns_ = now_ns();
    // All at once, so that few batches carry it.
    for (auto& [name, agent] : agents_) ask(agent);
  }
  for (auto it = agents_.begin(); it != agents_.end();) {
    const auto current = it++;
    const std::string reason = reason_of_loss(current->second);
    if (reason.empty()) continue;
    close_connection_of(current->second);
    auto lost = agents_.extract(current);
    lost_(lost.mapped(), reason);
  }
}

/// Why the agent is lost; "": it is not.
std::string Agents::reason_of_loss(const AgentHere& agent) const {
  const auto limit = static_cast<Nanoseconds>(options_.host_seconds * 1e9);
  const auto own = connections_.find(agent.name);
  if (own != connections_.end() && !own->second.link->failure().empty()) {
    return fmt::format("host {}: its agent is gone: {}", agent.name, own->second.link->failure());
  }
  if (agent.gone_ns != 0 && now_ns() - agent.gone_ns > limit / kReturnPart) {
    return fmt::format("host {}: its agent is gone: {}", agent.name, agent.gone);
  }
  if (now_ns() - agent.heard_ns <= limit) return "";
  return fmt::format("host {} has not answered for {:g} s", agent.name, options_.host_seconds);
}

/// The agents whose messages the lost one carried must connect to the controller.
void Agents::close_connection_of(AgentHere& lost) {
  const auto own = connections_.find(lost.name);
  if (own == connections_.end()) {
    lost.stream.send_beside({.kind = Kind::kFinish});
    return;
  }
  for (auto& [name, agent] : agents_) {
    if (agent.way == &own->second && name != lost.name) {
      lose_way(agent, fmt::format("host {}, which carried its messages, is lost", lost.name));
    }
  }
  add(counters_, own->second.link->counters());
  connections_.erase(own);
}

}  // namespace plugfest::cluster
