#include "harness/cluster/certification.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/cluster/agents/link.h"
#include "harness/control/call.h"
#include "harness/report/text.h"

namespace plugfest::cluster {
namespace {

// Adds the time from its construction to its destruction to a phase.
class Phase {
 public:
  Phase(Certification& certification, std::string name) : seconds_(certification.seconds[std::move(name)]) {}
  ~Phase() { seconds_ += static_cast<double>(now_ns() - start_) / 1e9; }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  double& seconds_;
  const Nanoseconds start_ = now_ns();
};

Order order_of(const Certification& certification, const PairRecord& pair, const CertifySettings& settings) {
  const Nic& one = certification.nics[pair.one];
  const Nic& other = certification.nics[pair.other];
  const PairOrder order = {.one = one.name,
                           .other = other.name,
                           .subject = {.plugin = settings.subject.plugin,
                                       .api = settings.subject.api,
                                       .environment = settings.subject.environment,
                                       .devices = {{one.name, one.device}, {other.name, other.device}}},
                           .settings = settings.pair,
                           .call_seconds = settings.call_seconds,
                           .host_seconds = settings.host_seconds};
  return {one.host, other.host, body_of(order)};
}

PairReport report_of(const OrderAnswer& answer, const std::string& host) {
  const auto lost = [](std::string why) { return PairReport{.outcome = {.broken = std::move(why)}, .lost = true}; };
  if (answer.text.empty() && answer.failure.empty())
    return {.outcome = {.broken = "interrupted"}, .lost = true, .interrupted = true};
  if (answer.text.empty()) return lost(answer.failure);
  try {
    if (auto report = decode_body<PairReport>(answer.text); has_valid_figures(report)) return report;
  } catch (const std::exception&) {
    // An unreadable report is as wrong as one with invalid figures.
  }
  return lost(fmt::format("host {}: its agent sent an invalid report", host));
}

std::vector<OrderAnswer> delegate(Hub& hub, std::vector<Order> orders, const CertifySettings& settings) {
  return hub.delegate(std::move(orders), settings.width == 0 ? SIZE_MAX : settings.width, settings.stop);
}

// Reports hosts that were lost since the last call.
void report_losses(const Hub& hub, std::set<std::string>& reported, const CertifySettings& settings) {
  for (const auto& [name, status] : hub.hosts())
    if (!status.lost.empty() && reported.insert(name).second) settings.progress(status.lost);
}

void measure_pairs(Certification& certification, Hub& hub, const CertifySettings& settings) {
  const Phase phase(certification, "pairs");
  std::set<std::string> reported;
  for (const HostRecord& host : certification.hosts)
    if (!host.problem.empty()) reported.insert(host.name);
  const auto rails = certification.rails();
  std::size_t rounds = 0;
  for (const auto& [rail, members] : rails) rounds = std::max(rounds, rounds_of(members.size()));
  certification.rounds = settings.rounds;
  if (settings.rounds != 0) rounds = std::min(rounds, settings.rounds);
  // Once the user has stopped the run, the other pairs are listed as not measured.
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t first = certification.pairs.size();
    for (const auto& [rail, members] : rails) {
      if (round >= rounds_of(members.size())) continue;
      for (const Pair& pair : pairs_of_round(members.size(), round))
        certification.pairs.push_back({members[pair.first], members[pair.second]});
    }
    std::vector<Order> orders;
    for (std::size_t i = first; i < certification.pairs.size(); ++i)
      orders.push_back(order_of(certification, certification.pairs[i], settings));
    const std::vector<OrderAnswer> answers = delegate(hub, std::move(orders), settings);
    for (std::size_t i = first; i < certification.pairs.size(); ++i) {
      PairRecord& pair = certification.pairs[i];
      PairReport report = report_of(answers[i - first], certification.nics[pair.one].host);
      pair.outcome = std::move(report.outcome);
      pair.reached = !report.lost;
      pair.interrupted = report.interrupted;
    }
    if (settings.stop()) continue;
    report_losses(hub, reported, settings);
    settings.progress(fmt::format("round {} of {}: {} pairs", round + 1, rounds, certification.pairs.size() - first));
  }
}

// Runs loads on the NICs of connected hosts of whose pairs less than half are broken.
void run_loads(Certification& certification, const Hub& hub, control::Session& session,
               const CertifySettings& settings) {
  const Phase phase(certification, "loads");
  std::map<std::size_t, std::size_t> broken, all;
  for (const PairRecord& pair : certification.pairs) {
    for (const std::size_t nic : {pair.one, pair.other}) {
      ++all[nic];
      if (!pair.outcome.broken.empty()) ++broken[nic];
    }
  }
  for (const auto& [rail, members] : certification.rails()) {
    std::vector<std::string> names;
    for (const std::size_t nic : members) {
      const bool works = 2 * broken[nic] < std::max<std::size_t>(all[nic], 1);
      if (works && hub.loss_of(certification.nics[nic].host).empty()) names.push_back(certification.nics[nic].name);
    }
    if (names.size() < 2) continue;
    for (auto* const load : {all_to_all, incast}) {
      if (settings.stop()) return;
      LoadRecord record = load(session, names, settings.load);
      record.rail = rail;
      settings.progress(fmt::format("{} on rail {}: {}", record.kind, rail,
                                    record.broken.empty() ? fmt::format("{:.1f} s", record.seconds) : record.broken));
      certification.loads.push_back(std::move(record));
    }
  }
}

// Soaks one pair of each NIC that has a pair which is not broken; a NIC may be in two.
void soak_pairs(Certification& certification, Hub& hub, CertifySettings settings) {
  const Phase phase(certification, "soak");
  settings.pair.soak_seconds = certification.soak_seconds = settings.soak_seconds;
  std::set<std::size_t> soaked;
  std::vector<Order> orders;
  for (const PairRecord& pair : certification.pairs) {
    if (!pair.outcome.broken.empty() || (soaked.contains(pair.one) && soaked.contains(pair.other))) continue;
    soaked.insert({pair.one, pair.other});
    orders.push_back(order_of(certification, pair, settings));
    SoakedPair& record = certification.soaks.emplace_back();
    record.one = certification.nics[pair.one].name;
    record.other = certification.nics[pair.other].name;
  }
  settings.progress(fmt::format("soak: {}, {:g} min", counted(orders.size(), "pair"), settings.soak_seconds / 60));
  const std::vector<OrderAnswer> answers = delegate(hub, orders, settings);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    PairReport report = report_of(answers[i], orders[i].host);
    static_cast<report::SoakRecord&>(certification.soaks[i]) = std::move(report.soak);
    certification.soaks[i].message = std::move(report.outcome.broken);
    certification.soaks[i].interrupted = report.interrupted;
  }
}

}  // namespace

