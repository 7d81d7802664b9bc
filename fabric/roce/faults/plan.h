// Fault plans: which faults a NIC injects, as text such as "loss=1%,delay=50us,seed=7", and the files that hold them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Whether a plan applies to sent packets, received packets, or both.
enum class Direction : std::uint8_t { kOut, kIn, kBoth };

/// The faults of a device in one or both directions. Probabilities are between 0 and 1.
///
/// Several plans may apply to the same packets: each decides independently, and their delays add up.
struct FaultPlan {
  std::string device = {};  ///< "roce_eth0"; empty: every device
  Direction direction = Direction::kOut;
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;      ///< probability that one to four later packets overtake the packet
  double corrupt = 0;      ///< probability that one bit covered by the ICRC is inverted
  Nanoseconds delay = 0;   ///< added to every packet; at most 10 s
  Nanoseconds jitter = 0;  ///< maximum of a uniformly distributed extra delay; packets stay in order
  std::uint64_t seed = 1;

  bool any() const { return loss > 0 || duplicate > 0 || reorder > 0 || corrupt > 0 || delay > 0 || jitter > 0; }
  /// True if the plan has faults for packets that device `name` sends (kOut) or receives (kIn).
  bool concerns(std::string_view name, Direction which) const {
    return any() && (device.empty() || device == name) && (direction == Direction::kBoth || direction == which);
  }
  bool operator==(const FaultPlan&) const = default;
};

/// Parses one plan: fields "name=value", separated by commas or blanks. FaultPlan lists the names. Values:
/// probabilities as 1% or 0.01 (a bare 1 is refused), times as 50us, 0.5ms or 1s, direction as out, in or both. Empty
/// text: no faults. Errors: std::runtime_error "FIELD: expected …"; the caller adds the location.
FaultPlan parse_faults(std::string_view text);

/// Formats a plan such that parse_faults() returns the same plan: "direction=in,delay=50us,seed=7". No faults: "".
std::string text_of(const FaultPlan& plan);

/// Parses the content of a file with one plan per line; `#` starts a comment:
///
///     # loss in both directions, delay on receipt
///     direction=both loss=1% seed=7
///     direction=in delay=50us jitter=10us
///
/// `name`: the file's name in error messages.
/// Errors: std::runtime_error "NAME:3: "loss=x": expected …".
std::vector<FaultPlan> parse_fault_file(std::string_view text, std::string_view name);

/// Errors: as parse_fault_file(), and "NAME: cannot read: reason".
std::vector<FaultPlan> read_fault_file(const std::filesystem::path& file);

/// Replaces the file atomically. NICs that watch the file apply the plans within 10 ms. No plans: an empty file.
/// Errors: std::runtime_error that names the file.
void write_fault_file(const std::filesystem::path& file, std::span<const FaultPlan> plans);

/// Sets the faults of a device of this host for all present and future processes. The plans apply to every packet that
/// is sent, or read from the kernel, after this call. `device_folder`: /sys/class/infiniband/roce_eth0.
/// Errors: as write_fault_file().
void set_device_faults(const std::filesystem::path& device_folder, std::span<const FaultPlan> plans);

/// A file of plans that other processes may change at any time. Not thread-safe.
class WatchedFaultFile {
 public:
  explicit WatchedFaultFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// Reads the file again if it has changed. Returns true if the plans have changed. An absent file has no plans. If
  /// the file cannot be parsed, the plans stay and one line goes to standard error.
  bool reload();
  const std::vector<FaultPlan>& plans() const { return plans_; }

 private:
  std::filesystem::path file_;
  FileVersion version_;
  std::vector<FaultPlan> plans_;
};

/// All plans of one NIC: the plan in PLUGFEST_ROCE_FAULTS, the file that PLUGFEST_ROCE_FAULTS_FILE names, and two files
/// of the device: `link` (properties of the link) and `faults` (faults set at run time).
/// Not thread-safe; guarded by the NIC's lock.
class FaultSource {
 public:
  /// `given`: the only plan, instead of environment and files. `device_folder`: folder of the sysfs view, or empty; its
  /// files need not exist. Errors: std::runtime_error that names the environment variable, or file and line, of a plan
  /// that cannot be parsed.
  FaultSource(const std::optional<FaultPlan>& given, const std::filesystem::path& device_folder);

  const std::vector<FaultPlan>& plans() const { return plans_; }

  /// Reads changed files again. Returns true if the plans have changed.
  bool reload();

 private:
  void merge();

  std::vector<FaultPlan> fixed_;
  std::vector<WatchedFaultFile> files_;
  std::vector<FaultPlan> plans_;
};

}  // namespace plugfest::roce
