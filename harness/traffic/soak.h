// Rounds of messages, connections and registrations between two ranks, and the growth of resources per round.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/script.h"
#include "harness/report/results.h"
#include "harness/traffic/growth.h"

namespace plugfest::traffic {

/// The longest soak that a user may request: a week.
inline constexpr double kMaxSoakMinutes = 7 * 24 * 60;

/// A kind of work in each round. `least_bytes`: growth of memory for each unit that counts as a leak.
struct SoakWork {
  std::string_view unit;
  int units;
  double least_bytes;
};

/// The growth for each unit of work and its standard error: "80.2 ± 0.15".
std::string growth_text(double mean, double standard_error);

/// One thread.
class Soak {
 public:
  /// The parts of a round, in their order.
  static const std::vector<SoakWork>& work();

  /// Connects, and runs a first round that is not measured. Errors: as the calls; `Deviation` and `Stalled` when
  /// a message is lost or wrong.
  Soak(const control::Endpoint& sender, const control::Endpoint& receiver, const control::StallLimit& limit,
       std::uint64_t seed);

  /// Errors: as the constructor.
  void round();

  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t messages() const;
  const GrowthMeter& meter() const { return *meter_; }
  /// The growth for each unit of work of each rank.
  std::vector<report::SoakRecord::Growth> growth() const;
  /// "rank a.eth0: 80.2 ± 0.1 bytes of resident memory more after each message", for each resource whose growth is
  /// three standard errors above the least growth that counts.
  std::vector<std::string> leaks() const;

 private:
  void do_messages();
  void do_connections();
  void do_registrations();
  void for_each_growth(
      const std::function<void(const std::string& rank, Resource, const SoakWork&, const Steps&)>& use) const;
  /// Calls `after_part` with the index in work() of each part that is done.
  void round(const std::function<void(std::size_t)>& after_part);

  control::Endpoint sender_, receiver_;
  std::uint64_t seed_;
  control::Connection connection_;
  std::optional<GrowthMeter> meter_;  ///< exists after the first round
  std::uint64_t rounds_ = 0;
};

/// Runs rounds for `seconds`, five or more. `go_on`: called after each round with what `record` has so far; false ends
/// the soak. Errors: as Soak; `record` then has what was found before.
void soak(const control::Endpoint& sender, const control::Endpoint& receiver, const control::StallLimit& limit,
          std::uint64_t seed, double seconds, const std::function<bool()>& go_on, report::SoakRecord& record);

}  // namespace plugfest::traffic
