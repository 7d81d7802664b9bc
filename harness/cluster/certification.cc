#include "harness/cluster/certification.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/cluster/agents/link.h"
#include "harness/control/call.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

constexpr const char* kInterrupted = "interrupted";

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

std::map<std::size_t, std::vector<std::size_t>> rails_of(const std::vector<Nic>& nics) {
  std::map<std::size_t, std::vector<std::size_t>> rails;
  for (std::size_t i = 0; i < nics.size(); ++i) rails[nics[i].rail].push_back(i);
  return rails;
}

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
  if (answer.text.empty()) return lost(answer.failure.empty() ? kInterrupted : answer.failure);
  try {
    return decode_body<PairReport>(answer.text);
  } catch (const std::exception&) {
    return lost(fmt::format("host {}: its agent sent an invalid report", host));
  }
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
  const auto rails = rails_of(certification.nics);
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
  for (const auto& [rail, members] : rails_of(certification.nics)) {
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
  }
}

std::string rate_text(double bits_per_second) { return fmt::format("{:.3g} Gbit/s", bits_per_second / 1e9); }

// The processors of hosts, which do other work too, change latencies more than bandwidths.
constexpr double kSlowLatencyPart = 1.0 / 3;

// Adds outliers of one figure of one rail. `value`: larger is better; 0: not measured. `text`: formats a value.
void add_slow(Certification& certification, std::size_t rail, const std::string& what, double part,
              const std::function<double(const PairOutcome&)>& value, const std::function<std::string(double)>& text) {
  std::vector<PairFigure> figures;
  std::vector<PairRecord*> records;
  for (PairRecord& pair : certification.pairs) {
    if (certification.nics[pair.one].rail != rail || !pair.outcome.broken.empty() || value(pair.outcome) <= 0) continue;
    figures.push_back({pair.one, pair.other, value(pair.outcome)});
    records.push_back(&pair);
  }
  const Outliers found = find_slow(figures, part);
  const auto mark = [](PairRecord& pair, const std::string& why) {
    pair.slow += (pair.slow.empty() ? "" : "; ") + why;
  };
  for (const Outliers::Member& member : found.members) {
    const std::string why = fmt::format("{}: median of its pairs {}, of the rest of rail {} {}", what,
                                        text(member.value), rail, text(found.median));
    const std::string& name = certification.nics[member.number].name;
    certification.suspects.push_back({"slow", name, why});
    for (PairRecord* const pair : records)
      if (pair->one == member.number || pair->other == member.number) mark(*pair, name + ": " + why);
  }
  for (const std::size_t pair : found.pairs) {
    const PairFigure& figure = figures[pair];
    const std::string why =
        fmt::format("{}: {}, median of rail {} {}", what, text(figure.value), rail, text(found.median));
    certification.suspects.push_back(
        {"slow", fmt::format("{} {}", certification.nics[figure.one].name, certification.nics[figure.other].name),
         why});
    mark(*records[pair], why);
  }
}

// Adds a NIC as broken if most of its pairs are broken; adds other broken pairs individually.
void add_broken(Certification& certification, const std::set<std::string>& lost_hosts) {
  // Other pairs were not measured because the user ended the run, or because a host is lost, which is listed itself.
  const auto counts = [&](const PairRecord& pair) {
    return pair.outcome.broken != kInterrupted && !lost_hosts.contains(certification.nics[pair.one].host) &&
           !lost_hosts.contains(certification.nics[pair.other].host);
  };
  std::map<std::size_t, std::vector<const PairRecord*>> broken;
  std::map<std::size_t, std::size_t> all;
  for (const PairRecord& pair : certification.pairs) {
    if (!counts(pair)) continue;
    ++all[pair.one];
    ++all[pair.other];
    if (pair.outcome.broken.empty()) continue;
    broken[pair.one].push_back(&pair);
    broken[pair.other].push_back(&pair);
  }
  std::set<std::size_t> blamed;
  for (const auto& [nic, pairs] : broken) {
    if (all[nic] < 2 || 2 * pairs.size() <= all[nic]) continue;
    blamed.insert(nic);
    certification.suspects.push_back({"broken", certification.nics[nic].name,
                                      fmt::format("{} of its {} pairs are broken; the first: {}", pairs.size(),
                                                  all[nic], pairs.front()->outcome.broken)});
  }
  for (const PairRecord& pair : certification.pairs) {
    if (!counts(pair) || pair.outcome.broken.empty()) continue;
    if (blamed.contains(pair.one) || blamed.contains(pair.other)) continue;
    certification.suspects.push_back(
        {"broken", fmt::format("{} {}", certification.nics[pair.one].name, certification.nics[pair.other].name),
         pair.outcome.broken});
  }
}

}  // namespace

