#include "harness/cluster/hub/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/load_clock.h"
#include "harness/cluster/hub/agents.h"
#include "harness/cluster/hub/orders.h"
#include "harness/cluster/hub/remote_process.h"
#include "harness/cluster/hub/shared.h"
#include "harness/cluster/wire/environment.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

constexpr int kTickMs = 200;
/// An agent answers every second.
constexpr Nanoseconds kUsualSilence = 1'500'000'000;
constexpr std::size_t kMostUnsent = 4u << 20;

/// Each rank has two sockets and two pipes here, and one more socket for each of its threads.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// A number in decimal digits; 0 if it is none.
template <class Number>
Number number_in(const std::string& text) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Takes a message about a rank from its agent. Guarded by HubShared::mutex.
void take(RemoteRank& rank, const Message& message) {
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
    case Kind::kWaited:
      *rank.waited += std::max<Nanoseconds>(0, number_in<Nanoseconds>(message.body));
      break;
    case Kind::kEnded:
      rank.ended = true;
      break;
    case Kind::kExited:
      rank.exited = number_in<int>(message.body);
      break;
    default:
      break;
  }
}

}  // namespace

/// The thread that reads and writes all connections.
class Hub::Loop {
 public:
  explicit Loop(const HubOptions& options)
      : options_(options),
        meeting_{.address = options.address, .token = options.token ? *options.token : make_token()},
        agents_(
            options_, meeting_.token, shared_,
            [this](AgentHere& agent, Message message) { process(agent, std::move(message)); },
            [this](AgentHere& agent, const std::string& reason) { lose(agent, reason); }) {
    raise_descriptor_limit();
    if (!wake_) throw_errno("eventfd");
    meeting_.port = agents_.port();
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    post([this] { finishing_ = true; });
    thread_.join();
  }

  // On any thread.

  const Meeting& meeting() const { return meeting_; }
  HubShared& shared() { return shared_; }

