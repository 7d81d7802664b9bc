#include "harness/certify/hub/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
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
#include <list>
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
#include "harness/certify/wire/environment.h"
#include "harness/certify/wire/link.h"
#include "harness/certify/wire/relay.h"

namespace plugfest::certify {
namespace {

using nlohmann::json;

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kHandshakeTime = 10 * kSecond;
/// Connections whose handshake is not complete.
constexpr std::size_t kMostStrangers = 1024;
constexpr int kTickMs = 200;
/// An agent answers every second.
constexpr Nanoseconds kUsualSilence = 3 * kSecond / 2;
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
      : host_limit_(static_cast<Nanoseconds>(options.host_seconds * 1e9)), host_seconds_(options.host_seconds) {
    raise_descriptor_limit();
    wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) throw_errno("eventfd");
    meeting_.token = options.token ? *options.token : make_token();
    listen_on(options.address);
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
      if (AgentHere* agent = agent_of(rank->host)) agent->link->send({.kind = kind, .rank = rank->id});
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

  Answer delegate(const std::string& host, const std::string& peer, const std::string& order,
                  const std::function<bool()>& stop) {
    // The loop keeps it if `stop` ends the wait.
    const auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> answer = promise->get_future();
    post([=, this] {
      for (const std::string& it : {host, peer}) {
        if (agent_of(it) == nullptr) return promise->set_value({.failure = loss_of(it)});
      }
      orders_.give(next_rank_++, host, peer, order, promise);
    });
    while (answer.wait_for(std::chrono::milliseconds(kTickMs)) != std::future_status::ready) {
      if (stop()) return {};
    }
    return answer.get();
  }

  std::string loss_of(const std::string& host) const {
    const std::lock_guard lock(mutex_);
    const auto found = hosts_.find(host);
    return found == hosts_.end() ? fmt::format("host {} has not joined", host) : found->second.lost;
  }

  // On the loop's thread.

  struct AgentHere {
    std::string name = {};
    std::unique_ptr<Link> link = {};
    Nanoseconds heard_ns = 0;
    Nanoseconds pinged_ns = 0;
    Nanoseconds silent_ns = 0;  ///< longer than usual; counted as a wait of its ranks
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
    Link* const link = agent->link.get();
    auto relay = std::make_unique<Relay>(rank->id, [link](const Message& it) { link->send(it); });
    for (auto& [channel, end] : ends) {
      const bool pipe = channel == kLogChannel || channel == kOutputChannel;
      relay->add(channel, std::move(end), pipe ? Relay::Kind::kPipeToWrite : Relay::Kind::kSocket);
    }
    link->send({.kind = Kind::kStart, .rank = rank->id, .body = body});
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
  /// Only the loop's thread.
  std::map<std::string, AgentHere> agents_;
  Orders orders_{[this](const std::string& host, const Message& message) {
    if (AgentHere* agent = agent_of(host)) agent->link->send(message);
  }};

 private:
  struct Stranger {
    std::unique_ptr<Link> link;
    Nanoseconds deadline_ns = 0;
  };

  void listen_on(const std::string& address) {
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
    meeting_.address = address;
    meeting_.port = ntohs(where.sin_port);
  }

