#include "harness/cluster/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "fabric/system/text.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

// Returns the value that has `below` values before it in ascending order; 0 if there are no values.
double ranked(std::vector<double> values, std::size_t below) {
  if (values.empty()) return 0;
  const auto position = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), position, values.end());
  return *position;
}

// Returns the upper median, so that a member of two pairs does not count as slow because one of its partners is slow.
double median_of(const std::vector<double>& values) { return ranked(values, values.size() / 2); }

double upper_quartile_of(const std::vector<double>& values) {
  return ranked(values, values.size() - 1 - values.size() / 4);
}

// The value below which a figure is slow.
double limit_of(const std::vector<double>& values, double part) {
  const double median = median_of(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  // The lower median, so that two outliers among four figures do not enlarge the deviation.
  std::sort(deviations.begin(), deviations.end());
  const double usual = deviations.empty() ? 0 : 1.4826 * deviations[(deviations.size() - 1) / 2];
  return std::min(part * median, median - kDeviations * usual);
}

constexpr std::size_t kMaxNamed = 8;
constexpr std::size_t kMaxValueBytes = 80;

// The facts that hosts of one cluster share, by their names.
std::map<std::string, std::string> comparable(const HostFacts& facts) {
  std::map<std::string, std::string> found = {{"kernel", facts.kernel},
                                              {"system", facts.system},
                                              {"plugin, SHA-256", facts.plugin_sha256},
                                              {"plugfest, SHA-256", facts.tool_sha256},
                                              {"RDMA devices", std::to_string(facts.devices.size())}};
  for (const HostFacts::Device& device : facts.devices) {
    const auto add = [&](const char* what, const std::string& of, const std::string& value) {
      found[fmt::format("{} of {}{}", what, device.name, of)] = value;
    };
    add("driver", "", device.driver);
    add("firmware", "", device.firmware);
    add("model", "", device.model);
    for (const HostFacts::Port& port : device.ports) {
      const std::string of = fmt::format(" port {}", port.port);
      add("state", of, port.state);
      add("link layer", of, port.link_layer);
      add("rate", of, port.rate);
      add("MTU", of, std::to_string(port.mtu));
      add("GID", of, port.gid);
      add("PFC", of, port.pfc);
    }
  }
  for (auto& [name, value] : found) value = value.empty() ? "none" : shortened(value, kMaxValueBytes);
  return found;
}

}  // namespace

std::size_t rounds_of(std::size_t count) { return count < 2 ? 0 : count - 1 + count % 2; }

std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round) {
  // The circle method: all seats but the last advance by one in each round, and opposite seats are partners. An odd
  // count has an empty seat, whose partner has no pair in this round.
  const std::size_t turning = rounds_of(count);
  std::vector<Pair> pairs;
  const auto add = [&](std::size_t one, std::size_t other) {
    if (one < count && other < count) pairs.emplace_back(std::min(one, other), std::max(one, other));
  };
  add(turning, round);
  for (std::size_t i = 1; i <= turning / 2; ++i) add((round + i) % turning, (round + turning - i) % turning);
  return pairs;
}

Outliers find_slow(std::span<const PairFigure> figures, double part) {
  Outliers found;
  if (figures.size() < 3) {
    std::vector<double> all;
    for (const PairFigure& figure : figures) all.push_back(figure.value);
    found.median = median_of(all);
    return found;
  }
  std::set<std::size_t> slow;
  const auto is_rest = [&](const PairFigure& figure) {
    return !slow.contains(figure.one) && !slow.contains(figure.other);
  };
  const auto by_member = [&] {
    std::map<std::size_t, std::vector<double>> values;
    for (const PairFigure& figure : figures) {
      if (!is_rest(figure)) continue;
      values[figure.one].push_back(figure.value);
      values[figure.other].push_back(figure.value);
    }
    return values;
  };
  // Among few members, a slow member and one slow pair of the others lower the medians of all members. The upper
  // quartiles show what a member can reach.
  std::vector<double> reached;
  for (const auto& [member, values] : by_member()) reached.push_back(upper_quartile_of(values));
  const double member_limit = std::max(limit_of(reached, part), kClearlySlow * part * median_of(reached));
  // A pair with a member that is known to be slow says nothing about its partner.
  for (;;) {
    Outliers::Member slowest = {.value = member_limit};
    for (const auto& [member, values] : by_member())
      if (const double value = median_of(values); value < slowest.value) slowest = {member, value};
    if (slowest.value >= member_limit) break;
    slow.insert(slowest.number);
    found.members.push_back(slowest);
  }
  std::vector<double> rest;
  for (const PairFigure& figure : figures)
    if (is_rest(figure)) rest.push_back(figure.value);
  found.median = median_of(rest);
  const double pair_limit = limit_of(rest, part);
  for (std::size_t i = 0; i < figures.size(); ++i)
    if (is_rest(figures[i]) && figures[i].value < pair_limit) found.pairs.push_back(i);
  std::sort(found.members.begin(), found.members.end(),
            [](const auto& one, const auto& other) { return one.value < other.value; });
  std::sort(found.pairs.begin(), found.pairs.end(),
            [&](std::size_t one, std::size_t other) { return figures[one].value < figures[other].value; });
  return found;
}

std::string Difference::text() const {
  std::vector<std::string> parts;
  for (const auto& [value, hosts] : values) {
    const bool many = hosts.size() > kMaxNamed;
    parts.push_back(fmt::format("{} on {}", value,
                                many ? counted(hosts.size(), "host") : fmt::format("{}", fmt::join(hosts, ", "))));
  }
  return fmt::format("{}: {}", what, fmt::join(parts, "; "));
}

std::vector<Difference> find_differences(const std::map<std::string, std::string>& facts) {
  std::map<std::string, std::map<std::string, std::string>> by_host;
  std::map<std::string, bool> names;
  for (const auto& [host, text] : facts) {
    try {
      by_host[host] = comparable(wire::decode_json<HostFacts>(text));
    } catch (const wire::JsonError&) {
      continue;
    }
    for (const auto& [name, value] : by_host[host]) names[name] = true;
  }
  std::vector<Difference> found;
  for (const auto& [name, unused] : names) {
    std::map<std::string, std::vector<std::string>> hosts;
    for (auto& [host, all] : by_host) {
      const auto value = all.find(name);
      hosts[value == all.end() ? "absent" : value->second].push_back(host);
    }
    if (hosts.size() < 2) continue;
    Difference difference{.what = name};
    for (auto& [value, members] : hosts) difference.values.push_back({value, std::move(members)});
    std::stable_sort(difference.values.begin(), difference.values.end(),
                     [](const auto& one, const auto& other) { return one.hosts.size() > other.hosts.size(); });
    found.push_back(std::move(difference));
  }
  return found;
}

}  // namespace plugfest::cluster
