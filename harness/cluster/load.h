// Traffic of many NICs at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/control/session.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

struct LoadSettings {
  /// Approximate duration of each load.
  double seconds = 5;
  std::uint64_t message_bytes = 1 << 18;
  /// Maximum number of peers to which each NIC sends, and of senders to the target of incast.
  std::size_t peers = 8;
};

/// One load on the NICs of one rail.
struct LoadRecord {
  /// "all-to-all": each NIC sends to `peers` others. "incast": all send to one NIC.
  std::string kind;
  std::size_t rail = 0;
  std::size_t peers = 0;
  double seconds = 0;
  /// The first deviation; empty if there was none.
  std::string broken = {};
  /// The bandwidth that each NIC received, by name; for incast, what the target received from each sender.
  std::map<std::string, double> bits_per_second = {};
  PLUGFEST_FIELDS(kind, rail, peers, seconds, broken, bits_per_second)
};

/// all_to_all() and incast() require at least two NICs. They throw only control::Interrupted.
LoadRecord all_to_all(control::Session& session, const std::vector<std::string>& nics, const LoadSettings& settings);
/// The first NIC is the target.
LoadRecord incast(control::Session& session, const std::vector<std::string>& nics, const LoadSettings& settings);

}  // namespace plugfest::cluster