int Certification::exit_code() const {
  const auto is_lost = [](const Suspect& suspect) { return suspect.kind == "host"; };
  const auto unreached = [](const PairRecord& pair) { return !pair.reached; };
  if (interrupted || nics.size() < 2 || std::any_of(suspects.begin(), suspects.end(), is_lost) ||
      std::any_of(pairs.begin(), pairs.end(), unreached))
    return 2;
  return suspects.empty() && differences.empty() ? 0 : 1;
}

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

void find_suspects(Certification& certification, Hub& hub) {
  std::set<std::string> lost_hosts;
  for (HostRecord& host : certification.hosts) {
    if (host.joined && host.problem.empty()) host.problem = hub.loss_of(host.name);
    if (host.problem.empty()) continue;
    lost_hosts.insert(host.name);
    certification.suspects.push_back({"host", host.name, host.problem});
  }
  add_broken(certification, lost_hosts);
  for (const auto& [rail, members] : rails_of(certification.nics)) {
    // A link may be slow in one direction.
    add_slow(
        certification, rail, "bandwidth", kSlowPart,
        [](const PairOutcome& outcome) {
          return std::min(outcome.forth_bits_per_second, outcome.back_bits_per_second);
        },
        rate_text);
    add_slow(
        certification, rail, "latency", kSlowLatencyPart,
        [](const PairOutcome& outcome) {
          return outcome.latency_p50_seconds > 0 ? 1 / outcome.latency_p50_seconds : 0;
        },
        [](double value) { return fmt::format("{:.3g} µs", value > 0 ? 1e6 / value : 0); });
  }
  for (const LoadRecord& load : certification.loads) {
    if (load.broken.empty()) continue;
    certification.suspects.push_back(
        {"broken", fmt::format("{} on rail {}", load.kind, load.rail), report::printable(load.broken)});
  }
  for (const SoakedPair& soak : certification.soaks) {
    const std::string subject = fmt::format("{} {}", soak.one, soak.other);
    if (!soak.message.empty() && soak.message != kInterrupted && !lost_hosts.contains(control::host_of(soak.one)) &&
        !lost_hosts.contains(control::host_of(soak.other)))
      certification.suspects.push_back({"broken", subject, "soak: " + report::printable(soak.message)});
    if (!soak.leaks.empty())
      certification.suspects.push_back({"leaks", subject, fmt::to_string(fmt::join(soak.leaks, "; "))});
  }
  certification.counters = hub.counters();
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  certification.peak_memory_bytes = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  certification.processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::vector<report::PairResult> pair_results(const Certification& certification) {
  std::vector<report::PairResult> results;
  for (const PairRecord& pair : certification.pairs) {
    report::PairResult result;
    result.subject = certification.plugin_name;
    result.verdict = !pair.reached                  ? report::Verdict::kMissing
                     : pair.outcome.plugin_failed   ? report::Verdict::kFail
                     : !pair.outcome.broken.empty() ? report::Verdict::kError
                     : !pair.slow.empty()           ? report::Verdict::kWarn
                                                    : report::Verdict::kPass;
    result.message = report::printable(pair.outcome.broken.empty() ? pair.slow : pair.outcome.broken);
    const auto measured = [](double value) { return value > 0 ? std::optional(value) : std::nullopt; };
    result.latency_p50 = measured(pair.outcome.latency_p50_seconds);
    result.latency_p99 = measured(pair.outcome.latency_p99_seconds);
    for (const bool back : {false, true}) {
      result.from = certification.nics[back ? pair.other : pair.one].name;
      result.to = certification.nics[back ? pair.one : pair.other].name;
      result.bits_per_second = measured(back ? pair.outcome.back_bits_per_second : pair.outcome.forth_bits_per_second);
      results.push_back(result);
    }
  }
  return results;
}

namespace {

// "2 hosts lost or absent: h4, h5"; empty without members.
void add_reason(std::vector<std::string>& reasons, std::string_view noun, std::string_view state,
                const std::vector<std::string>& members) {
  constexpr std::size_t kMaxNamed = 8;
  if (members.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(members.size(), kMaxNamed); ++i) names += (i == 0 ? "" : ", ") + members[i];
  if (members.size() > kMaxNamed) names += fmt::format(" and {} more", members.size() - kMaxNamed);
  reasons.push_back(fmt::format("{} {}: {}", counted(members.size(), noun), state, names));
}

std::vector<std::string> reasons_of(const Certification& certification) {
  std::vector<std::string> reasons;
  if (certification.interrupted) reasons.emplace_back("stopped before the end");
  const auto subjects = [&](std::string_view kind) {
    std::vector<std::string> all;
    for (const Suspect& suspect : certification.suspects)
      if (suspect.kind == kind && std::find(all.begin(), all.end(), suspect.subject) == all.end())
        all.push_back(suspect.subject);
    return all;
  };
  add_reason(reasons, "host", "lost or absent", subjects("host"));
  if (certification.nics.size() < 2)
    reasons.push_back(fmt::format("{} found, expected two or more", counted(certification.nics.size(), "NIC")));
  const auto unreached = static_cast<std::size_t>(std::count_if(certification.pairs.begin(), certification.pairs.end(),
                                                                [](const PairRecord& pair) { return !pair.reached; }));
  if (unreached != 0)
    reasons.push_back(fmt::format("{} of {} not measured", unreached, counted(certification.pairs.size(), "pair")));
  add_reason(reasons, "part", "broken", subjects("broken"));
  add_reason(reasons, "part", "slow", subjects("slow"));
  add_reason(reasons, "pair", "leaking", subjects("leaks"));
  std::vector<std::string> facts;
  for (const Difference& difference : certification.differences) facts.push_back(difference.what);
  add_reason(reasons, "fact", "not equal on all hosts", facts);
  return reasons;
}

}  // namespace

std::vector<report::Curve> soak_curves(const Certification& certification) {
  constexpr std::size_t kMaxPairs = 3;
  std::vector<const SoakedPair*> pairs;
  for (const SoakedPair& soak : certification.soaks) pairs.push_back(&soak);
  std::stable_partition(pairs.begin(), pairs.end(), [](const SoakedPair* soak) { return !soak->leaks.empty(); });
  std::vector<report::Curve> curves;
  for (std::size_t i = 0; i < std::min(pairs.size(), kMaxPairs); ++i)
    for (report::Curve& curve : report::curves_of(*pairs[i])) curves.push_back(std::move(curve));
  return curves;
}

report::CertificationRecord record_of(const Certification& certification) {
  report::CertificationRecord record;
  record.plugin = certification.plugin_name;
  record.exit_code = certification.exit_code();
  record.hosts = certification.hosts.size();
  record.nics = certification.nics.size();
  record.pairs = certification.pairs.size();
  record.reasons = reasons_of(certification);
  record.suspects = certification.suspects;
  for (const Difference& difference : certification.differences) record.differences.push_back(difference.text());
  for (const LoadRecord& measured : certification.loads) {
    report::LoadResult& load = record.loads.emplace_back();
    load.load = fmt::format("{} on rail {}", measured.kind, measured.rail);
    load.seconds = measured.seconds;
    load.broken = measured.broken;
    for (const auto& [nic, rate] : measured.bits_per_second) {
      load.lowest_bits_per_second = std::min(load.lowest_bits_per_second.value_or(rate), rate);
      load.highest_bits_per_second = std::max(load.highest_bits_per_second.value_or(rate), rate);
    }
  }
  for (const SoakedPair& soak : certification.soaks)
    record.soaks.push_back({fmt::format("{} {}", soak.one, soak.other), soak.seconds, soak.rounds,
                            report::printable(soak.message), soak.leaks});
  return record;
}

std::vector<NamedPair> Certification::named_pairs() const {
  std::vector<NamedPair> named;
  for (const PairRecord& pair : pairs)
    named.push_back({pair.outcome, nics[pair.one].name, nics[pair.other].name, pair.reached});
  return named;
}

std::string Certification::json() const { return wire::json_text(*this); }

}  // namespace plugfest::cluster
