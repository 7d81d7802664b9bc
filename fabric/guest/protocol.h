// The protocol between host and guest on the virtio port, and the command line that a guest runs.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest::guest {

/// Name of the port under /sys/class/virtio-ports of the guest.
constexpr const char* kPortName = "plugfest";

enum class FrameKind : std::uint8_t {
  kReady = 1,   ///< guest: process 1 has started
  kOutput = 2,  ///< guest: bytes of the command's standard output
  kErrors = 3,  ///< guest: bytes of the command's standard error
  kFile = 4,    ///< guest: the path of a result file, a zero byte, the content of the file
  kExit = 5,    ///< guest, last: the exit code in decimal digits
  kFailed = 6,  ///< guest, last: an error message: the command could not be started
  kSignal = 7,  ///< host: the number of a signal for the command, in decimal digits
};

struct Frame {
  FrameKind kind = FrameKind::kReady;
  std::string content;
};

/// The kind and the length of the content.
constexpr std::size_t kFrameHeaderBytes = 5;

/// Writes a frame. Returns false if the other side has closed the port. The length is in native byte order, since both
/// sides run on one machine.
inline bool write_frame(int fd, FrameKind kind, std::string_view content) {
  std::string bytes(kFrameHeaderBytes, '\0');
  const auto length = static_cast<std::uint32_t>(content.size());
  bytes[0] = static_cast<char>(kind);
  std::memcpy(bytes.data() + 1, &length, sizeof(length));
  bytes += content;
  return write_all(fd, bytes);
}

/// Splits a byte stream into frames.
class FrameReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }

  /// The next complete frame; nullopt if it has not arrived completely.
  std::optional<Frame> next() {
    std::uint32_t length = 0;
    if (bytes_.size() < kFrameHeaderBytes) return std::nullopt;
    std::memcpy(&length, bytes_.data() + 1, sizeof(length));
    if (bytes_.size() < kFrameHeaderBytes + length) return std::nullopt;
    Frame result{static_cast<FrameKind>(bytes_[0]), bytes_.substr(kFrameHeaderBytes, length)};
    bytes_.erase(0, kFrameHeaderBytes + length);
    return result;
  }

 private:
  std::string bytes_;
};

struct CommandLine {
  std::vector<std::string> argv;
  std::string program;                   ///< the file to execute; argv[0] is only its name
  std::vector<std::string> environment;  ///< the complete environment, as NAME=value
  std::string working_directory;
  /// Absolute paths of files that the command writes and that are copied to the host. At the start these files do not
  /// exist in the guest; all other files of the host do.
  std::vector<std::string> results;
};

/// The file in the initial file system that contains the command.
constexpr const char* kCommandFile = "command";

/// Serializes a command line. Each word ends with a zero byte; each list begins with its length.
inline std::string to_text(const CommandLine& command) {
  std::string text;
  const auto add = [&](const std::string& word) { text.append(word).push_back('\0'); };
  add(command.program);
  add(command.working_directory);
  for (const auto* list : {&command.argv, &command.environment, &command.results}) {
    add(std::to_string(list->size()));
    for (const std::string& word : *list) add(word);
  }
  return text;
}

inline CommandLine parse_command_line(const std::string& text) {
  std::size_t at = 0;
  const auto take = [&] {
    const std::string word = text.c_str() + at;
    at += word.size() + 1;
    return word;
  };
  CommandLine command;
  command.program = take();
  command.working_directory = take();
  for (auto* list : {&command.argv, &command.environment, &command.results}) {
    const std::size_t count = std::stoul(take());
    for (std::size_t i = 0; i < count; ++i) list->push_back(take());
  }
  return command;
}

}  // namespace plugfest::guest
