#include "harness/certify/hub/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor.h"
#include "fabric/system/load_clock.h"
#include "fabric/system/throw_errno.h"
#include "harness/certify/hub/orders.h"
#include "harness/certify/wire/entrance.h"
#include "harness/certify/wire/environment.h"
#include "harness/certify/wire/link.h"
#include "harness/certify/wire/relay.h"
#include "harness/certify/wire/stream.h"

namespace plugfest::certify {
namespace {

using nlohmann::json;

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr int kTickMs = 200;
/// An agent answers every second.
constexpr Nanoseconds kUsualSilence = 3 * kSecond / 2;
/// An agent whose messages nobody carries any more may take this part of host_seconds to come back.
constexpr int kReturnPart = 4;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostUnsent = 4u << 20;

/// Names are parts of ranks' names, of files in the archive, and of texts for a terminal.
bool is_good_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char it) {
           return (it >= 'a' && it <= 'z') || (it >= 'A' && it <= 'Z') || (it >= '0' && it <= '9') || it == '-' ||
                  it == '_' || it == '.';
         });
}

/// Each rank has two sockets and two pipes here, and one more socket for each of its threads.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

/// The thread that reads and writes all connections, and what it shares with others.
class Hub::Loop {
 public:
  explicit Loop(const HubOptions& options)
      : meeting_{.address = options.address, .token = options.token ? *options.token : make_token()},
        host_limit_(static_cast<Nanoseconds>(options.host_seconds * 1e9)),
        host_seconds_(options.host_seconds),
        fan_out_(options.fan_out),
        entrance_(options.address, meeting_.token) {
    raise_descriptor_limit();
    wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) throw_errno("eventfd");
    meeting_.port = entrance_.port();
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    post([this] { finishing_ = true; });
    thread_.join();
  }

  /// State of a rank; guarded by mutex_.
  struct RankState {
    std::uint32_t id = 0;
    std::string host = {};
    bool started = false;
    bool ended = false;
    std::string failure = {};
    std::optional<int> exited = std::nullopt;
    std::optional<bool> frozen = std::nullopt;
    /// Why it ended, if its host is lost.
    std::string reason = {};
    const std::shared_ptr<LoadClock::Meter> waited = std::make_shared<LoadClock::Meter>(0);
  };

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }

  void tell(const std::shared_ptr<RankState>& rank, Kind kind) {
    post([this, rank, kind] {
      if (AgentHere* agent = agent_of(rank->host)) agent->stream.send({.kind = kind, .rank = rank->id});
    });
  }

  std::shared_ptr<RankState> start(const control::LaunchRequest& request) {
    auto rank = std::make_shared<RankState>();
    rank->host = request.rank.substr(0, request.rank.rfind('.'));
    const std::string body = json{{"environment", to_json(request.environment)}}.dump();
    const auto copy_of = [](int fd) {
      Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (!copy) throw_errno("a channel of a rank");
      return copy;
    };
    std::map<std::uint32_t, Descriptor> ends;
    for (std::size_t i = 0; i < request.descriptors.size(); ++i) {
      ends.emplace(static_cast<std::uint32_t>(i), copy_of(request.descriptors[i].first));
    }
    ends.emplace(kOutputChannel, copy_of(request.output_fd));
    const auto shared_ends = std::make_shared<std::map<std::uint32_t, Descriptor>>(std::move(ends));
    post([this, rank, body, shared_ends] { begin(rank, body, *shared_ends); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rank->started || rank->exited || !rank->failure.empty(); });
    if (!rank->failure.empty()) throw std::runtime_error(rank->failure);
    if (!rank->started) throw std::runtime_error(rank->reason);
    return rank;
  }

  std::vector<Answer> delegate(std::vector<Order> orders, std::size_t width, const std::function<bool()>& stop) {
    const auto round = std::make_shared<Round>(Round{.orders = std::move(orders), .width = width});
    const std::future<void> done = round->done.get_future();
    post([this, round] { orders_.give(round); });
    while (done.wait_for(std::chrono::milliseconds(kTickMs)) != std::future_status::ready) {
      if (stop()) post([this, round] { orders_.cancel(round); });
    }
    return std::move(round->answers);
  }

  std::string loss_of(const std::string& host) const {
    const std::lock_guard lock(mutex_);
    const auto found = hosts_.find(host);
    return found == hosts_.end() ? fmt::format("host {} has not joined", host) : found->second.lost;
  }

  // On the loop's thread.

  /// With an agent that also carries the messages of others.
  struct Connection {
    std::unique_ptr<Link> link = {};
    /// Where others connect to that agent; port 0: nowhere.
    std::string address = {};
    std::uint16_t port = 0;
    std::size_t redirected = 0;
  };

  struct AgentHere {
    std::string name = {};
    std::string instance = {};
    /// What carries its messages; nullptr: nothing at present.
    Connection* way = nullptr;
    /// Message::host on that connection.
    std::uint32_t number = 0;
    Stream stream = {};
    Nanoseconds heard_ns = 0;
    Nanoseconds silent_ns = 0;  ///< longer than usual; counted as a wait of its ranks
    /// When and why it has lost its way; 0: it has one.
    Nanoseconds gone_ns = 0;
    std::string gone = {};
    std::map<std::uint32_t, std::unique_ptr<Relay>> relays = {};
    std::map<std::uint32_t, std::shared_ptr<RankState>> ranks = {};
  };

  AgentHere* agent_of(const std::string& host) {
    const auto found = agents_.find(host);
    return found == agents_.end() ? nullptr : &found->second;
  }

  void begin(const std::shared_ptr<RankState>& rank, const std::string& body,
             std::map<std::uint32_t, Descriptor>& ends) {
    AgentHere* agent = agent_of(rank->host);
    if (agent == nullptr) {
      std::string loss = loss_of(rank->host);
      const std::lock_guard lock(mutex_);
      rank->failure = std::move(loss);
      changed_.notify_all();
      return;
    }
    rank->id = next_rank_++;
    Stream* const stream = &agent->stream;
    auto relay = std::make_unique<Relay>(rank->id, [stream](const Message& it) { stream->send(it); });
    for (auto& [channel, end] : ends) {
      const bool pipe = channel == kLogChannel || channel == kOutputChannel;
      relay->add(channel, std::move(end), pipe ? Relay::Kind::kPipeToWrite : Relay::Kind::kSocket);
    }
    stream->send({.kind = Kind::kStart, .rank = rank->id, .body = body});
    agent->relays.emplace(rank->id, std::move(relay));
    agent->ranks.emplace(rank->id, rank);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::map<std::string, HostStatus> hosts_;
  std::set<std::string> expected_;
  HubCounters counters_;
  Meeting meeting_;
  /// Only the loop's thread. By the names of hosts.
  std::map<std::string, Connection> connections_;
  std::map<std::string, AgentHere> agents_;
  Orders orders_{[this](const std::string& host) { return agent_of(host) == nullptr ? loss_of(host) : ""; },
                 [this](const std::string& host, const Message& message) {
                   if (AgentHere* agent = agent_of(host)) agent->stream.send(message);
                 }};

 private:
  void run() {
    while (!finishing_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      for (auto& [name, agent] : agents_) {
        const bool may_read = agent.stream.unacknowledged_bytes() < kMostUnsent;
        for (auto& [id, relay] : agent.relays) relay->add_to(polled, may_read);
      }
      for (auto& [name, connection] : connections_) {
        const Link& link = *connection.link;
        polled.push_back({link.fd(), static_cast<short>(POLLIN | (link.has_unsent() ? POLLOUT : 0)), 0});
      }
      entrance_.add_to(polled);
      poll(polled.data(), polled.size(), kTickMs);
      // In this order, `polled` describes the rest whatever each of them adds and removes.
      auto next = polled.cbegin() + 1;
      for (auto& [name, agent] : agents_) {
        for (auto& [id, relay] : agent.relays) relay->serve(next);
      }
      for (auto& [name, connection] : connections_) {
        if ((*next++).revents == 0) continue;
        for (Message& message : connection.link->receive()) process_from(name, connection, std::move(message));
      }
      entrance_.serve(next, [this](std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest) {
        return admit(std::move(link), hello, std::move(rest));
      });
      watch();
      add_waits();
      drop_lost();
      run_tasks();
      for (auto& [name, connection] : connections_) connection.link->flush();
    }
    for (auto& [name, agent] : agents_) {
      if (agent.number != 0) agent.stream.send_beside({.kind = Kind::kFinish});
    }
    for (auto& [name, connection] : connections_) connection.link->send({.kind = Kind::kFinish});
    // A second for what is not sent yet; agents also end when the connection closes.
    const Nanoseconds deadline = now_ns() + kSecond;
    for (auto& [name, connection] : connections_) {
      Link& link = *connection.link;
      while (link.has_unsent() && link.failure().empty() && now_ns() < deadline) {
        pollfd fd{link.fd(), POLLOUT, 0};
        poll(&fd, 1, 50);
        link.flush();
      }
    }
  }

  void run_tasks() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof count);
    std::deque<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

  /// Takes an agent that has connected to the controller, or tells it which agent to connect to.
  bool admit(std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest) {
    if (AgentHere* known = agent_of(hello.name)) {
      if (hello.instance.empty() || hello.instance != known->instance || connections_.contains(hello.name)) {
        return false;
      }
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
    if (connections_.size() >= fan_out_ && !hello.stays && carrier->second.port != 0) {
      Connection& it = carrier->second;
      ++it.redirected;
      names_.emplace(++last_number_, hello.name);
      link->send({.kind = Kind::kRedirect,
                  .body = json{{"address", it.address}, {"port", it.port}, {"number", last_number_}}.dump()});
      add(counters_, link->counters());
      return true;
    }
    Connection& connection = connect(std::move(link), hello);
    join(hello, connection, 0);
    for (Message& message : rest) process_from(hello.name, connection, std::move(message));
    return true;
  }

  Connection& connect(std::unique_ptr<Link> link, const Hello& hello) {
    Connection& connection = connections_[hello.name];
    connection = {.link = std::move(link), .address = hello.address, .port = hello.port};
    const std::lock_guard lock(mutex_);
    counters_.connections = std::max<std::uint64_t>(counters_.connections, connections_.size());
    return connection;
  }

  bool may_join(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return is_good_name(name) && !hosts_.contains(name) && (expected_.empty() || expected_.contains(name));
  }

  void join(const Hello& hello, Connection& way, std::uint32_t number) {
    {
      const std::lock_guard lock(mutex_);
      hosts_[hello.name].version = hello.version.substr(0, kLongestName);
      changed_.notify_all();
    }
    AgentHere& agent = agents_[hello.name];
    agent.name = hello.name;
    agent.instance = hello.instance;
    agent.number = number;
    welcome(agent, way, hello.received);
  }

  /// From now on `way` carries the messages of the agent, of which it has received so many.
  void welcome(AgentHere& agent, Connection& way, std::uint64_t received) {
    agent.way = &way;
    agent.gone_ns = 0;
    agent.heard_ns = now_ns();
    const Stream::Way send = [link = way.link.get(), number = agent.number](const Message& message) {
      Message addressed = message;
      addressed.host = number;
      link->gather(addressed);
    };
    send({.kind = Kind::kWelcome,
          .body = json{{"host_seconds", host_seconds_}, {"received", agent.stream.received()}}.dump()});
    agent.stream.take(send, received);
  }

  /// A message that has come through the connection with the agent of `carrier`.
  void process_from(const std::string& carrier, Connection& connection, Message message) {
    if (message.host == 0) return process(agents_.at(carrier), std::move(message));
    const auto name = names_.find(message.host);
    if (name == names_.end()) return;
    if (message.kind == Kind::kHello) {
      join_behind(connection, message, name->second);
      return;
    }
    AgentHere* const agent = agent_of(name->second);
    // What is late on a way that the agent has left has come another way, too.
    if (agent == nullptr || agent->way != &connection || agent->number != message.host) return;
    if (message.kind == Kind::kGone) return lose_way(*agent, message.body);
    process(*agent, std::move(message));
  }

  void join_behind(Connection& connection, const Message& message, const std::string& name) {
    try {
      const Hello hello = Hello::parse(message.body);
      if (hello.name == name && may_join(name)) return join(hello, connection, message.host);
    } catch (const json::exception&) {
      // It is refused.
    }
    connection.link->gather({.kind = Kind::kFinish, .host = message.host});
  }

  void lose_way(AgentHere& agent, const std::string& why) {
    agent.way = nullptr;
    agent.stream.lose_way();
    agent.gone_ns = now_ns();
    agent.gone = why;
  }

  void ask(const AgentHere& agent) {
    if (!agent.stream.has_way()) return;
    agent.stream.send_beside({.kind = Kind::kPing, .body = std::to_string(agent.stream.received())});
    ++watching_;
  }

  /// Asks all agents at once, so that few batches carry it.
  void watch() {
    if (now_ns() - asked_ns_ < kSecond) return;
    asked_ns_ = now_ns();
    for (auto& [name, agent] : agents_) ask(agent);
  }

  void process(AgentHere& agent, Message message) {
    agent.heard_ns = now_ns();
    if (message.kind == Kind::kPong) {
      agent.stream.acknowledge(message.body);
      ++watching_;
      return;
    }
    if (agent.stream.count(message)) ask(agent);
    if (orders_.process(agent.name, message)) return;
    if (message.kind == Kind::kFacts) {
      const std::lock_guard lock(mutex_);
      hosts_[agent.name].facts = json::accept(message.body) ? std::move(message.body) : "{}";
      changed_.notify_all();
      return;
    }
    const auto found = agent.ranks.find(message.rank);
    if (found == agent.ranks.end()) return;
    if (message.kind == Kind::kData || message.kind == Kind::kClosed) {
      message.opened = 0;  // only the controller starts threads
      agent.relays.at(message.rank)->deliver(std::move(message));
      return;
    }
    const std::lock_guard lock(mutex_);
    RankState& rank = *found->second;
    switch (message.kind) {
      case Kind::kStarted:
        rank.started = true;
        break;
      case Kind::kFailed:
        rank.failure = message.body.empty() ? "?" : message.body;
        rank.exited = 0;
        break;
      case Kind::kFrozen:
        rank.frozen = message.body == std::string(1, 1);
        break;
      case Kind::kWaited: {
        Nanoseconds waited = 0;
        std::from_chars(message.body.data(), message.body.data() + message.body.size(), waited);
        *rank.waited += std::max<Nanoseconds>(0, waited);
        break;
      }
      case Kind::kEnded:
        rank.ended = true;
        break;
      case Kind::kExited: {
        int status = 0;
        std::from_chars(message.body.data(), message.body.data() + message.body.size(), status);
        rank.exited = status;
        break;
      }
      default:
        break;
    }
    if (rank.exited) {
      agent.relays.erase(message.rank);
      agent.ranks.erase(found);
    }
    changed_.notify_all();
  }

  /// The ranks of an agent wait while it is silent, and all while this thread waits for a processor.
  void add_waits() {
    const Nanoseconds waited = now_ns() - started_ns_ - clock_.now();
    const Nanoseconds own = std::exchange(waited_ns_, std::max(waited, waited_ns_));
    for (auto& [name, agent] : agents_) {
      const Nanoseconds silent = std::max<Nanoseconds>(0, now_ns() - agent.heard_ns - kUsualSilence);
      const Nanoseconds before = std::exchange(agent.silent_ns, silent);
      const Nanoseconds added = waited_ns_ - own + std::max<Nanoseconds>(0, silent - before);
      if (added == 0) continue;
      for (auto& [id, rank] : agent.ranks) *rank->waited += added;
    }
  }

  /// Why the agent is lost; "": it is not.
  std::string reason_of_loss(const AgentHere& agent) const {
    const auto own = connections_.find(agent.name);
    if (own != connections_.end() && !own->second.link->failure().empty()) {
      return fmt::format("host {}: its agent is gone: {}", agent.name, own->second.link->failure());
    }
    if (agent.gone_ns != 0 && now_ns() - agent.gone_ns > host_limit_ / kReturnPart) {
      return fmt::format("host {}: its agent is gone: {}", agent.name, agent.gone);
    }
    if (now_ns() - agent.heard_ns <= host_limit_) return "";
    return fmt::format("host {} has not answered for {:g} s", agent.name, host_seconds_);
  }

  void drop_lost() {
    for (auto it = agents_.begin(); it != agents_.end();) {
      AgentHere& agent = it->second;
      const std::string name = agent.name, reason = reason_of_loss(agent);
      if (reason.empty()) {
        ++it;
        continue;
      }
      if (const auto own = connections_.find(name); own != connections_.end()) {
        for (auto& [other_name, other] : agents_) {
          if (other.way == &own->second && other_name != name)
            lose_way(other, fmt::format("host {}, which carried its messages, is lost", name));
        }
        add(counters_, own->second.link->counters());
        connections_.erase(own);
      } else {
        agent.stream.send_beside({.kind = Kind::kFinish});
      }
      {
        const std::lock_guard lock(mutex_);
        hosts_[name].lost = reason;
        for (auto& [id, rank] : agent.ranks) {
          rank->reason = reason;
          rank->ended = true;
          rank->frozen = false;
          rank->exited = SIGKILL;
        }
        changed_.notify_all();
      }
      it = agents_.erase(it);
      orders_.end_those_of(name, reason);
    }
  }

  const Nanoseconds host_limit_;
  const double host_seconds_;
  const std::size_t fan_out_;
  Descriptor wake_;
  Entrance entrance_;
  /// Of the agents that were told to connect to another one, by Message::host.
  std::map<std::uint32_t, std::string> names_;
  std::uint32_t last_number_ = 0;
  Nanoseconds asked_ns_ = 0;
  std::uint32_t next_rank_ = 1;
  bool finishing_ = false;
  LoadClock clock_{LoadClock::Own::kThread};
  const Nanoseconds started_ns_ = now_ns();
  Nanoseconds waited_ns_ = 0;
  std::thread thread_;

 public:
  std::uint64_t watching_ = 0;
  std::uint64_t refused() const { return entrance_.refused(); }
  static void add(HubCounters& sum, const Link::Counters& link) {
    sum.messages += link.messages;
    sum.bytes += link.bytes;
    sum.batches += link.batches;
    sum.watching_batches += link.watching_batches;
  }
};

