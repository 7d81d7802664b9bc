#include "harness/cluster/agent/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/load_clock.h"
#include "harness/cluster/agent/carrier.h"
#include "harness/cluster/agent/facts.h"
#include "harness/cluster/agent/pair_orders.h"
#include "harness/cluster/agent/uplink.h"
#include "harness/cluster/wire/environment.h"
#include "harness/cluster/wire/relay.h"
#include "harness/control/process/launcher.h"
#include "harness/wire/protocol.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

constexpr int kTickMs = 100;
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

class Agent {
 public:
  Agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd, bool carries)
      : name_(name),
        stop_fd_(stop_fd),
        uplink_(meeting, name, version),
        pairs_(meeting.token, name, version,
               [this](Kind kind, std::uint32_t order, std::string body) { answer(kind, order, std::move(body)); }) {
    if (!carries) return;
    carrier_.emplace(uplink_.own_address(), meeting.token);
    uplink_.set_port(carrier_->port());
  }

  void run() {
    while (!finished_) {
      std::vector<pollfd> polled = {uplink_.link().polled(), {pairs_.wake_fd(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
      const bool may_read = uplink_.stream().unacknowledged_bytes() < kMostUnsent;
      for (auto& [id, rank] : ranks_) rank.relay->add_to(polled, may_read);
      if (carrier_) carrier_->add_to(polled, uplink_.link());
      const Nanoseconds due_ns = carrier_ ? carrier_->due_ns() : 0;
      const Nanoseconds rest = due_ns == 0 ? kTickMs * 1'000'000 : std::max<Nanoseconds>(0, due_ns - now_ns());
      const int timeout_ms = std::min(kTickMs, static_cast<int>(rest / 1'000'000) + 1);
      if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) throw_errno("poll");
      finished_ = polled[2].revents != 0;
      auto next = polled.cbegin() + 3;
      for (auto& [id, rank] : ranks_) rank.relay->serve(next);
      // A host that is carried itself carries no other.
      if (carrier_) carrier_->serve(next, uplink_.link(), !uplink_.is_carried());
      uplink_.serve([this](Message message) { process(std::move(message)); });
      report_facts();
      pairs_.report();
      report_ended();
      report_waits();
      if (!finished_) uplink_.watch();
      if (carrier_) {
        carrier_->flush(uplink_.link());
      } else {
        uplink_.link().flush();
      }
    }
    if (carrier_) carrier_->finish();
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
    uplink_.stream().send({.kind = kind, .rank = rank, .body = std::move(body)});
  }

  void process(Message message) {
    if (message.host != 0) {
      if (carrier_) carrier_->pass_on(std::move(message));
      return;
    }
    switch (message.kind) {
      case Kind::kFinish:
        finished_ = true;
        return;
      case Kind::kExamine:
        // Beside this thread, because a busy host takes long for it, and must answer meanwhile.
        facts_ = std::async(std::launch::async, facts, json::parse(message.body).at("plugin").get<std::string>());
        return;
      case Kind::kStart:
        return start(message);
      case Kind::kMeasure:
        return pairs_.measure(message, uplink_.own_address());
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
      rank.relay = std::make_unique<Relay>(message.rank, [this](const Message& it) { uplink_.stream().send(it); });
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

  void report_facts() {
    if (facts_.valid() && facts_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      answer(Kind::kFacts, 0, facts_.get());
    }
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
  const int stop_fd_;
  Uplink uplink_;
  std::optional<Carrier> carrier_;
  control::PlainLauncher launcher_;
  std::map<std::uint32_t, RankHere> ranks_;
  std::future<std::string> facts_;
  PairOrders pairs_;
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

}  // namespace plugfest::cluster
