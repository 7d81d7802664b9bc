// Schedules of plugfest fuzz: plugin calls of several ranks as data, and their YAML files.
//
// A schedule is either one of a net, or one of GIN or RMA, whose steps are OneSided and Compare only. A transfer of a
// net is a receive with all of its sends, so that a schedule stays valid when a step is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace plugfest::model {

/// Makes comm number `comm`, from the rank `from` to the rank `to` (indices into Schedule::ranks).
struct Connect {
  unsigned comm = 0;
  unsigned from = 0;
  unsigned to = 1;
  /// Groups in flight at each endpoint, 1 to 8.
  unsigned window = 8;
  /// Each endpoint tests only its oldest request (a sender: the oldest of each tag); otherwise all in turn.
  bool oldest_only = true;
  bool operator==(const Connect&) const = default;
};

/// One send, and the buffer of the receive with the same tag.
struct Message {
  int tag = 0;
  std::uint32_t bytes = 0;
  /// Size of the posted receive buffer; at least the size of every message of the group with this tag.
  std::uint32_t room = 0;
  bool operator==(const Message&) const = default;
};

/// A receive of one or more messages, and the sends that fill it.
struct Transfer {
  unsigned comm = 0;
  /// The messages, in the order of the buffers.
  std::vector<Message> messages = {};
  /// The order in which the sends are posted: indices into `messages`.
  std::vector<unsigned> sends = {};
  /// How many times the transfer runs, one after another, each with different contents.
  std::uint32_t repeat = 1;
  bool operator==(const Transfer&) const = default;
};

/// The rank makes no plugin calls for `us` microseconds, once the plugin has accepted its earlier operations.
struct Pause {
  unsigned rank = 0;
  std::uint32_t us = 0;
  bool operator==(const Pause&) const = default;
};

/// Each endpoint registers new memory at the address of its old memory, once its earlier transfers are complete.
struct Register {
  unsigned comm = 0;
  bool operator==(const Register&) const = default;
};

/// The rank's process is stopped from `at_us` to `at_us` + `us` microseconds after all ranks have begun.
struct Freeze {
  unsigned rank = 0;
  std::uint32_t at_us = 0;
  std::uint32_t us = 0;
  bool operator==(const Freeze&) const = default;
};

/// Both endpoints close the comm, each when its transfers are complete. Comms that no step closes are closed at the
/// end. With packet faults no endpoint closes a comm, since its peer may need it to repeat an acknowledgement.
struct Close {
  unsigned comm = 0;
  bool operator==(const Close&) const = default;
};

/// Bytes from the memory of rank `from` to the memory of `to`: a put by `from`, or a get by `to`. Each operation writes
/// memory of its own.
struct OneSided {
  bool get = false;
  unsigned from = 0;
  unsigned to = 1;
  /// 0: a signal without data.
  std::uint32_t bytes = 0;
  unsigned context = 0;
  /// The signal of `to` that the put changes: adds `add`, or increments.
  std::optional<unsigned> signal = {};
  std::optional<std::uint64_t> add = {};
  bool operator==(const OneSided&) const = default;

  unsigned initiator() const { return get ? to : from; }
  unsigned peer() const { return get ? from : to; }
};

/// Waits until all earlier operations are complete, and compares all memory and signals. A schedule also ends so.
struct Compare {
  bool operator==(const Compare&) const = default;
};

inline constexpr unsigned kContexts = 2;  ///< per rank
inline constexpr unsigned kSignals = 2;   ///< per rank
/// Operations of one rank to another one in flight: every plugin must take so many (GI-09).
inline constexpr unsigned kMaxInFlight = 32;

inline constexpr std::size_t kMaxRanks = 16;
inline constexpr std::size_t kMaxComms = 64;
inline constexpr std::size_t kMaxMessages = 64;  ///< messages of a group
inline constexpr unsigned kMaxWindow = 8;
inline constexpr std::uint32_t kMaxBytes = 16u << 20;
inline constexpr std::uint32_t kMaxPauseUs = 1'000'000;

using Step = std::variant<Connect, Transfer, Register, Pause, Freeze, Close, OneSided, Compare>;

struct Schedule {
  /// "gin" or "rma"; "" for a net.
  std::string interface = {};
  /// Name of the topology, as --topology takes it.
  std::string topology;
  /// "a.eth0".
  std::vector<std::string> ranks;
  /// Determines the contents of messages.
  std::uint64_t seed = 0;
  /// Packet faults on every link, in the syntax of --faults: "loss=1%,delay=1ms"; "" for none.
  std::string faults = {};
  std::vector<Step> steps = {};
  bool operator==(const Schedule&) const = default;
};

/// 0, 1, …, count - 1.
std::vector<unsigned> in_order(std::size_t count);

/// Messages of a net, operations of GIN or RMA.
std::uint64_t count_messages(const Schedule& schedule);

/// One line of a file for a step: "message: {comm: 0, bytes: 1000, tag: 7}".
std::string step_text(const Schedule& schedule, const Step& step);

/// The content of a file for `plugfest fuzz --replay`. `comments`: lines at its start.
std::string file_text(const Schedule& schedule, const std::vector<std::string>& comments);

/// Reads such a file. Errors: std::runtime_error, one line with the file's line, even for an invalid step (model.h).
Schedule read_schedule(const std::string& path);

/// The machine for which random schedules are made.
struct Shape {
  /// See Schedule::interface.
  std::string interface = {};
  std::string topology;
  std::vector<std::string> ranks;
  /// The smallest maxRecvs of the ranks' devices.
  unsigned max_receives = 1;
  /// Whether packet faults can be injected.
  bool faults = false;
  /// Whether the plugin has gets, and several contexts.
  bool gets = false;
  bool contexts = false;
};

/// Returns a valid schedule that depends on `shape` and `seed` only. Thread safety: any thread.
Schedule random_schedule(const Shape& shape, std::uint64_t seed);

/// Returns a schedule for which `fails` is true, and no longer true when any part is removed or made smaller.
/// `schedule`: one for which `fails` is true.
Schedule shrink(Schedule schedule, const std::function<bool(const Schedule&)>& fails);

}  // namespace plugfest::model
