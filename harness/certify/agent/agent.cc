#include "harness/certify/agent/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor.h"
#include "fabric/system/load_clock.h"
#include "fabric/system/throw_errno.h"
#include "harness/certify/agent/facts.h"
#include "harness/certify/measure/delegation.h"
#include "harness/certify/wire/environment.h"
#include "harness/certify/wire/link.h"
#include "harness/certify/wire/relay.h"
#include "harness/control/process/launcher.h"
#include "harness/rank/protocol/protocol.h"

namespace plugfest::certify {
namespace {

using nlohmann::json;

constexpr int kTickMs = 100;
/// The controller sends something every second. It is gone if it has sent nothing for so long.
constexpr Nanoseconds kLongestSilence = 60'000'000'000;
/// Waits of ranks are reported when they add up to so much.
constexpr Nanoseconds kLeastWait = 50'000'000;
/// Of messages that wait for the controller, before ranks must wait, too.
constexpr std::size_t kMostUnsent = 4u << 20;

struct Ends {
  Descriptor ours, theirs;
};

Ends socket_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) throw_errno("a channel of a rank");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

Ends pipe_ends() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw_errno("a channel of a rank");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

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

Descriptor event() {
  Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw_errno("eventfd");
  return fd;
}

void raise(const Descriptor& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof one);
}

/// The address over which this host reaches the controller, and other agents this host.
std::string own_address(int connection) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  char text[INET_ADDRSTRLEN];
  if (getsockname(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) == nullptr) {
    throw_errno("the address of this host");
  }
  return text;
}

/// Only the two agents of an order, and the controller, can know it.
Token token_of_order(const Token& token, std::uint32_t order) {
  return mac(token, {bytes_of("order"), std::as_bytes(std::span(&order, 1))});
}

