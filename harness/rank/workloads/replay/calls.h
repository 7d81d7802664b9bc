// Makes and counts the plugin calls of a replay, and keeps the last ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/rank/plugin_calls.h"
#include "harness/rank/workloads/replay/connection.h"

namespace plugfest::rank {

/// Errors of every call: ReplayFailed when the plugin returns an error or writes where it must not.
class ReplayCalls {
 public:
  explicit ReplayCalls(const Replay& request) : request_(request) {}

  /// Both return the value that *request has after the call. `preset`: its value before the call. `from`: the
  /// connection of each piece.
  std::uint64_t isend(const ReplayEnd& end, const Piece& piece, std::uint64_t preset);
  std::uint64_t irecv(const std::vector<const ReplayEnd*>& ends, const std::vector<Piece>& pieces,
                      std::uint64_t preset);
  /// True when done. `end`: the connection of the first buffer.
  bool test(const ReplayEnd& end, std::uint64_t request);
  void consumed(const ReplayEnd& end, int count, std::uint64_t request);
  /// Calls setNetAttr if the plugin has it and the last call was not for this kind of traffic.
  void set_attributes(bool sends, ProxyProtocol protocol);

  /// Moves counts and calls into `report`.
  void finish(ReplayReport& report);

 private:
  static constexpr std::size_t kPiecesShown = 4;
  enum class Function : std::uint8_t { kIsend, kIrecv, kTest, kConsumed, kSetAttributes };
  /// One call for messages, or several equal ones in sequence. Becomes a text only when there is an error.
  struct Line {
    Function function = Function::kTest;
    const ReplayEnd* end = nullptr;
    std::int32_t code = 0;
    std::uint32_t count = 0;
    std::array<std::uint64_t, kPiecesShown> sizes{};
    std::array<std::int32_t, kPiecesShown> tags{};
    std::uint64_t request = 0;
    std::uint64_t result = 0;
    bool operator==(const Line&) const = default;
    /// "isend(comm 0x1, 1000 bytes tag 7, *request NULL) to b.eth0".
    std::string text() const;
    std::string result_text() const;
  };
  struct Repeated {
    Line line;
    std::uint64_t times = 1;
  };
  static Line line(Function function, const ReplayEnd* end, const std::vector<Piece>& pieces, std::uint64_t request);
  /// Keeps the call, and throws if it failed.
  void note(Line line, const CallAnswer& answer, std::uint64_t result);
  void trace(ReplayCall::Kind kind, const ReplayEnd& end, const CallAnswer& answer, const std::vector<Piece>& pieces,
             std::vector<std::uint64_t> sizes, std::uint64_t request);

  const Replay& request_;
  ReplayReport report_;
  std::size_t trace_bytes_ = 0;
  std::deque<Repeated> last_;
  std::optional<std::pair<bool, ProxyProtocol>> attributes_;
};

}  // namespace plugfest::rank
