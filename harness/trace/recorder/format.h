// The file that libnccl-profiler-plugfest.so writes, one for each process: a FileHeader, then records of 32 bytes in
// the byte order of the machine. The records of one thread are in the order of its calls; threads' records are mixed.
// A file may end in the middle of a record.
#pragma once

#include <cstdint>

namespace plugfest::trace {

inline constexpr char kRecordingMagic[8] = {'P', 'L', 'U', 'G', 'R', 'E', 'C', '1'};
/// The end of the file's name, "HOST-PID.recording".
inline constexpr const char* kRecordingSuffix = ".recording";
/// The plugin writes its file into the folder that this variable names.
inline constexpr const char* kRecordingFolderVariable = "PLUGFEST_TRACE_FOLDER";

struct FileHeader {
  char magic[8];
  /// The two clocks at the same time. All other times are of CLOCK_MONOTONIC.
  std::int64_t monotonic_ns;
  std::int64_t realtime_ns;
  std::uint64_t pid;
  /// The machine's boot: files with the same text share CLOCK_MONOTONIC. Both texts end with a zero.
  char boot_id[40];
  char host[184];
};
static_assert(sizeof(FileHeader) == 256);

enum class RecordKind : std::uint8_t {
  /// A communicator begins or ends. `event`: its number. Its attributes follow its beginning.
  kBegin = 1,
  kEnd,
  /// An event starts. `key`: the number of its bit in the activation mask; `communicator`; `value`: the event that is
  /// its parent, 0 for none or one of another process. Its attributes follow.
  kStart,
  /// An event takes the state `key`. `value`: the first 8 bytes of the state's arguments, 0 without arguments.
  kState,
  kStop,
  /// `value` is the attribute `key` of an event or communicator.
  kNumber,
  /// Up to 16 bytes of the text that is the attribute `key`, in `time_ns` and `value`. Longer texts continue in the
  /// next record.
  kText,
  /// A thread waited for a processor. `event`: when the interval began that ends at `time_ns`; `value`: the nanoseconds
  /// of it that the thread waited; `communicator`: the number of the thread.
  kProcessorWait,
};

/// Attributes of communicators and events.
enum class Key : std::uint8_t {
  kId = 1,  ///< of a communicator, the same in all ranks
  kRank,
  kRanks,
  kNodes,
  kName,
  kSequence,
  kFunction,
  kCount,
  kDatatype,
  kRoot,
  kChannels,
  kAlgorithm,
  kProtocol,
  kPeer,
  kChannel,
  kSteps,
  kChunkBytes,
  kSends,  ///< 1: a proxy operation that sends
  kPid,    ///< of the process that started a proxy operation, if it is another one
  kStep,
  kDepth,
  kTimer,  ///< of the GPU
  kPluginId,
  kDevice,
  kWorkRequest,
  kOpcode,
  kQueuePair,
  kBytes,
  kRefusals,  ///< calls before this isend or irecv that gave no request
  kTests,     ///< calls of test until the request was done
  kPluginNs,  ///< time in these calls, without those that gave no request
};

/// In place of a bit of the activation mask: a request of the net plugin, from its isend or irecv until its test
/// reports that it is done. Its parent is a step.
inline constexpr std::uint8_t kPluginCall = 63;

struct Record {
  std::int64_t time_ns;
  std::uint64_t event;
  std::uint64_t value;
  RecordKind kind;
  std::uint8_t key;
  std::uint16_t reserved;
  std::uint32_t communicator;
};
static_assert(sizeof(Record) == 32);

/// The thread that started an event, from its number.
inline constexpr int kThreadShift = 40;

}  // namespace plugfest::trace
