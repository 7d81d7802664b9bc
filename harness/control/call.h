// Outcomes of plugin calls in a rank, and calls in progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plugfest::control {

class PendingCall;

/// ncclResult_t as plugins return it. Outcomes keep the raw int, since a plugin may return anything.
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;

/// "ncclSuccess", "ncclSystemError (2)", …; "result 9" for a value that NCCL does not know.
std::string result_name(int code);

/// What an output pointer (*sendComm, *request, *mhandle, …) holds before the call.
///  kNull: NULL. kPoison: a pattern that no plugin returns. kMarker: 0x1, as core presets receives of the LL protocol.
///  kStale: the value that the previous call of this kind on this comm stored, as in core; poison for the first call.
enum class Preset : std::uint8_t { kNull, kPoison, kMarker, kStale };

/// The value for Preset::kPoison. Its low bits preset int outputs.
inline constexpr std::uint64_t kPoison = 0x5aa55aa5'5aa55aa5ull;

/// Members of every call's outcome.
struct Outcome {
  /// ncclResult_t, raw.
  int code = kSuccess;
  /// Start and end of the plugin call, CLOCK_MONOTONIC of the rank's machine.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Describes writes outside of outputs and argument arrays, which canaries show; "" if there were none.
  std::string damage;
  /// Describes changes of argument arrays that are only inputs (XF-15); "" if there were none.
  std::string changes;
  /// The rank's name.
  std::string rank;
  /// The call as messages show it: "rank a.eth0: isend(comm 0x1, 1000 bytes, tag 7)".
  std::string call;

  bool ok() const { return code == kSuccess; }
};

/// Outcome of a call that stores one pointer: listen, connect, accept, regMr, isend, irecv, iflush, init.
struct PointerOutcome : Outcome {
  /// The stored pointer.
  std::uint64_t value = 0;
  /// The output still holds its preset. With Preset::kNull this is also true when the plugin stored NULL.
  bool untouched = false;
};

/// Outcome of a call that stores one int: devices, makeVDevice.
struct IntOutcome : Outcome {
  int value = 0;
  bool untouched = false;
};

/// Outcome of test.
struct TestOutcome : Outcome {
  /// The stored value. Only 0 and 1 are correct.
  int done = 0;
  /// *done still holds its preset.
  bool done_untouched = false;
  /// All 64 entries of the array; empty when sizes was NULL. Before the call each is TestOptions::size_fill.
  std::vector<int> sizes;
};

/// Throws `CallFailed` (deviation.h) when the code is not Success, and `Damage` when something was overwritten.
void require_success(const Outcome& outcome);

/// A call in progress in a rank. Calls on different threads and ranks run at the same time. The call continues when the
/// object is destroyed; its outcome is then lost, and the rank is not used for other rules.
template <typename T>
class Started {
 public:
  Started(std::shared_ptr<PendingCall> call, std::function<T(PendingCall&)> finish)
      : call_(std::move(call)), finish_(std::move(finish)) {}

  /// True when the call has returned. Never waits.
  bool ready() const;
  /// True when the rank has not told for the time limit of a call that this one makes progress; `get` then throws
  /// `Hung`. Never waits.
  bool overdue() const;
  /// Waits for the outcome. Call it once. Errors: `Hung` after the deadline, `Crashed` when the rank ended
  /// (deviation.h).
  T get() { return finish_(*call_); }

 private:
  std::shared_ptr<PendingCall> call_;
  std::function<T(PendingCall&)> finish_;
};

/// True when the answer has arrived. Never waits.
bool answer_arrived(PendingCall& call);
/// See Started::overdue().
bool is_overdue(PendingCall& call);

template <typename T>
bool Started<T>::ready() const {
  return answer_arrived(*call_);
}

template <typename T>
bool Started<T>::overdue() const {
  return is_overdue(*call_);
}

}  // namespace plugfest::control
