// What a plugin call in a rank came back with, and calls that are still under way.
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

/// "Success", "SystemError", …; "result 9" for a value that NCCL does not know.
std::string result_name(int code);

/// What a pointer slot (*sendComm, *request, *mhandle, …) holds when the plugin is called.
///  kNull: NULL. kPoison: a pattern that no plugin returns. kMarker: 0x1, as core presets LL receives.
///  kStale: the value that the last call of this kind on this comm left there, as core leaves it (poison at first).
enum class Preset : std::uint8_t { kNull, kPoison, kMarker, kStale };

/// Value of a slot under Preset::kPoison; also fills int outputs, cut to their width.
inline constexpr std::uint64_t kPoison = 0x5aa55aa5'5aa55aa5ull;

/// Every call's outcome. Copies are cheap enough to keep.
struct Outcome {
  /// ncclResult_t, raw.
  int code = kSuccess;
  /// When the plugin was entered and left, CLOCK_MONOTONIC of the rank's machine.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// What was overwritten beyond outputs and argument arrays (canaries), in words; "" if nothing.
  std::string damage;
  /// What was changed in argument arrays that are only inputs (XF-15), in words; "" if nothing.
  std::string changes;
  /// The rank's name.
  std::string rank;
  /// What was called and where, as messages name it: "rank a.eth0: isend(comm 0x1, 1000 bytes, tag 7)".
  std::string call;

  bool ok() const { return code == kSuccess; }
};

/// Outcome of a call that stores one pointer: listen, connect, accept, regMr, isend, irecv, iflush, init.
struct PointerOutcome : Outcome {
  /// What the slot holds after the call.
  std::uint64_t value = 0;
  /// The slot still holds its preset. (With Preset::kNull this cannot tell untouched from a stored NULL.)
  bool untouched = false;
};

/// Outcome of a call that stores one int: devices, makeVDevice.
struct IntOutcome : Outcome {
  int value = 0;
  bool untouched = false;
};

/// Outcome of test.
struct TestOutcome : Outcome {
  /// As stored; 0 and 1 are the only right values.
  int done = 0;
  /// *done still holds its preset.
  bool done_untouched = false;
  /// All 64 entries of the array that was passed (each 0 before the call unless TestOptions say otherwise); empty when
  /// sizes was NULL.
  std::vector<int> sizes;
};

/// Throws `CallFailed` (deviation.h) when the code is not Success, and `Damage` when something was overwritten.
void require_success(const Outcome& outcome);

/// A call under way in a rank. Several may be under way at once, on several threads and ranks: the waits overlap.
/// Dropping it is allowed; the call goes on, and its outcome is recorded and forgotten.
template <typename T>
class Started {
 public:
  Started(std::shared_ptr<PendingCall> call, std::function<T(PendingCall&)> finish)
      : call_(std::move(call)), finish_(std::move(finish)) {}

  /// Whether the outcome is there. Never waits.
  bool ready() const;
  /// Waits for the outcome; it can be taken once.
  /// Errors: `Hung` past the deadline, `Crashed` when the rank died (deviation.h).
  T get() { return finish_(*call_); }

 private:
  std::shared_ptr<PendingCall> call_;
  std::function<T(PendingCall&)> finish_;
};

/// Whether `call`'s answer has arrived; reads what is there without waiting.
bool answer_arrived(PendingCall& call);

template <typename T>
bool Started<T>::ready() const {
  return answer_arrived(*call_);
}

}  // namespace plugfest::control
