// What both ends of the manager's TCP connections share: where the manager is, the lines, and the watch of the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plugfest::reduction {

/// The TCP port of the manager.
inline constexpr std::uint16_t kControlPort = 4794;

/// The environment variable that names the manager to ranks, as ADDRESS:PORT.
inline constexpr const char* kManagerVariable = "PLUGFEST_SHARP_MANAGER";

/// The longest line that the manager accepts, which is enough for a group of about 1,500 ranks, and the longest line
/// that ranks and nodes accept.
inline constexpr std::size_t kMaxLineBytes = 64 << 10;
inline constexpr std::size_t kMaxAnswerBytes = 16 << 20;

/// Cuts a byte stream into lines. Thread safety: none.
class LineReader {
 public:
  explicit LineReader(std::size_t max_bytes = kMaxLineBytes) : max_bytes_(max_bytes) {}

  /// Adds received bytes. Returns false if a line is too long; the reader must not be used then.
  bool add(std::string_view bytes);
  /// The next complete line without its end; nullopt if none is complete.
  std::optional<std::string> next();

 private:
  std::size_t max_bytes_;
  std::string received_;
};

/// Makes the kernel close a connection whose peer does not answer: keep-alive probes after 1 s, and data that is not
/// acknowledged for 5 s.
void watch_peer(int socket);

}  // namespace plugfest::reduction
