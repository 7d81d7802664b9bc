// Plans parallel measurements, and evaluates figures and facts of hosts. Functions without state.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

using Pair = std::pair<std::size_t, std::size_t>;

/// The number of rounds that pair each of `count` members once with each other one, and at most once per round. It is
/// count - 1 for an even count, count for an odd one, and 0 below 2.
std::size_t rounds_of(std::size_t count);

/// The pairs of round `round`, the smaller number first; count / 2 pairs. This is the circle method of a round-robin
/// tournament: its cost does not depend on the rounds before. Requires round < rounds_of(count).
std::vector<Pair> pairs_of_round(std::size_t count, std::size_t round);

/// A figure of a pair; larger is better.
struct PairFigure {
  std::size_t one = 0, other = 0;
  double value = 0;
};

struct Outliers {
  /// The median of all pairs without slow members; 0 if there are none.
  double median = 0;
  struct Member {
    std::size_t number = 0;
    double value = 0;
  };
  /// Members whose pairs are slow regardless of the partner, slowest first.
  std::vector<Member> members;
  /// Slow pairs of members that are not slow: indices of figures, slowest first.
  std::vector<std::size_t> pairs;
};

/// A figure is slow if it is below this fraction of the median (unless the caller chooses another fraction), and
/// further below the median than kDeviations times the usual deviation. The usual deviation is 1.4826 times the median
/// of absolute deviations, which equals the standard deviation of a normal distribution. Median and deviation are
/// robust: up to half of the figures may be wrong.
inline constexpr double kSlowPart = 0.6;
inline constexpr double kDeviations = 4;
/// A member below this fraction of the limit for slow figures is slow regardless of the deviation: where figures vary
/// much, four usual deviations exceed the median.
inline constexpr double kClearlySlow = 0.4;

/// Compares the median of each member's pairs with the upper quartiles of all members, since one slow member gives
/// every other one a slow pair. The slowest member is taken first, and its pairs do not count for its partners. Then
/// compares the pairs of the members that are not slow. Fewer than three figures are not compared.
Outliers find_slow(std::span<const PairFigure> figures, double part = kSlowPart);

/// The facts about a host: hosts/NAME.json in the archive. Members that another version does not write may be absent.
struct HostFacts {
  struct Port {
    int port = 0;
    std::string state = {}, link_layer = {}, rate = {};
    long mtu = 0;
    std::string gid = {};
    /// Bits of the paused priorities: "0x08"; "unknown".
    std::string pfc = {};
    PLUGFEST_FIELDS(or_default(port), or_default(state), or_default(link_layer), or_default(rate), or_default(mtu),
                    or_default(gid), or_default(pfc))
  };
  struct Device {
    std::string name = {}, driver = {}, firmware = {}, model = {};
    std::vector<Port> ports = {};
    PLUGFEST_FIELDS(name, or_default(driver), or_default(firmware), or_default(model), or_default(ports))
  };
  std::string system = {}, kernel = {}, cpu = {}, user = {};
  std::string plugin_path = {}, plugin_sha256 = {}, tool_sha256 = {};
  std::vector<Device> devices = {};
  std::vector<doctor::Finding> findings = {};
  PLUGFEST_FIELDS(or_default(system), kernel, only_written(cpu), only_written(user),
                  only_written(key("plugin.path", plugin_path)), or_default(key("plugin.sha256", plugin_sha256)),
                  or_default(key("tool.sha256", tool_sha256)), or_default(devices), only_written(findings))
};

/// A fact in which hosts of one cluster differ, although they should be equal.
struct Difference {
  /// "firmware of mlx5_0", "plugin".
  std::string what = {};
  struct Value {
    std::string value = {};
    std::vector<std::string> hosts = {};
    PLUGFEST_FIELDS(value, hosts)
  };
  /// The most frequent one first.
  std::vector<Value> values = {};
  PLUGFEST_FIELDS(what, values)

  /// "firmware of mlx5_0: 20.31.1014 on 15 hosts; 20.29.2002 on h3"
  std::string text() const;
};

/// `facts`: a HostFacts as JSON, by host; other content counts as a host without facts. Returns one entry for each
/// fact that is not the same on all hosts with facts.
std::vector<Difference> find_differences(const std::map<std::string, std::string>& facts);

}  // namespace plugfest::cluster
