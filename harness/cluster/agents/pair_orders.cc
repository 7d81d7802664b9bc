// Carries out the orders of an agent: measures pairs of NICs, and helps another agent to measure one.
#include "harness/cluster/agents/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>
#include <memory>
#include <utility>

#include "harness/cluster/agents/hub.h"
#include "harness/cluster/agents/pair.h"

namespace plugfest::cluster {
namespace {

// Starts ranks of this host as children, and ranks of other hosts through the agents of these hosts.
class BothHosts final : public control::Launcher {
 public:
  BothHosts(std::string own, Hub& hub) : own_(std::move(own)), hub_(hub) {}
  pid_t launch(const control::LaunchRequest& request) override { return here_.launch(request); }
  std::unique_ptr<control::ChildProcess> start(const control::LaunchRequest& request) override {
    return control::host_of(request.rank) == own_ ? here_.start(request) : hub_.start(request);
  }

 private:
  const std::string own_;
  Hub& hub_;
  control::PlainLauncher here_;
};

PairReport carry_out_order(const PairOrder& order, Hub& hub, int stop_fd) {
  const std::string own = control::host_of(order.one), peer = control::host_of(order.other);
  PairReport report;
  const auto stopped = [stop_fd] {
    pollfd stop{stop_fd, POLLIN, 0};
    return poll(&stop, 1, 0) > 0;
  };
  if (!hub.wait_for(1, order.host_seconds, stopped)) {
    report.lost = true;
    report.outcome.broken = fmt::format("host {} has not reached host {} within {:g} s", peer, own, order.host_seconds);
    return report;
  }
  try {
    BothHosts launcher(own, hub);
    control::Limits limits;
    limits.call_seconds = order.call_seconds;
    limits.stop_fd = stop_fd;
    control::Session session(launcher, order.subject, limits);
    report.outcome = order.settings.soak_seconds > 0
                         ? soak_pair(session, order.one, order.other, order.settings, report.soak)
                         : measure_pair(session, order.one, order.other, order.settings);
  } catch (const control::Interrupted& error) {
    report.outcome.broken = error.what();
    report.interrupted = true;
  } catch (const std::exception& error) {
    report.outcome.broken = error.what();
  }
  // The pair is broken because a host was lost during the measurement, not because of the plugin.
  if (std::string loss = report.outcome.broken.empty() ? "" : hub.loss_of(peer); !loss.empty()) {
    report.outcome = {.broken = std::move(loss)};
    report.lost = true;
  }
  return report;
}

Descriptor event() {
  Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw_errno("create an event descriptor");
  return fd;
}

}  // namespace

PairOrders::PairOrders(const Token& token, std::string name, std::string version,
                       std::function<void(const Message&)> send)
    : token_(token),
      name_(std::move(name)),
      version_(std::move(version)),
      send_(std::move(send)),
      wake_(event()),
      stopping_(event()) {}

PairOrders::~PairOrders() { eventfd_write(stopping_.get(), 1); }

void PairOrders::measure(const Message& message, const std::string& address) {
  try {
    const auto order = decode_body<PairOrder>(message.body);
    auto hub = std::make_shared<Hub>(HubOptions{
        .address = address, .host_seconds = order.host_seconds, .token = token_of_order(token_, message.rank)});
    hub->expect({control::host_of(order.other)});
    send_({.kind = Kind::kListening,
           .rank = message.rank,
           .body = fmt::format("{} {}", hub->meeting().address, hub->meeting().port)});
    carry_out(message.rank, [this, order, hub = std::move(hub)]() mutable {
      const PairReport report = carry_out_order(order, *hub, stopping_.get());
      hub.reset();  // ends the other agent's part
      return Message{.kind = Kind::kMeasured, .body = body_of(report)};
    });
  } catch (const std::exception& error) {
    send_({.kind = Kind::kFailed, .rank = message.rank, .body = error.what()});
  }
}

void PairOrders::assist(const Message& message) {
  carry_out(message.rank, [this, message] {
    const std::string token = to_hex(token_of_order(token_, message.rank));
    run_agent(Meeting::parse(message.body + " " + token), name_, version_, stopping_.get());
    return std::nullopt;
  });
}

void PairOrders::carry_out(std::uint32_t order, std::function<std::optional<Message>()> work) {
  running_.push_back(std::async(std::launch::async, [this, order, work = std::move(work)] {
    std::optional<Message> answer;
    try {
      answer = work();
    } catch (const std::exception& error) {
      answer = {.kind = Kind::kFailed, .body = error.what()};
    }
    if (!answer) return;
    answer->rank = order;
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(*answer));
    eventfd_write(wake_.get(), 1);
  }));
}

void PairOrders::report() {
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  std::vector<Message> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (const Message& answer : answers) send_(answer);
  std::erase_if(running_,
                [](const auto& order) { return order.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
}

}  // namespace plugfest::cluster
