#include "harness/certify/agent/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
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
#include "harness/certify/wire/entrance.h"
#include "harness/certify/wire/environment.h"
#include "harness/certify/wire/link.h"
#include "harness/certify/wire/relay.h"
#include "harness/certify/wire/stream.h"
#include "harness/control/process/launcher.h"
#include "harness/rank/protocol/protocol.h"

namespace plugfest::certify {
namespace {

using nlohmann::json;

constexpr int kTickMs = 100;
/// The controller sends something every second. It is gone if it has sent nothing for so long.
constexpr Nanoseconds kLongestSilence = 60'000'000'000;
/// For so long an agent that was told to connect to another one waits for it.
constexpr Nanoseconds kLongestWelcome = 10'000'000'000;
/// After this part of host_seconds without a word, an agent looks for another way to the controller.
constexpr int kSilencePart = 2;
/// Messages of other agents wait for so long, so that many of them go in one batch. A report of a pair may wait longer
/// for those of other pairs, since a round ends with the last one.
constexpr Nanoseconds kHold = 50'000'000;
constexpr Nanoseconds kHoldReport = 500'000'000;
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

/// How long a message that an agent carries for another one may wait for others.
Nanoseconds hold_of(Kind kind) {
  switch (kind) {
    case Kind::kHello:
    case Kind::kPong:
    case Kind::kFacts:
    case Kind::kListening:
    case Kind::kWaited:
      return kHold;
    case Kind::kMeasured:
      return kHoldReport;
    default:
      return 0;
  }
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
  Agent(const Meeting& meeting, std::string name, std::string version, int stop_fd, bool carries)
      : name_(std::move(name)), version_(std::move(version)), meeting_(meeting), stop_fd_(stop_fd) {
    dial(meeting_, 0);
    if (carries) entrance_.emplace(own_address(link_->fd()), meeting_.token);
  }

  /// Interrupts what its threads do, and waits for them.
  ~Agent() { raise(stopping_); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void run() {
    while (!finished_) {
      std::vector<pollfd> polled = {{link_->fd(), static_cast<short>(POLLIN | (link_->has_unsent() ? POLLOUT : 0)), 0},
                                    {wake_.get(), POLLIN, 0},
                                    {stop_fd_, POLLIN, 0}};
      const bool may_read = stream_.unacknowledged_bytes() < kMostUnsent;
      for (auto& [id, rank] : ranks_) rank.relay->add_to(polled, may_read);
      add_carried(polled);
      const Nanoseconds rest = due_ns_ == 0 ? kTickMs * 1'000'000 : std::max<Nanoseconds>(0, due_ns_ - now_ns());
      const int timeout_ms = std::min(kTickMs, static_cast<int>(rest / 1'000'000) + 1);
      if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) throw_errno("poll");
      finished_ = polled[2].revents != 0;
      auto next = polled.cbegin() + 3;
      for (auto& [id, rank] : ranks_) rank.relay->serve(next);
      serve_carried(next);
      serve_link();
      report_facts();
      report_pairs();
      report_ended();
      report_waits();
      if (!finished_) watch_link();
      flush();
    }
    finish_carried();
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
    stream_.send({.kind = kind, .rank = rank, .body = std::move(body)});
  }

  /// Connects to the controller, or to the agent that is to carry the messages of this one. `number`: as in Hello.
  void dial(const Meeting& meeting, std::uint32_t number) {
    stream_.lose_way();
    link_ = std::make_unique<Link>(connect_to(meeting), Link::Side::kAgent, meeting.token);
    number_ = number;
    greeted_ = false;
    heard_ns_ = now_ns();
    due_ns_ = 0;
  }

  /// Connects to the controller, whatever is in the way of another agent.
  void dial_controller() {
    stays_ = true;
    dial(meeting_, 0);
  }

  void greet() {
    Hello hello{.name = name_, .version = version_, .instance = instance_};
    if (entrance_) {
      hello.address = own_address(link_->fd());
      hello.port = entrance_->port();
    }
    hello.number = number_;
    hello.stays = stays_;
    hello.received = stream_.received();
    link_->send({.kind = Kind::kHello, .body = hello.text()});
  }

  void serve_link() {
    // The link may be another one after each message.
    const Link* const served = link_.get();
    std::vector<Message> messages = link_->receive();
    if (!std::exchange(greeted_, link_->established()) && greeted_) greet();
    for (Message& message : messages) {
      heard_ns_ = now_ns();
      if (message.host != 0) {
        pass_on(std::move(message));
      } else {
        process(std::move(message));
      }
      if (link_.get() != served) return;
    }
  }

  void watch_link() {
    const bool is_carried = number_ != 0;
    if (!link_->failure().empty()) {
      if (is_carried) return dial_controller();
      throw std::runtime_error("the controller: " + link_->failure());
    }
    const Nanoseconds silence = now_ns() - heard_ns_;
    if (is_carried && silence > (stream_.has_way() ? longest_silence_ : kLongestWelcome)) return dial_controller();
    if (silence > kLongestSilence) throw std::runtime_error("the controller has been silent for 60 s");
  }

  void welcome(const json& words) {
    longest_silence_ = static_cast<Nanoseconds>(words.at("host_seconds").get<double>() * 1e9) / kSilencePart;
    const auto received = words.at("received").get<std::uint64_t>();
    stream_.take([this](const Message& it) { link_->send(it); }, received);
  }

  void redirect(const json& words) {
    Meeting carrier = meeting_;
    carrier.address = words.at("address").get<std::string>();
    carrier.port = words.at("port").get<std::uint16_t>();
    try {
      dial(carrier, words.at("number").get<std::uint32_t>());
    } catch (const std::exception&) {
      dial_controller();
    }
  }

  void add_carried(std::vector<pollfd>& polled) const {
    if (!entrance_) return;
    const bool may_read = link_->unsent_bytes() < kMostUnsent;
    for (const auto& [number, link] : carried_) {
      polled.push_back(
          {link->fd(), static_cast<short>((may_read ? POLLIN : 0) | (link->has_unsent() ? POLLOUT : 0)), 0});
    }
    entrance_->add_to(polled);
  }

  /// Passes on what other agents have sent.
  void serve_carried(std::vector<pollfd>::const_iterator& next) {
    if (!entrance_) return;
    for (auto it = carried_.begin(); it != carried_.end();) {
      const auto& [number, link] = *it;
      if ((*next++).revents != 0) {
        for (Message& message : link->receive()) carry(number, std::move(message));
      }
      if (link->failure().empty()) {
        ++it;
        continue;
      }
      carry(number, {.kind = Kind::kGone, .body = link->failure()});
      it = carried_.erase(it);
    }
    entrance_->serve(next, [this](std::unique_ptr<Link> link, const Hello& hello, std::vector<Message> rest) {
      // A host that is carried itself carries no other.
      if (hello.number == 0 || number_ != 0 || !carried_.emplace(hello.number, std::move(link)).second) return false;
      carry(hello.number, {.kind = Kind::kHello, .body = hello.text()});
      for (Message& message : rest) carry(hello.number, std::move(message));
      return true;
    });
  }

  void carry(std::uint32_t number, Message message) {
    message.host = number;
    link_->gather(message);
    if (message.kind == Kind::kMeasured || message.kind == Kind::kFailed) carried_orders_.erase(message.rank);
    if (message.kind == Kind::kGone) std::erase_if(carried_orders_, [&](auto& it) { return it.second == number; });
    const bool is_last = message.kind == Kind::kMeasured && carried_orders_.empty();
    const Nanoseconds due = now_ns() + (is_last ? 0 : hold_of(message.kind));
    due_ns_ = due_ns_ == 0 ? due : std::min(due_ns_, due);
  }

  /// Passes on what the controller has sent to another agent.
  void pass_on(Message message) {
    const auto found = carried_.find(std::exchange(message.host, 0));
    if (found == carried_.end()) return;
    if (message.kind == Kind::kMeasure) carried_orders_.emplace(message.rank, found->first);
    found->second->gather(message);
  }

  void flush() {
    for (const auto& [number, link] : carried_) link->flush();
    if (now_ns() < due_ns_ && !link_->has_unsent()) return;
    due_ns_ = 0;
    link_->flush();
  }

  /// Ends those that it carries: a second for what is not sent yet.
  void finish_carried() {
    const Nanoseconds deadline = now_ns() + 1'000'000'000;
    for (const auto& [number, link] : carried_) {
      while (link->has_unsent() && link->failure().empty() && now_ns() < deadline) {
        pollfd fd{link->fd(), POLLOUT, 0};
        poll(&fd, 1, kTickMs);
        link->flush();
      }
    }
  }

  void process(Message message) {
    switch (message.kind) {
      case Kind::kWelcome:
        return welcome(json::parse(message.body));
      case Kind::kRedirect:
        return redirect(json::parse(message.body));
      case Kind::kPing:
        stream_.acknowledge(message.body);
        return acknowledge();
      case Kind::kFinish:
        finished_ = true;
        return;
      default:
        break;
    }
    if (stream_.count(message)) acknowledge();
    const auto found = ranks_.find(message.rank);
    switch (message.kind) {
      case Kind::kExamine:
        // Beside this thread, because a busy host takes long for it, and must answer meanwhile.
        facts_ = std::async(std::launch::async, facts, json::parse(message.body).at("plugin").get<std::string>());
        return;
      case Kind::kStart:
        return start(message);
      case Kind::kMeasure:
        return measure(message);
      case Kind::kAssist:
        return assist(message);
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

  void acknowledge() const { stream_.send_beside({.kind = Kind::kPong, .body = std::to_string(stream_.received())}); }

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
      rank.relay = std::make_unique<Relay>(message.rank, [this](const Message& it) { stream_.send(it); });
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
      auto pair = std::make_unique<Delegation>(own_address(link_->fd()), token_of_order(meeting_.token, message.rank),
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
        const std::string token = to_hex(token_of_order(meeting_.token, message.rank));
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
  const Meeting meeting_;
  const std::string instance_ = to_hex(make_token());
  const int stop_fd_;
  const Descriptor wake_ = event();
  const Descriptor stopping_ = event();
  control::PlainLauncher launcher_;
  /// To the controller, or to the agent that carries the messages of this one.
  std::unique_ptr<Link> link_;
  Stream stream_;
  std::uint32_t number_ = 0;
  bool greeted_ = false;
  bool stays_ = false;
  Nanoseconds heard_ns_ = 0;
  Nanoseconds longest_silence_ = 0;
  std::optional<Entrance> entrance_;
  /// With the agents whose messages this one carries, by Message::host.
  std::map<std::uint32_t, std::unique_ptr<Link>> carried_;
  /// When to send on what has come from them; 0: nothing has.
  Nanoseconds due_ns_ = 0;
  /// Orders whose report has not come from them: the order's number, and the agent's.
  std::map<std::uint32_t, std::uint32_t> carried_orders_;
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

void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd, bool carries) {
  Agent(meeting, name, version, stop_fd, carries).run();
}

}  // namespace plugfest::certify
