#include "harness/cluster/measure/delegation.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/cluster/wire/environment.h"
#include "harness/control/call.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;

/// Starts ranks of this host as children, and others through the agents of their hosts.
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

}  // namespace

std::string PairOrder::text() const {
  json devices = json::object();
  for (const std::string& nic : {one, other}) {
    const auto found = subject.devices.find(nic);
    if (found == subject.devices.end()) continue;
    devices[nic] = {{"index", found->second.index}, {"name", found->second.name}, {"guid", found->second.guid}};
  }
  return json{{"one", one},
              {"other", other},
              {"plugin", subject.plugin},
              {"api", subject.api},
              {"environment", to_json(subject.environment)},
              {"devices", std::move(devices)},
              {"seconds", settings.seconds},
              {"message_bytes", settings.message_bytes},
              {"seed", settings.seed},
              {"call_seconds", call_seconds},
              {"host_seconds", host_seconds}}
      .dump();
}

PairOrder PairOrder::parse(const std::string& text) {
  const json object = json::parse(text);
  PairOrder order{.one = object.at("one").get<std::string>(), .other = object.at("other").get<std::string>()};
  order.subject = {.plugin = object.at("plugin").get<std::string>(), .api = object.at("api").get<int>()};
  order.subject.environment = environment_from(object.at("environment"));
  for (const auto& [nic, device] : object.at("devices").items()) {
    order.subject.devices[nic] = {device.at("index").get<int>(), device.at("name").get<std::string>(),
                                  device.at("guid").get<std::uint64_t>()};
  }
  order.settings = {.seconds = object.at("seconds").get<double>(),
                    .message_bytes = object.at("message_bytes").get<std::uint64_t>(),
                    .seed = object.at("seed").get<std::uint64_t>()};
  order.call_seconds = object.at("call_seconds").get<double>();
  order.host_seconds = object.at("host_seconds").get<double>();
  return order;
}

std::string PairReport::text() const {
  json object = to_json(outcome);
  object["lost"] = lost;
  // The plugin's words, which may be no UTF-8.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

PairReport PairReport::parse(const std::string& text) {
  const json object = json::parse(text);
  return {.outcome = outcome_from(object), .lost = object.at("lost").get<bool>()};
}

Delegation::Delegation(const std::string& address, const Token& token, PairOrder order, int stop_fd, int wake_fd)
    : order_(std::move(order)),
      stop_fd_(stop_fd),
      hub_({.address = address, .host_seconds = order_.host_seconds, .token = token}) {
  hub_.expect({control::host_of(order_.other)});
  report_ = std::async(std::launch::async, [this, wake_fd] {
    PairReport report = run();
    done_ = true;
    eventfd_write(wake_fd, 1);
    return report;
  });
}

PairReport Delegation::run() {
  const std::string own = control::host_of(order_.one), peer = control::host_of(order_.other);
  PairReport report;
  const auto stopped = [this] {
    pollfd stop{stop_fd_, POLLIN, 0};
    return poll(&stop, 1, 0) > 0;
  };
  if (!hub_.wait_for(1, order_.host_seconds, stopped)) {
    report.lost = true;
    report.outcome.broken =
        fmt::format("host {} has not reached host {} within {:g} s", peer, own, order_.host_seconds);
    return report;
  }
  try {
    BothHosts launcher(own, hub_);
    control::Limits limits;
    limits.call_seconds = order_.call_seconds;
    limits.stop_fd = stop_fd_;
    control::Session session(launcher, order_.subject, limits);
    report.outcome = measure_pair(session, order_.one, order_.other, order_.settings);
  } catch (const std::exception& error) {
    report.outcome.broken = error.what();
  }
  // A host that was lost in the middle broke the pair, and not the plugin.
  if (std::string loss = report.outcome.broken.empty() ? "" : hub_.loss_of(peer); !loss.empty()) {
    report.outcome = {.broken = std::move(loss)};
    report.lost = true;
  }
  return report;
}

}  // namespace plugfest::cluster