  /// Runs a task on the loop's thread.
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(shared_.mutex);
      tasks_.push_back(std::move(task));
    }
    eventfd_write(wake_.get(), 1);
  }

  std::unique_ptr<control::ChildProcess> start(const control::LaunchRequest& request) {
    auto rank = std::make_shared<RemoteRank>();
    rank->host = control::host_of(request.rank);
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
    {
      std::unique_lock lock(shared_.mutex);
      shared_.changed.wait(lock, [&] { return rank->started || rank->exited || !rank->failure.empty(); });
      if (!rank->failure.empty()) throw std::runtime_error(rank->failure);
      if (!rank->started) throw std::runtime_error(rank->reason);
    }
    return std::make_unique<RemoteProcess>(shared_, rank, [this, rank](Kind kind) {
      post([this, rank, kind] { send(rank->host, {.kind = kind, .rank = rank->id}); });
    });
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
    const std::lock_guard lock(shared_.mutex);
    const auto found = shared_.hosts.find(host);
    return found == shared_.hosts.end() ? fmt::format("host {} has not joined", host) : found->second.lost;
  }

  // On the loop's thread.

  Agents& agents() { return agents_; }

 private:
  void run() {
    while (!finishing_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      for (auto& [name, agent] : agents_.all()) {
        const bool may_read = agent.stream.unacknowledged_bytes() < kMostUnsent;
        for (auto& [id, rank] : agent.ranks) rank.relay->add_to(polled, may_read);
      }
      agents_.add_to(polled);
      poll(polled.data(), polled.size(), kTickMs);
      // In this order, `polled` describes the rest whatever each of them adds and removes.
      auto next = polled.cbegin() + 1;
      for (auto& [name, agent] : agents_.all()) {
        for (auto& [id, rank] : agent.ranks) rank.relay->serve(next);
      }
      agents_.serve(next);
      add_waits();
      agents_.watch();
      run_tasks();
      agents_.flush();
    }
    agents_.finish();
  }

  void run_tasks() {
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    std::deque<std::function<void()>> tasks;
    {
      const std::lock_guard lock(shared_.mutex);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

  /// Sends a message to the agent of a host, if it is connected.
  void send(const std::string& host, Message message) {
    if (AgentHere* agent = agents_.find(host)) agent->stream.send(std::move(message));
  }

  void begin(const std::shared_ptr<RemoteRank>& rank, const std::string& body,
             std::map<std::uint32_t, Descriptor>& ends) {
    AgentHere* agent = agents_.find(rank->host);
    if (agent == nullptr) {
      std::string loss = loss_of(rank->host);
      const std::lock_guard lock(shared_.mutex);
      rank->failure = std::move(loss);
      shared_.changed.notify_all();
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
    agent->ranks.emplace(rank->id, AgentHere::Rank{rank, std::move(relay)});
  }

  void process(AgentHere& agent, Message message) {
    if (orders_.process(agent.name, message)) return;
    if (message.kind == Kind::kFacts) {
      const std::lock_guard lock(shared_.mutex);
      shared_.hosts[agent.name].facts = json::accept(message.body) ? std::move(message.body) : "{}";
      shared_.changed.notify_all();
      return;
    }
    const auto found = agent.ranks.find(message.rank);
    if (found == agent.ranks.end()) return;
    if (message.kind == Kind::kData || message.kind == Kind::kClosed) {
      message.opened = 0;  // only the controller starts threads
      found->second.relay->deliver(std::move(message));
      return;
    }
    const std::lock_guard lock(shared_.mutex);
    RemoteRank& rank = *found->second.state;
    take(rank, message);
    if (rank.exited) agent.ranks.erase(found);
    shared_.changed.notify_all();
  }

  void lose(AgentHere& agent, const std::string& reason) {
    {
      const std::lock_guard lock(shared_.mutex);
      shared_.hosts[agent.name].lost = reason;
      for (auto& [id, rank] : agent.ranks) {
        rank.state->reason = reason;
        rank.state->ended = true;
        rank.state->frozen = false;
        rank.state->exited = SIGKILL;
      }
      shared_.changed.notify_all();
    }
    orders_.end_those_of(agent.name, reason);
  }

  /// The ranks of an agent wait while it is silent, and all while this thread waits for a processor.
  void add_waits() {
    const Nanoseconds waited = now_ns() - started_ns_ - clock_.now();
    const Nanoseconds own = std::exchange(waited_ns_, std::max(waited, waited_ns_));
    for (auto& [name, agent] : agents_.all()) {
      const Nanoseconds silent = std::max<Nanoseconds>(0, now_ns() - agent.heard_ns - kUsualSilence);
      const Nanoseconds before = std::exchange(agent.silent_ns, silent);
      const Nanoseconds added = waited_ns_ - own + std::max<Nanoseconds>(0, silent - before);
      if (added == 0) continue;
      for (auto& [id, rank] : agent.ranks) *rank.state->waited += added;
    }
  }

  const HubOptions options_;
  Meeting meeting_;
  HubShared shared_;
  /// Guarded by HubShared::mutex.
  std::deque<std::function<void()>> tasks_;
  const Descriptor wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // Only the loop's thread uses these.
  Agents agents_;
  Orders orders_{[this](const std::string& host) { return agents_.find(host) == nullptr ? loss_of(host) : ""; },
                 [this](const std::string& host, Message message) { send(host, std::move(message)); }};
  std::uint32_t next_rank_ = 1;
  bool finishing_ = false;
  LoadClock clock_{LoadClock::Own::kThread};
  const Nanoseconds started_ns_ = now_ns();
  Nanoseconds waited_ns_ = 0;
  std::thread thread_;
};

Hub::Hub(const HubOptions& options) : loop_(std::make_unique<Loop>(options)) {}
Hub::~Hub() = default;

const Meeting& Hub::meeting() const { return loop_->meeting(); }

void Hub::expect(const std::vector<std::string>& names) {
  HubShared& shared = loop_->shared();
  const std::lock_guard lock(shared.mutex);
  shared.expected = {names.begin(), names.end()};
}

bool Hub::wait_for(std::size_t count, double seconds, const std::function<bool()>& stop) {
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
  HubShared& shared = loop_->shared();
  std::unique_lock lock(shared.mutex);
  while (shared.hosts.size() < count) {
    shared.changed.wait_for(lock, std::chrono::milliseconds(kTickMs));
    lock.unlock();  // `stop` may ask for the hosts
    if (now_ns() > deadline || stop()) return hosts().size() >= count;
    lock.lock();
  }
  return true;
}

void Hub::examine(const std::string& plugin) {
  const std::string body = json{{"plugin", plugin}}.dump();
  loop_->post([this, body] {
    for (auto& [name, agent] : loop_->agents().all()) agent.stream.send({.kind = Kind::kExamine, .body = body});
  });
  HubShared& shared = loop_->shared();
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] {
    return std::all_of(shared.hosts.begin(), shared.hosts.end(),
                       [](const auto& host) { return !host.second.facts.empty() || !host.second.lost.empty(); });
  });
}

std::map<std::string, HostStatus> Hub::hosts() const {
  HubShared& shared = loop_->shared();
  const std::lock_guard lock(shared.mutex);
  return shared.hosts;
}

HubCounters Hub::counters() const {
  const auto counters = std::make_shared<std::promise<HubCounters>>();
  loop_->post([this, counters] { counters->set_value(loop_->agents().counters()); });
  return counters->get_future().get();
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
  return loop_->start(request);
}

}  // namespace plugfest::cluster
