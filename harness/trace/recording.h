// Reads the files of libnccl-profiler-plugfest.so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/trace/recorder/format.h"

namespace plugfest::trace {

/// Times in files are damaged if they are not below this limit, in the year 2043: sums of three times must fit into 64
/// bits.
inline constexpr std::int64_t kTimeLimitNs = std::int64_t{1} << 61;

/// What a recording knows about an event or a communicator beyond its times.
struct Attributes {
  std::vector<std::pair<Key, std::uint64_t>> numbers;
  std::vector<std::pair<Key, std::string>> texts;

  std::int64_t number(Key key, std::int64_t otherwise = 0) const;
  std::string text(Key key) const;
};

struct RecordedState {
  int state;
  std::int64_t time_ns;
  std::uint64_t value;
};

struct RecordedEvent {
  std::uint64_t id, parent;    ///< parent: an id, 0 for none or for one of another process
  int bit;                     ///< number of the event's bit in the activation mask
  std::uint32_t communicator;  ///< key of Recording::communicators
  std::int64_t start_ns;
  std::int64_t stop_ns;  ///< 0: never stopped
  std::vector<RecordedState> states;
  Attributes attributes;

  std::uint64_t thread() const { return id >> kThreadShift; }
};

/// A thread waited for a processor during `waited_ns` of an interval.
struct RecordedProcessorWait {
  std::uint32_t thread;
  std::int64_t start_ns, stop_ns, waited_ns;
};

/// The events of one process. Times: CLOCK_MONOTONIC of its host.
struct Recording {
  std::string path, host, boot_id;
  std::uint64_t pid = 0;
  /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
  std::int64_t realtime_offset_ns = 0;
  std::map<std::uint32_t, Attributes> communicators = {};
  /// In the order in which each thread started them.
  std::vector<RecordedEvent> events = {};
  std::vector<RecordedProcessorWait> processor_waits = {};
};

/// Whether the file begins as a recording. Errors: std::runtime_error if it cannot be read.
bool is_recording(const std::string& path);

/// Reads a file, which may be cut at any byte; records without a beginning are ignored. Errors: std::runtime_error
/// "a-7.recording: not a file of libnccl-profiler-plugfest.so", "a-7.recording: offset 256: an impossible time", or
/// with the reason why it cannot be read.
Recording read_recording(const std::string& path);

}  // namespace plugfest::trace