template <class Value>
bool is_ready(const std::future<Value>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

class Agent {
 public:
  Agent(const Meeting& meeting, std::string name, std::string version, int stop_fd)
      : name_(std::move(name)),
        version_(std::move(version)),
        token_(meeting.token),
        stop_fd_(stop_fd),
        link_(connect_to(meeting), Link::Side::kAgent, meeting.token) {}

  /// Interrupts what its threads do, and waits for them.
  ~Agent() { raise(stopping_); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void run() {
    Nanoseconds heard_ns = now_ns();
    while (!finished_) {
      std::vector<pollfd> polled = {{link_.fd(), static_cast<short>(POLLIN | (link_.has_unsent() ? POLLOUT : 0)), 0},
                                    {wake_.get(), POLLIN, 0},
                                    {stop_fd_, POLLIN, 0}};
      const bool may_read = link_.unsent_bytes() < kMostUnsent;
      for (auto& [id, rank] : ranks_) rank.relay->add_to(polled, may_read);
      if (poll(polled.data(), polled.size(), kTickMs) < 0 && errno != EINTR) throw_errno("poll");
      finished_ = polled[2].revents != 0;
      auto next = polled.cbegin() + 3;
      for (auto& [id, rank] : ranks_) rank.relay->serve(next);
      link_.flush();
      const bool was_established = link_.established();
      for (Message& message : link_.receive()) {
        heard_ns = now_ns();
        process(std::move(message));
      }
      if (!was_established && link_.established()) {
        link_.send({.kind = Kind::kHello, .body = json{{"name", name_}, {"version", version_}}.dump()});
      }
      report_facts();
      report_pairs();
      report_ended();
      report_waits();
      if (!link_.failure().empty() && !finished_) throw std::runtime_error("the controller: " + link_.failure());
      if (now_ns() - heard_ns > kLongestSilence) throw std::runtime_error("the controller has been silent for 60 s");
    }
  }

 private:
  struct RankHere {
    std::unique_ptr<Relay> relay;
    std::unique_ptr<control::ChildProcess> process;
    bool reported = false;
    /// Of the rank and of the agent, which carries its messages.
    std::unique_ptr<LoadClock> clock = std::make_unique<LoadClock>(LoadClock::Own::kProcess);
    Nanoseconds started_ns = 0;
    Nanoseconds waited_ns = 0;  ///< reported
  };

  void answer(Kind kind, std::uint32_t rank, std::string body = {}) {
    link_.send({.kind = kind, .rank = rank, .body = std::move(body)});
  }

  void process(Message message) {
    const auto found = ranks_.find(message.rank);
    switch (message.kind) {
      case Kind::kExamine:
        // Beside this thread, because a busy host takes long for it, and must answer meanwhile.
        facts_ = std::async(std::launch::async, facts, json::parse(message.body).at("plugin").get<std::string>());
        return;
      case Kind::kStart:
        return start(message);
      case Kind::kPing:
        return answer(Kind::kPong, 0);
      case Kind::kMeasure:
        return measure(message);
      case Kind::kAssist:
        return assist(message);
      case Kind::kFinish:
        finished_ = true;
        return;
      default:
        break;
    }
    if (found == ranks_.end()) return;  // it has ended
    RankHere& rank = found->second;
    switch (message.kind) {
      case Kind::kFreeze:
        return answer(Kind::kFrozen, message.rank, std::string(1, rank.process->freeze() ? 1 : 0));
      case Kind::kThaw:
        return rank.process->thaw();
      case Kind::kEnd: {
        const int status = rank.process->end().value_or(0);
        ranks_.erase(found);
        return answer(Kind::kExited, message.rank, std::to_string(status));
      }
      default:
        return rank.relay->deliver(std::move(message));
    }
  }

  void start(const Message& message) {
    try {
      Ends control = socket_pair(), main = socket_pair(), log = pipe_ends(), output = pipe_ends();
      control::LaunchRequest request;
      request.rank = name_;
      request.argv = {control::rank_program()};
      request.output_fd = output.theirs.get();
      request.descriptors = {{control.theirs.get(), rank::kControlFd},
                             {main.theirs.get(), rank::kMainFd},
                             {log.theirs.get(), rank::kLogFd}};
      const json arguments = json::parse(message.body);
      request.environment = environment_from(arguments.at("environment"));
      RankHere rank;
      rank.relay = std::make_unique<Relay>(message.rank, [this](const Message& it) { link_.send(it); });
      rank.relay->add(kControlChannel, std::move(control.ours), Relay::Kind::kSocket);
      rank.relay->add(kMainChannel, std::move(main.ours), Relay::Kind::kSocket);
      rank.relay->add(kLogChannel, std::move(log.ours), Relay::Kind::kPipeToRead);
      rank.relay->add(kOutputChannel, std::move(output.ours), Relay::Kind::kPipeToRead);
      rank.process = launcher_.start(request);
      rank.clock->watch(rank.process->pid());
      rank.clock->now();
      rank.started_ns = now_ns();
      ranks_.insert_or_assign(message.rank, std::move(rank));
      answer(Kind::kStarted, message.rank);
    } catch (const std::exception& error) {
      answer(Kind::kFailed, message.rank, error.what());
    }
  }

  void measure(const Message& message) {
    try {
      auto pair = std::make_unique<Delegation>(own_address(link_.fd()), token_of_order(token_, message.rank),
                                               PairOrder::parse(message.body), stopping_.get(), wake_.get());
      answer(Kind::kListening, message.rank, fmt::format("{} {}", pair->meeting().address, pair->meeting().port));
      pairs_.insert_or_assign(message.rank, std::move(pair));
    } catch (const std::exception& error) {
      answer(Kind::kFailed, message.rank, error.what());
    }
  }

  /// Joins the agent that measures a pair, beside the controller.
  void assist(const Message& message) {
    assisted_[message.rank] = std::async(std::launch::async, [this, message] {
      std::string failure;
      try {
        const std::string token = to_hex(token_of_order(token_, message.rank));
        run_agent(Meeting::parse(message.body + " " + token), name_, version_, stopping_.get());
      } catch (const std::exception& error) {
        failure = error.what();
      }
      raise(wake_);
      return failure;
    });
  }

  void report_pairs() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof count);
    std::erase_if(pairs_, [this](auto& it) {
      if (!it.second->done()) return false;
      answer(Kind::kMeasured, it.first, it.second->report().text());
      return true;
    });
    for (auto it = assisted_.begin(); it != assisted_.end();) {
      const auto current = it++;
      if (!is_ready(current->second)) continue;
      if (const std::string failure = current->second.get(); !failure.empty()) {
        answer(Kind::kFailed, current->first, failure);
      }
      assisted_.erase(current);
    }
  }

  void report_facts() {
    if (is_ready(facts_)) answer(Kind::kFacts, 0, facts_.get());
  }

  void report_ended() {
    for (auto& [id, rank] : ranks_) {
      if (rank.reported || !rank.process->has_ended()) continue;
      rank.reported = true;
      answer(Kind::kEnded, id);
    }
  }

  void report_waits() {
    for (auto& [id, rank] : ranks_) {
      const Nanoseconds waited = now_ns() - rank.started_ns - rank.clock->now();
      if (waited - rank.waited_ns < kLeastWait) continue;
      answer(Kind::kWaited, id, std::to_string(waited - rank.waited_ns));
      rank.waited_ns = waited;
    }
  }

  const std::string name_;
  const std::string version_;
  const Token token_;
  const int stop_fd_;
  const Descriptor wake_ = event();
  const Descriptor stopping_ = event();
  control::PlainLauncher launcher_;
  Link link_;
  std::map<std::uint32_t, RankHere> ranks_;
  std::future<std::string> facts_;
  /// By the numbers of orders: pairs that this agent measures, and those in which it assists.
  std::map<std::uint32_t, std::unique_ptr<Delegation>> pairs_;
  std::map<std::uint32_t, std::future<std::string>> assisted_;
  bool finished_ = false;
};

}  // namespace

std::string Meeting::text() const { return fmt::format("{} {} {}", address, port, to_hex(token)); }

Meeting Meeting::parse(const std::string& text) {
  Meeting meeting;
  std::istringstream words(text);
  std::string token, rest;
  unsigned port = 0;
  words >> meeting.address >> port >> token;
  const std::optional<Token> parsed = token_from_hex(token);
  if (!parsed || port == 0 || port > 65535 || words >> rest) {
    throw std::runtime_error("expected an address, a port and a token in one line");
  }
  meeting.port = static_cast<std::uint16_t>(port);
  meeting.token = *parsed;
  return meeting;
}

void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd) {
  Agent(meeting, name, version, stop_fd).run();
}

}  // namespace plugfest::certify
