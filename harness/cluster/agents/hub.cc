#include "harness/cluster/agents/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace plugfest::cluster {
namespace {

constexpr int kTickMs = 200;
// An agent answers every second.
constexpr Nanoseconds kUsualSilence = 1'500'000'000;
constexpr std::size_t kMaxUnsent = 4u << 20;

// The value in a message of an agent; the default value if it has another size.
template <typename T>
T value_in(const Message& message) {
  try {
    return decode_body<T>(message.body);
  } catch (const wire::WireError&) {
    return {};
  }
}

// Applies a message about a rank from its agent. Guarded by HubShared::mutex.
void take(RemoteRank& rank, const Message& message) {
  switch (message.kind) {
    case Kind::kStarted:
      rank.started = true;
      break;
    case Kind::kFailed:
      (rank.started ? rank.reason : rank.failure) = message.body.empty() ? "?" : message.body;
      rank.ended = true;
      rank.exited = SIGKILL;
      break;
    case Kind::kFrozen:
      rank.frozen = value_in<bool>(message);
      break;
    case Kind::kWaited:
      *rank.waited += std::max<Nanoseconds>(0, value_in<Nanoseconds>(message));
      break;
    case Kind::kEnded:
      rank.ended = true;
      break;
    case Kind::kExited:
      rank.exited = value_in<std::int32_t>(message);
      break;
    default:
      break;
  }
}

}  // namespace

Hub::Hub(const HubOptions& options)
    : options_(options),
      meeting_{.address = options.address, .token = options.token ? *options.token : make_token()},
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      agents_(
          options_, meeting_.token, shared_,
          [this](JoinedAgent& agent, Message message) { process(agent, std::move(message)); },
          [this](JoinedAgent& agent, const std::string& reason) { lose(agent, reason); }),
      orders_([this](const std::string& host) { return agents_.find(host) == nullptr ? loss_of(host) : ""; },
              [this](const std::string& host, const Message& message) {
                if (JoinedAgent* agent = agents_.find(host)) agent->link->send(message);
              }) {
  // Each rank has two sockets and two pipes here, and one more socket for each of its threads.
  raise_descriptor_limit();
  if (!wake_) throw_errno("create an event descriptor");
  meeting_.port = agents_.port();
  thread_ = std::thread([this] { run(); });
}

Hub::~Hub() {
  post([this] { finishing_ = true; });
  thread_.join();
}

void Hub::expect(const std::vector<std::string>& names) {
  const std::lock_guard lock(shared_.mutex);
  shared_.expected = {names.begin(), names.end()};
}

bool Hub::wait_for(std::size_t count, double seconds, const std::function<bool()>& stop) {
  const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
  std::unique_lock lock(shared_.mutex);
  while (shared_.hosts.size() < count) {
    shared_.changed.wait_for(lock, std::chrono::milliseconds(kTickMs));
    lock.unlock();  // `stop` may call functions that lock it
    if (now_ns() > deadline || stop()) return hosts().size() >= count;
    lock.lock();
  }
  return true;
}

std::map<std::string, HostStatus> Hub::examine(const std::string& plugin, const std::function<bool()>& stop) {
  const auto examined = std::make_shared<std::promise<std::vector<std::string>>>();
  post([this, plugin, examined] {
    for (auto& [name, agent] : agents_.all()) agent.link->send({.kind = Kind::kExamine, .body = plugin});
    std::vector<std::string> names;
    const std::lock_guard lock(shared_.mutex);
    for (const auto& [name, status] : shared_.hosts) names.push_back(name);
    examined->set_value(std::move(names));
  });
  const std::vector<std::string> names = examined->get_future().get();
  for (;;) {
    const bool stopped = stop();  // it may call functions that lock the mutex
    std::unique_lock lock(shared_.mutex);
    std::map<std::string, HostStatus> found;
    for (const std::string& name : names) found[name] = shared_.hosts.at(name);
    const bool complete = std::all_of(found.begin(), found.end(), [](const auto& host) {
      return !host.second.facts.empty() || !host.second.lost.empty();
    });
    if (complete || stopped) return found;
    shared_.changed.wait_for(lock, std::chrono::milliseconds(kTickMs));
  }
}

std::map<std::string, HostStatus> Hub::hosts() const {
  const std::lock_guard lock(shared_.mutex);
  return shared_.hosts;
}

HubCounters Hub::counters() {
  const auto counters = std::make_shared<std::promise<HubCounters>>();
  post([this, counters] { counters->set_value(agents_.counters()); });
  return counters->get_future().get();
}

std::string Hub::loss_of(const std::string& host) const {
  const std::lock_guard lock(shared_.mutex);
  const auto found = shared_.hosts.find(host);
  return found == shared_.hosts.end() ? fmt::format("host {} has not joined", host) : found->second.lost;
}

std::vector<OrderAnswer> Hub::delegate(std::vector<Order> orders, std::size_t width,
                                       const std::function<bool()>& stop) {
  const auto round = std::make_shared<Round>(Round{.orders = std::move(orders), .width = width});
  const std::future<void> done = round->done.get_future();
  post([this, round] { orders_.give(round); });
  while (done.wait_for(std::chrono::milliseconds(kTickMs)) != std::future_status::ready)
    if (stop()) post([this, round] { orders_.cancel(round); });
  return std::move(round->answers);
}