namespace {

/// A rank on the host of an agent.
template <class Loop>
class RemoteProcess final : public control::ChildProcess {
 public:
  RemoteProcess(Loop& loop, std::shared_ptr<typename Loop::RankState> state) : loop_(loop), state_(std::move(state)) {}
  ~RemoteProcess() override { end(); }

  pid_t pid() const override { return -1; }
  bool alive() const override { return !reaped_; }
  bool frozen() const override { return frozen_; }
  bool has_ended() const override {
    const std::lock_guard lock(loop_.mutex_);
    return !reaped_ && state_->ended;
  }

  bool freeze() override {
    if (reaped_) return false;
    {
      const std::lock_guard lock(loop_.mutex_);
      state_->frozen.reset();
    }
    loop_.tell(state_, Kind::kFreeze);
    std::unique_lock lock(loop_.mutex_);
    loop_.changed_.wait(lock, [&] { return state_->frozen || state_->exited; });
    return frozen_ = state_->frozen.value_or(false);
  }

  void thaw() override {
    loop_.tell(state_, Kind::kThaw);
    frozen_ = false;
  }

  std::optional<int> end() override {
    if (std::exchange(reaped_, true)) return std::nullopt;
    loop_.tell(state_, Kind::kEnd);
    std::unique_lock lock(loop_.mutex_);
    loop_.changed_.wait(lock, [&] { return state_->exited.has_value(); });
    return state_->exited;
  }

