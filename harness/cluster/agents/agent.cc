#include "harness/cluster/agents/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/descriptor_passing.h"
#include "fabric/system/file.h"
#include "fabric/system/load_clock.h"
#include "fabric/system/process.h"
#include "harness/cluster/agents/link.h"
#include "harness/cluster/agents/relay.h"
#include "harness/control/launcher.h"
#include "harness/wire/protocol.h"

namespace plugfest::cluster {
namespace {

constexpr int kTickMs = 100;
// Waits of ranks are reported when their sum reaches this value.
constexpr Nanoseconds kMinWait = 50'000'000;
// The controller sends a message every second. It is lost after this time without a message.
constexpr Nanoseconds kMaxSilence = 60'000'000'000;
// When this number of bytes waits for the controller, ranks must wait too.
constexpr std::size_t kMaxUnsent = 4u << 20;

// Connects within 10 s. Errors: std::runtime_error.
Descriptor connect_to(const Meeting& meeting) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(meeting.port);
  if (inet_pton(AF_INET, meeting.address.c_str(), &address.sin_addr) != 1)
    throw std::runtime_error(fmt::format("\"{}\" is not an IPv4 address", meeting.address));
  const std::string action = fmt::format("connect to the controller at {}:{}", meeting.address, meeting.port);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_errno(action);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINPROGRESS) throw_errno(action);
    pollfd ready{socket.get(), POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (poll(&ready, 1, 10'000) > 0) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) throw_errno(action, error);
  }
  return socket;
}

// The local address of the connection to the controller; other agents reach this host at it.
std::string address_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  char text[INET_ADDRSTRLEN];
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)) == nullptr)
    throw_errno("get the address of this host");
  return text;
}

class Agent {
 public:
  Agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd)
      : name_(name),
        version_(version),
        stop_fd_(stop_fd),
        link_(connect_to(meeting), Link::Side::kAgent, meeting.token, name),
        pairs_(meeting.token, name, version, [this](const Message& message) { link_.send(message); }) {
    raise_descriptor_limit();
  }

  void run() {
    while (!finished_) {
      std::vector<pollfd> polled = {link_.polled(), {pairs_.wake_fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
      const bool may_read = link_.unsent_bytes() < kMaxUnsent;
      for (auto& [id, rank] : ranks_) rank.relay->add_to(polled, may_read);
      if (poll(polled.data(), polled.size(), kTickMs) < 0 && errno != EINTR) throw_errno("wait for messages");
      finished_ = polled[2].revents != 0;
      auto next = polled.cbegin() + 3;
      for (auto& [id, rank] : ranks_) rank.relay->serve(next);
      serve_link();
      report_facts();
      pairs_.report();
      report_ended();
      report_waits();
    }
  }

 private:
  struct RankHere {
    std::unique_ptr<Relay> relay;
    std::unique_ptr<control::ChildProcess> process;
    bool reported = false;
    // The clock of the rank, and of the agent, which forwards its messages.
    std::unique_ptr<LoadClock> clock = std::make_unique<LoadClock>(LoadClock::Own::kProcess);
    Nanoseconds started_ns = 0;
    Nanoseconds waited_ns = 0;  // already reported
  };

  void answer(Kind kind, std::uint32_t rank, std::string body = {}) {
    link_.send({.kind = kind, .rank = rank, .body = std::move(body)});
  }

  void serve_link() {
    const bool was_established = link_.established();
    std::vector<Message> messages = link_.receive();
    if (link_.established() && !was_established) answer(Kind::kHello, 0, version_);
    for (Message& message : messages) process(std::move(message));
    if (!messages.empty()) heard_ns_ = now_ns();
    if (finished_) return;
    if (!link_.failure().empty()) throw std::runtime_error("the controller: " + link_.failure());
    if (now_ns() - heard_ns_ > kMaxSilence) throw std::runtime_error("the controller has been silent for 60 s");
  }

  void process(Message message) {
    switch (message.kind) {
      case Kind::kPing:
        return answer(Kind::kPong, 0);
      case Kind::kFinish:
        finished_ = true;
        return;
      case Kind::kExamine:
        // Runs in another thread, because it takes long on a busy host, which must answer in the meantime.
        facts_ = std::async(std::launch::async, facts, message.body);
        return;
      case Kind::kStart:
        return start(message);
      case Kind::kMeasure:
        return pairs_.measure(message, address_of(link_.fd()));
      case Kind::kAssist:
        return pairs_.assist(message);
      default:
        break;
    }
    const auto found = ranks_.find(message.rank);
    if (found == ranks_.end()) return;  // it has ended
    RankHere& rank = found->second;
    switch (message.kind) {
      case Kind::kFreeze:
        return answer(Kind::kFrozen, message.rank, body_of(rank.process->freeze()));
      case Kind::kThaw:
        return rank.process->thaw();
      case Kind::kEnd: {
        const int status = rank.process->end().value_or(0);
        ranks_.erase(found);
        return answer(Kind::kExited, message.rank, body_of(std::int32_t{status}));
      }
      default:
        return deliver(rank, std::move(message));
    }
  }

  // If a channel cannot be made for a thread of the rank, only this rank ends.
  void deliver(RankHere& rank, Message message) {
    const std::uint32_t id = message.rank;
    try {
      rank.relay->deliver(std::move(message));
    } catch (const std::exception& error) {
      rank.process->end();
      ranks_.erase(id);
      answer(Kind::kFailed, id, fmt::format("host {}: {}", name_, error.what()));
    }
  }

  void start(const Message& message) {
    try {
      auto [control, control_of_rank] = make_socket_pair();
      auto [main, main_of_rank] = make_socket_pair();
      Pipe log = make_pipe(), output = make_pipe();
      control::LaunchRequest request;
      request.rank = name_;
      request.argv = {control::rank_program()};
      request.output_fd = output.write_end.get();
      request.descriptors = {{control_of_rank.get(), wire::kControlFd},
                             {main_of_rank.get(), wire::kMainFd},
                             {log.write_end.get(), wire::kLogFd}};
      request.environment = decode_body<control::Environment>(message.body);
      RankHere rank;
      rank.relay = std::make_unique<Relay>(message.rank, [this](const Message& forwarded) { link_.send(forwarded); });
      rank.relay->add(kControlChannel, std::move(control), Relay::Kind::kSocket);
      rank.relay->add(kMainChannel, std::move(main), Relay::Kind::kSocket);
      rank.relay->add(kLogChannel, std::move(log.read_end), Relay::Kind::kPipeToRead);
      rank.relay->add(kOutputChannel, std::move(output.read_end), Relay::Kind::kPipeToRead);
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

  void report_facts() {
    if (facts_.valid() && facts_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      answer(Kind::kFacts, 0, facts_.get());
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
      if (waited - rank.waited_ns < kMinWait) continue;
      answer(Kind::kWaited, id, body_of(waited - rank.waited_ns));
      rank.waited_ns = waited;
    }
  }

  const std::string name_;
  const std::string version_;
  const int stop_fd_;
  Link link_;
  Nanoseconds heard_ns_ = now_ns();
  control::PlainLauncher launcher_;
  std::map<std::uint32_t, RankHere> ranks_;
  std::future<std::string> facts_;
  PairOrders pairs_;
  bool finished_ = false;
};

}  // namespace

void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd) {
  Agent(meeting, name, version, stop_fd).run();
}

}  // namespace plugfest::cluster