void examine_hosts(Certification& certification, Hub& hub, control::Session& session,
                   const std::vector<std::string>& expected, const std::string& plugin,
                   const std::function<bool()>& stop) {
  const Phase phase(certification, "preflight");
  const auto joined = hub.examine(plugin, stop);
  std::set<std::string> names(expected.begin(), expected.end());
  std::vector<std::string> order = expected;
  for (const auto& [name, status] : joined)
    if (names.insert(name).second) order.push_back(name);
  std::vector<std::string> present;
  std::map<std::string, std::string> facts;
  for (const std::string& name : order) {
    HostRecord host{.name = name};
    if (const auto found = joined.find(name); found != joined.end()) {
      host.joined = true;
      host.problem = found->second.lost;
      host.version = found->second.version;
      host.facts = found->second.facts;
      facts[name] = host.facts;
      if (host.problem.empty()) present.push_back(name);
    } else {
      host.problem = fmt::format("host {} has not joined", name);
    }
    certification.hosts.push_back(std::move(host));
  }
  certification.differences = find_differences(facts);
  std::map<std::string, HostDevices> devices = find_devices(session, present);
  for (HostRecord& host : certification.hosts) {
    HostDevices& of_host = devices[host.name];
    if (host.problem.empty()) host.problem = report::printable(of_host.broken);
    if (certification.plugin_name.empty()) certification.plugin_name = of_host.plugin_name;
    for (Nic& nic : of_host.nics) certification.nics.push_back(std::move(nic));
  }
}

void measure(Certification& certification, Hub& hub, control::Session& session, const CertifySettings& settings) {
  // Ends the ranks of the rules; the agents start others.
  session.end_idle();
  measure_pairs(certification, hub, settings);
  if (settings.loads) {
    try {
      run_loads(certification, hub, session, settings);
    } catch (const control::Interrupted&) {
      certification.interrupted = true;
    }
  }
  if (settings.soak_seconds > 0 && !settings.stop()) soak_pairs(certification, hub, settings);
  certification.interrupted |= settings.stop();
}

}  // namespace plugfest::cluster