  std::shared_ptr<const LoadClock::Meter> waited() const override { return state_->waited; }

  std::string end_reason() const override {
    const std::lock_guard lock(loop_.mutex_);
    return state_->reason;
  }

 private:
  Loop& loop_;
  const std::shared_ptr<typename Loop::RankState> state_;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace

Hub::Hub(const HubOptions& options) : loop_(std::make_unique<Loop>(options)) {}
Hub::~Hub() = default;

const Meeting& Hub::meeting() const { return loop_->meeting_; }

void Hub::expect(const std::vector<std::string>& names) {
  const std::lock_guard lock(loop_->mutex_);
  loop_->expected_ = {names.begin(), names.end()};
}

bool Hub::wait_for(std::size_t count, double seconds, const std::function<bool()>& stop) {
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
  std::unique_lock lock(loop_->mutex_);
  while (loop_->hosts_.size() < count) {
    loop_->changed_.wait_for(lock, std::chrono::milliseconds(kTickMs));
    lock.unlock();  // `stop` may ask for the hosts
    if (now_ns() > deadline || stop()) return hosts().size() >= count;
    lock.lock();
  }
  return true;
}

void Hub::examine(const std::string& plugin) {
  const std::string body = json{{"plugin", plugin}}.dump();
  loop_->post([this, body] {
    for (auto& [name, agent] : loop_->agents_) agent.stream.send({.kind = Kind::kExamine, .body = body});
  });
  std::unique_lock lock(loop_->mutex_);
  loop_->changed_.wait(lock, [&] {
    return std::all_of(loop_->hosts_.begin(), loop_->hosts_.end(),
                       [](const auto& host) { return !host.second.facts.empty() || !host.second.lost.empty(); });
  });
}

std::map<std::string, HostStatus> Hub::hosts() const {
  const std::lock_guard lock(loop_->mutex_);
  return loop_->hosts_;
}

HubCounters Hub::counters() const {
  HubCounters sum;
  bool ready = false;
  loop_->post([&] {
    const std::lock_guard lock(loop_->mutex_);
    sum = loop_->counters_;
    sum.watching = loop_->watching_;
    sum.refused = loop_->refused();
    for (auto& [name, connection] : loop_->connections_) Loop::add(sum, connection.link->counters());
    ready = true;
    loop_->changed_.notify_all();
  });
  std::unique_lock lock(loop_->mutex_);
  loop_->changed_.wait(lock, [&] { return ready; });
  return sum;
}

std::string Hub::loss_of(const std::string& host) const { return loop_->loss_of(host); }

std::vector<Hub::Answer> Hub::delegate(std::vector<Order> orders, std::size_t width,
                                       const std::function<bool()>& stop) {
  return loop_->delegate(std::move(orders), width, stop);
}

pid_t Hub::launch(const control::LaunchRequest& request) {
  throw std::runtime_error(fmt::format("rank {} has no process on this machine", request.rank));
}

std::unique_ptr<control::ChildProcess> Hub::start(const control::LaunchRequest& request) {
  return std::make_unique<RemoteProcess<Loop>>(*loop_, loop_->start(request));
}

}  // namespace plugfest::certify
