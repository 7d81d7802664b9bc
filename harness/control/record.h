// Records of plugin calls, for reports of failures and traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace plugfest::control {

/// One plugin call, or several equal ones in sequence.
struct CallRecord {
  std::string thread;
  /// "isend(1000 bytes, tag 7)".
  std::string call;
  /// "request 0x2"; "ncclSystemError (2)"; "not done".
  std::string result;
  /// Start of the first call and end of the last one, CLOCK_MONOTONIC.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Number of equal calls with equal results.
  std::uint64_t count = 1;
};

/// Is told of every call. Thread safety: its functions may be called from several threads at once.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Rank "a.eth0" gets the request for "isend(1000 bytes, tag 7)" when this function has returned.
  virtual void before_call(const std::string& rank, const std::string& call) {
    (void)rank;
    (void)call;
  }
  /// A call of rank "a.eth0" has returned, hung or crashed.
  virtual void on_call(const std::string& rank, const CallRecord& call) = 0;
};

/// The last 256 records of one rank. Equal calls in sequence are one record.
class RecordRing {
 public:
  void add(CallRecord record);
  void clear() { records_.clear(); }
  const std::deque<CallRecord>& all() const { return records_; }

  /// The last `count` records, oldest first, one line each, with times relative to `origin_ns`:
  /// "  12.345 ms  prog  isend(1000 bytes, tag 7) → request 0x2  (4 µs)".
  std::vector<std::string> last_lines(std::size_t count, std::int64_t origin_ns) const;

 private:
  std::deque<CallRecord> records_;
};

}  // namespace plugfest::control
