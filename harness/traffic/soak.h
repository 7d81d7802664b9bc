// Rounds of messages, connections and registrations between two ranks, and the growth of resources per round.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/script.h"
#include "harness/traffic/growth.h"

namespace plugfest::traffic {

/// A kind of work in each round. `least_bytes`: growth of memory for each unit that counts as a leak.
struct SoakWork {
  std::string_view unit;
  int units;
  double least_bytes;
};

/// The growth for each unit of work and its standard error: "80.2 ± 0.15".
std::string growth_text(const Steps& steps, const SoakWork& work);

/// One thread.
class Soak {
 public:
  /// The parts of a round, in their order.
  static const std::vector<SoakWork>& work();

  /// Connects, and runs a first round that is not measured. Errors: those of the calls; `Deviation` and `Stalled` when
  /// a message is lost or wrong.
  Soak(const control::Endpoint& sender, const control::Endpoint& receiver, const control::StallLimit& limit,
       std::uint64_t seed);

  /// Errors: as the constructor.
  void round();

  std::uint64_t rounds() const { return rounds_; }
  const GrowthMeter& meter() const { return meter_; }
  /// "rank a.eth0: 80.2 ± 0.1 bytes of resident memory more after each message", for each resource whose growth is
  /// three standard errors above the least growth that counts.
  std::vector<std::string> leaks() const;

 private:
  void do_messages();
  void do_connections();
  void do_registrations();
  /// Calls `after_part` with the index in work() of each part that is done.
  void round(const std::function<void(std::size_t)>& after_part);

  control::Endpoint sender_, receiver_;
  std::uint64_t seed_;
  control::Connection connection_;
  control::Memory memory_;
  GrowthMeter meter_;
  std::uint64_t rounds_ = 0;
};

}  // namespace plugfest::traffic
