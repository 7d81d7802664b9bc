// Connections between kernels of the same host, without a proxy.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "harness/nccl/device/pipe.h"

namespace plugfest::nccl::device {

inline constexpr std::size_t kStepBytes = 1024;

class Wires {
 public:
  /// The end of the sender or of the receiver. `channel`, `connection`: further wires between the same ranks.
  Connection between(int from, int to, bool sender, std::size_t channel = 0, int connection = 0) {
    Wire& wire = wires_[{from, to, channel, connection}];
    return {.simple_buffer = wire.simple.data(),
            .line_buffer = wire.lines.data(),
            .tail = &wire.tail,
            .head = &wire.head,
            .step_bytes = kStepBytes,
            .saved_step = sender ? &wire.sent : &wire.received};
  }

 private:
  struct Place {
    int from, to;
    std::size_t channel;
    int connection;
    auto operator<=>(const Place&) const = default;
  };
  struct Wire {
    std::vector<std::byte> simple = std::vector<std::byte>(kSteps * kStepBytes);
    std::vector<Line> lines = std::vector<Line>(kSteps * kStepBytes / sizeof(Line));
    std::uint64_t tail = 0, head = 0, sent = 0, received = 0;
  };
  std::map<Place, Wire> wires_;
};

}  // namespace plugfest::nccl::device
