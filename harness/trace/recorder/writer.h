// Buffers records in each thread and writes them to the file of the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "harness/trace/recorder/format.h"

namespace plugfest::trace {

/// The file of this process. Thread safety: any thread. Nothing here throws.
class Writer {
 public:
  /// The writer of the process. It is never destroyed, since threads of NCCL may outlive the library's users.
  static Writer& get();

  /// Creates the file in `folder` on the first call. Returns whether records can be written; if not, it has printed one
  /// line. `folder` may be null.
  bool open(const char* folder) noexcept;
  /// Whether a file is open and no write has failed. Never in a process forked by one that has a file.
  bool works() const { return fd_.load(std::memory_order_relaxed) >= 0; }

  /// Appends records of one event, at most kMaxAtOnce, which stay together. Takes no lock unless the thread's buffer
  /// is full.
  void append(std::span<const Record> records) noexcept;
  static constexpr std::size_t kMaxAtOnce = 64;
  /// The number of the calling thread in event numbers; 0 if there is no memory for the thread's buffer.
  std::uint64_t thread() noexcept;
  /// A number for an event that this thread starts; 0 if there is no memory for the thread's buffer.
  std::uint64_t next_event() noexcept;
  /// Whether the event had another state before. Knows only the last events of this thread, so it may return true for
  /// the same state again.
  bool changes_state(std::uint64_t event, std::uint8_t state) noexcept;
  /// Writes the buffers of all threads to the file.
  void flush() noexcept;

 private:
  /// The records of a thread. Only this thread appends; whoever holds `flushing` writes them to the file.
  struct Buffer {
    static constexpr std::uint64_t kRecords = 1024;
    Record records[kRecords];
    std::atomic<std::uint64_t> head = 0, tail = 0;  ///< number of records appended, and written to the file
    std::mutex flushing;
    std::atomic<bool> in_use = true;
    std::uint64_t thread = 0, events = 0;
    struct State {
      std::uint64_t event = 0;
      std::uint8_t state = 0;
    };
    static constexpr std::size_t kStates = 256;
    State states[kStates];
    Buffer* next = nullptr;
  };
  /// Returns the buffer of a thread to the pool when the thread ends.
  struct Owner {
    ~Owner();
  };

  Writer() = default;
  Buffer* buffer() noexcept;
  void flush(Buffer& buffer) noexcept;
  void write(const Record* records, std::size_t count) noexcept;
  /// Prints why recording ends, once.
  void give_up(const std::string& reason) noexcept;
  /// Runs in a forked child, which has copies of the records that its parent is going to write.
  static void stop_in_child() noexcept;

  /// The buffer of this thread, null if it has none. It is not a member of Owner, because destructors of the thread
  /// that run after Owner's may start events.
  static constinit thread_local Buffer* mine_;

  std::mutex opening_;
  std::string path_;
  std::atomic<int> fd_ = -1;
  std::atomic<bool> gave_up_ = false;
  bool forked_ = false;
  std::atomic<Buffer*> buffers_ = nullptr;
  std::atomic<std::uint64_t> threads_ = 0;
};

/// CLOCK_MONOTONIC.
std::int64_t monotonic_ns() noexcept;

}  // namespace plugfest::trace