  void run() {
    while (!finishing_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      const auto add = [&](const Link& link) {
        polled.push_back({link.fd(), static_cast<short>(POLLIN | (link.has_unsent() ? POLLOUT : 0)), 0});
      };
      for (const Stranger& stranger : strangers_) add(*stranger.link);
      for (auto& [name, agent] : agents_) {
        add(*agent.link);
        const bool may_read = agent.link->unsent_bytes() < kMostUnsent;
        for (auto& [id, relay] : agent.relays) relay->add_to(polled, may_read);
      }
      poll(polled.data(), polled.size(), kTickMs);
      auto next = polled.cbegin() + 2;
      // New connections come last, so that `polled` still describes the others.
      serve_strangers(next);
      for (auto& [name, agent] : agents_) {
        if (joined_now_.contains(name)) continue;
        serve(agent, next);
      }
      joined_now_.clear();
      add_waits();
      drop_lost();
      if (polled[1].revents != 0) accept_all();
      run_tasks();
    }
    for (auto& [name, agent] : agents_) {
      agent.link->send({.kind = Kind::kFinish});
    }
    // A second for what is not sent yet; agents also end when the connection closes.
    const Nanoseconds deadline = now_ns() + kSecond;
    for (auto& [name, agent] : agents_) {
      while (agent.link->has_unsent() && agent.link->failure().empty() && now_ns() < deadline) {
        pollfd fd{agent.link->fd(), POLLOUT, 0};
        poll(&fd, 1, 50);
        agent.link->flush();
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

  void refuse() {
    const std::lock_guard lock(mutex_);
    ++counters_.refused;
  }

  void accept_all() {
    for (;;) {
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) return;
      if (strangers_.size() >= kMostStrangers) {
        refuse();
        continue;
      }
      auto link = std::make_unique<Link>(std::move(socket), Link::Side::kController, meeting_.token);
      link->flush();
      strangers_.push_back({std::move(link), now_ns() + kHandshakeTime});
    }
  }

  void serve_strangers(std::vector<pollfd>::const_iterator& next) {
    for (auto it = strangers_.begin(); it != strangers_.end();) {
      const pollfd& ready = *next++;
      Link& link = *it->link;
      if ((ready.revents & POLLOUT) != 0) link.flush();
      std::vector<Message> messages;
      if (ready.revents != 0) messages = link.receive();
      if (!messages.empty() && messages.front().kind == Kind::kHello) {
        if (!admit(std::move(it->link), std::move(messages))) refuse();
        it = strangers_.erase(it);
      } else if (!messages.empty() || !link.failure().empty() || now_ns() > it->deadline_ns) {
        refuse();
        it = strangers_.erase(it);
      } else {
        ++it;
      }
    }
  }

  bool admit(std::unique_ptr<Link> link, std::vector<Message> messages) {
    const json hello = json::parse(messages.front().body, nullptr, false);
    if (!hello.is_object() || !hello.contains("name") || !hello["name"].is_string() || !hello.contains("version") ||
        !hello["version"].is_string()) {
      return false;
    }
    const std::string name = hello["name"].get<std::string>();
    {
      const std::lock_guard lock(mutex_);
      if (!is_good_name(name) || hosts_.contains(name) || (!expected_.empty() && !expected_.contains(name))) {
        return false;
      }
      hosts_[name].version = hello["version"].get<std::string>().substr(0, kLongestName);
      changed_.notify_all();
    }
    AgentHere agent{.name = name, .link = std::move(link), .heard_ns = now_ns()};
    messages.erase(messages.begin());
    AgentHere& stored = agents_.insert_or_assign(name, std::move(agent)).first->second;
    joined_now_.insert(name);
    for (Message& message : messages) process(stored, std::move(message));
    return true;
  }

  void serve(AgentHere& agent, std::vector<pollfd>::const_iterator& next) {
    const pollfd& ready = *next++;
    for (auto& [id, relay] : agent.relays) relay->serve(next);
    if ((ready.revents & POLLOUT) != 0) agent.link->flush();
    if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      for (Message& message : agent.link->receive()) {
        agent.heard_ns = now_ns();
        process(agent, std::move(message));
      }
    }
    if (now_ns() - agent.pinged_ns > kSecond) {
      agent.pinged_ns = now_ns();
      agent.link->send({.kind = Kind::kPing});
      ++watching_;
    }
  }

  void process(AgentHere& agent, Message message) {
    if (message.kind == Kind::kPong) {
      ++watching_;
      return;
    }
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

  void drop_lost() {
    for (auto it = agents_.begin(); it != agents_.end();) {
      AgentHere& agent = it->second;
      std::string reason;
      if (!agent.link->failure().empty()) {
        reason = fmt::format("host {}: its agent is gone: {}", agent.name, agent.link->failure());
      } else if (now_ns() - agent.heard_ns > host_limit_) {
        reason = fmt::format("host {} has not answered for {:g} s", agent.name, host_seconds_);
      }
      if (reason.empty()) {
        ++it;
        continue;
      }
      const std::lock_guard lock(mutex_);
      hosts_[agent.name].lost = reason;
      add_counters(*agent.link);
      for (auto& [id, rank] : agent.ranks) {
        rank->reason = reason;
        rank->ended = true;
        rank->frozen = false;
        rank->exited = SIGKILL;
      }
      orders_.end_those_of(agent.name, reason);
      it = agents_.erase(it);
      changed_.notify_all();
    }
  }

  /// Requires mutex_.
  void add_counters(const Link& link) { add(counters_, link.counters()); }

  const Nanoseconds host_limit_;
  const double host_seconds_;
  Descriptor wake_;
  Descriptor listener_;
  std::list<Stranger> strangers_;
  std::set<std::string> joined_now_;
  /// Of ranks and of orders.
  std::uint32_t next_rank_ = 1;
  bool finishing_ = false;
  LoadClock clock_{LoadClock::Own::kThread};
  const Nanoseconds started_ns_ = now_ns();
  Nanoseconds waited_ns_ = 0;
  std::thread thread_;

 public:
  std::uint64_t watching_ = 0;
  static void add(HubCounters& sum, const Link::Counters& link) {
    sum.messages += link.messages_sent + link.messages_received;
    sum.bytes += link.bytes_sent + link.bytes_received;
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
    for (auto& [name, agent] : loop_->agents_) agent.link->send({.kind = Kind::kExamine, .body = body});
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
    for (auto& [name, agent] : loop_->agents_) Loop::add(sum, agent.link->counters());
    ready = true;
    loop_->changed_.notify_all();
  });
  std::unique_lock lock(loop_->mutex_);
  loop_->changed_.wait(lock, [&] { return ready; });
  return sum;
}

std::string Hub::loss_of(const std::string& host) const { return loop_->loss_of(host); }

Hub::Answer Hub::delegate(const std::string& host, const std::string& peer, const std::string& order,
                          const std::function<bool()>& stop) {
  return loop_->delegate(host, peer, order, stop);
}

pid_t Hub::launch(const control::LaunchRequest& request) {
  throw std::runtime_error(fmt::format("rank {} has no process on this machine", request.rank));
}

std::unique_ptr<control::ChildProcess> Hub::start(const control::LaunchRequest& request) {
  return std::make_unique<RemoteProcess<Loop>>(*loop_, loop_->start(request));
}

}  // namespace plugfest::certify
