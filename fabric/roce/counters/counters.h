// The counters of a NIC, their files in the sysfs view, and their table.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace plugfest::roce {

/// Each member is a monotonic std::uint64_t.
struct Counters {
  std::uint64_t sent_packets = 0;  ///< including retransmissions
  std::uint64_t sent_bytes = 0;    ///< UDP payload
  std::uint64_t received_packets = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t placed_packets = 0;  ///< payload received directly into its final memory
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t timeouts = 0;  ///< retransmissions after an acknowledgement timeout
  std::uint64_t duplicate_requests = 0;
  std::uint64_t out_of_sequence = 0;  ///< requests with a PSN beyond the expected one
  std::uint64_t sent_sequence_naks = 0;
  std::uint64_t sent_invalid_request_naks = 0;
  std::uint64_t sent_access_naks = 0;
  std::uint64_t sent_operation_naks = 0;
  std::uint64_t sent_rnr_naks = 0;
  std::uint64_t received_sequence_naks = 0;
  std::uint64_t received_invalid_request_naks = 0;
  std::uint64_t received_access_naks = 0;
  std::uint64_t received_operation_naks = 0;
  std::uint64_t received_rnr_naks = 0;
  std::uint64_t retries_exceeded = 0;      ///< queue pairs that failed after retry_cnt timeouts
  std::uint64_t rnr_retries_exceeded = 0;  ///< queue pairs that failed after rnr_retry RNR NAKs
  std::uint64_t icrc_errors = 0;
  std::uint64_t malformed_packets = 0;    ///< wrong version, P_Key, padding or length
  std::uint64_t unknown_queue_pairs = 0;  ///< packets for a queue pair number that the host lacks
  std::uint64_t unexpected_packets = 0;   ///< wrong source address, or a state that receives nothing
  std::uint64_t dropped_messages = 0;     ///< UC and UD: incomplete, no receive posted, or access denied
  std::uint64_t q_key_violations = 0;     ///< datagrams whose Q_Key differs from the queue pair's
  std::uint64_t forwarded_packets = 0;    ///< received for another process of this host
  std::uint64_t forward_drops = 0;        ///< forwarded packets lost: queue of that process full
  std::uint64_t buffer_drops = 0;         ///< packets lost: socket receive buffer full
  std::uint64_t marked_packets = 0;       ///< received with ECN congestion mark (CE)
  std::uint64_t sent_notifications = 0;   ///< congestion notification packets (CNP)
  std::uint64_t handled_notifications = 0;

  // Injected faults, both directions.
  std::uint64_t fault_drops = 0;
  std::uint64_t fault_duplicates = 0;
  std::uint64_t fault_reorders = 0;
  std::uint64_t fault_corruptions = 0;
  std::uint64_t delayed_packets = 0;

  bool operator==(const Counters&) const = default;
};

using CounterArray = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;

inline Counters operator+(const Counters& a, const Counters& b) {
  auto sum = std::bit_cast<CounterArray>(a);
  const auto more = std::bit_cast<CounterArray>(b);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return std::bit_cast<Counters>(sum);
}
inline Counters operator-(const Counters& a, const Counters& b) {
  auto difference = std::bit_cast<CounterArray>(a);
  const auto less = std::bit_cast<CounterArray>(b);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= less[i];
  return std::bit_cast<Counters>(difference);
}

/// One file under ports/1 of a device.
struct CounterFile {
  const char* folder;  ///< "counters" or "hw_counters"
  const char* name;    ///< the name that mlx5 or rxe uses, if they have this counter
  std::uint64_t (*value)(const Counters&);
};
std::span<const CounterFile> counter_files();

/// Updates the files whose values differ between `before` and `now`. Replaces each file atomically. Returns false if a
/// file cannot be written.
bool write_counter_files(const std::filesystem::path& device_folder, const Counters& now, const Counters& before);

/// Creates the counter page and all counter files, with the current values. Errors: std::runtime_error that names the
/// file.
void make_counter_files(const std::filesystem::path& device_folder);

/// The counters of one device, summed over all processes.
struct DeviceCounters {
  std::string device;  ///< "roce_eth0", or with the host: "a.roce_eth0"
  Counters counters;
};

/// Reads the counters of all devices in a sysfs view, sorted by name. The default path is valid in the mount namespace
/// of a host; from outside use /proc/<pid>/root/sys/class/infiniband of one of its processes.
std::vector<DeviceCounters> read_counters(const std::filesystem::path& class_infiniband = "/sys/class/infiniband");

/// Formats a text table of at most 80 columns: a heading, then one line per device. After the first columns, it
/// contains only counters that are not 0 on at least one device; if these are too many, the table is repeated for the
/// rest.
std::string counter_table(std::span<const DeviceCounters> devices);

}  // namespace plugfest::roce