pid_t Hub::launch(const control::LaunchRequest& request) {
  throw std::runtime_error(fmt::format("rank {} has no process on this machine", request.rank));
}

std::unique_ptr<control::ChildProcess> Hub::start(const control::LaunchRequest& request) {
  auto rank = std::make_shared<RemoteRank>();
  rank->host = control::host_of(request.rank);
  const std::string body = body_of(request.environment);
  const auto copy_of = [](int fd) {
    Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) throw_errno("copy the descriptor of a channel of a rank");
    return copy;
  };
  std::map<std::uint32_t, Descriptor> ends;
  for (std::size_t i = 0; i < request.descriptors.size(); ++i)
    ends.emplace(static_cast<std::uint32_t>(i), copy_of(request.descriptors[i].first));
  ends.emplace(kOutputChannel, copy_of(request.output_fd));
  const auto shared_ends = std::make_shared<std::map<std::uint32_t, Descriptor>>(std::move(ends));
  post([this, rank, body, shared_ends] { begin_or_fail(rank, body, *shared_ends); });
  {
    std::unique_lock lock(shared_.mutex);
    shared_.changed.wait(lock, [&] { return rank->started || rank->exited || !rank->failure.empty(); });
    if (!rank->failure.empty()) throw std::runtime_error(rank->failure);
    if (!rank->started) throw std::runtime_error(rank->reason);
  }
  return std::make_unique<RemoteProcess>(shared_, rank, [this, rank](Kind kind) {
    post([this, rank, kind] {
      if (JoinedAgent* agent = agents_.find(rank->host)) agent->link->send({.kind = kind, .rank = rank->id});
    });
  });
}

void Hub::post(std::function<void()> task) {
  {
    const std::lock_guard lock(shared_.mutex);
    tasks_.push_back(std::move(task));
  }
  eventfd_write(wake_.get(), 1);
}

void Hub::run() {
  while (!finishing_) {
    try {
      serve();
    } catch (const std::exception& error) {  // for example, no memory: the controller still writes what it has
      agents_.lose_all(fmt::format("the controller had to close all connections: {}", error.what()));
    }
  }
  agents_.finish();
}

void Hub::serve() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (auto& [name, agent] : agents_.all()) {
    const bool may_read = agent.link->unsent_bytes() < kMaxUnsent;
    for (auto& [id, rank] : agent.ranks) rank.relay->add_to(polled, may_read);
  }
  agents_.add_to(polled);
  if (poll(polled.data(), polled.size(), kTickMs) < 0 && errno != EINTR) throw_errno("wait for the agents");
  // Serving in this order keeps `polled` valid for the rest when agents are added and removed.
  auto next = polled.cbegin() + 1;
  for (auto& [name, agent] : agents_.all())
    for (auto& [id, rank] : agent.ranks) rank.relay->serve(next);
  agents_.serve(next);
  add_waits();
  agents_.watch();
  run_tasks();
}

void Hub::run_tasks() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  // One at a time: if a task throws, the others stay for the next round.
  while (const std::function<void()> task = next_task()) task();
}

std::function<void()> Hub::next_task() {
  const std::lock_guard lock(shared_.mutex);
  if (tasks_.empty()) return nullptr;
  std::function<void()> task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

// Hub::start waits for what becomes of the rank.
void Hub::begin_or_fail(const std::shared_ptr<RemoteRank>& rank, const std::string& body,
                        std::map<std::uint32_t, Descriptor>& ends) {
  try {
    begin(rank, body, ends);
  } catch (const std::exception& error) {
    const std::lock_guard lock(shared_.mutex);
    rank->exited = SIGKILL;  // first, since the text may need memory that is not there
    shared_.changed.notify_all();
    rank->failure = error.what();
  }
}

void Hub::begin(const std::shared_ptr<RemoteRank>& rank, const std::string& body,
                std::map<std::uint32_t, Descriptor>& ends) {
  JoinedAgent* agent = agents_.find(rank->host);
  if (agent == nullptr) {
    std::string loss = loss_of(rank->host);
    const std::lock_guard lock(shared_.mutex);
    rank->failure = std::move(loss);
    shared_.changed.notify_all();
    return;
  }
  rank->id = next_rank_++;
  Link* const link = agent->link.get();
  auto relay = std::make_unique<Relay>(rank->id, [link](const Message& message) { link->send(message); });
  for (auto& [channel, end] : ends) {
    const bool pipe = channel == kLogChannel || channel == kOutputChannel;
    relay->add(channel, std::move(end), pipe ? Relay::Kind::kPipeToWrite : Relay::Kind::kSocket);
  }
  agent->ranks.emplace(rank->id, JoinedAgent::Rank{rank, std::move(relay)});
  link->send({.kind = Kind::kStart, .rank = rank->id, .body = body});
}

void Hub::process(JoinedAgent& agent, Message message) {
  if (orders_.process(agent.name, message)) return;
  if (message.kind == Kind::kFacts) {
    const std::lock_guard lock(shared_.mutex);
    shared_.hosts[agent.name].facts = nlohmann::json::accept(message.body) ? std::move(message.body) : "{}";
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

void Hub::lose(JoinedAgent& agent, const std::string& reason) {
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
  orders_.end_orders_of(agent.name, reason);
}

// Adds to the waiting time of ranks: the time for which their agent is silent, and the time for which this thread waits
// for a processor.
void Hub::add_waits() {
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

}  // namespace plugfest::cluster
