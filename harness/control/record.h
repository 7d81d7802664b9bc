// What a rank was asked to do, call by call, for failures and traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace plugfest::control {

/// One plugin call, or several equal ones in a row.
struct CallRecord {
  std::string thread;
  /// "isend(1000 bytes, tag 7)".
  std::string call;
  /// "request 0x2"; "SystemError"; "not done".
  std::string result;
  /// CLOCK_MONOTONIC of the first call's start and the last one's end.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Equal calls with equal results that this stands for.
  std::uint64_t count = 1;
};

/// Somebody who wants to know of every call, not only of the last ones. Its functions may be called from several
/// threads at once.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Rank "a.eth0" is about to be asked for "isend(1000 bytes, tag 7)"; it is asked when this returns.
  virtual void before_call(const std::string& rank, const std::string& call) {
    (void)rank;
    (void)call;
  }
  /// A call of rank "a.eth0" has returned, hung or crashed.
  virtual void on_call(const std::string& rank, const CallRecord& call) = 0;
};

/// The latest records of one rank; equal neighbours are folded into one.
class RecordRing {
 public:
  void add(CallRecord record);
  void clear() { records_.clear(); }
  const std::deque<CallRecord>& all() const { return records_; }

  /// The last `count`, oldest first, one line each, times relative to `origin_ns`:
  /// "  12.345 ms  prog  isend(1000 bytes, tag 7) → request 0x2  (4 µs)".
  std::vector<std::string> last_lines(std::size_t count, std::int64_t origin_ns) const;

 private:
  std::deque<CallRecord> records_;
};

}  // namespace plugfest::control
