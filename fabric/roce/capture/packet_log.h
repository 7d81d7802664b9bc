// Captures a NIC's packets to a pcapng file, and chooses the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/capture/ip_headers.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// What is captured: all packets, or with PLUGFEST_ROCE_PCAP_SENT=BYTES in the environment only those that are sent,
/// and at most BYTES of each, including the headers of IP and UDP.
struct LogExtent {
  bool received = true;
  std::uint32_t snap_length = 0;  ///< 0 for no limit

  /// Values other than a positive number mean all packets.
  static LogExtent from_environment();
};

/// The choice of the capture file. PLUGFEST_ROCE_PCAP names it. Without that variable, the file `pcap` in the device's
/// folder of the sysfs view holds the name, and may change at any time. Not thread-safe; guarded by the NIC's lock.
class LogTarget {
 public:
  /// `device_folder` may be empty.
  explicit LogTarget(const std::filesystem::path& device_folder);

  /// Reads the name again if it may have changed. Returns true if it has changed.
  bool reload();

  /// The capture file; empty: no capture.
  const std::filesystem::path& file() const { return file_; }
  bool from_environment() const { return from_environment_; }

 private:
  std::filesystem::path control_;  ///< file that holds the name; empty: none
  FileVersion version_;
  std::filesystem::path file_;
  bool from_environment_ = false;
};

/// Makes all processes of this host that use the device capture to `file`, starting with the next packet. An empty name
/// ends the capture. `device_folder`: /sys/class/infiniband/roce_eth0. Errors: std::runtime_error that names the file.
void set_device_log(const std::filesystem::path& device_folder, const std::filesystem::path& file);

/// A capture file. Several processes may share it: each appends complete pcapng sections, each with a single write, and
/// O_APPEND keeps the writes apart. A section covers at most 0.1 s. reordercap sorts packets of several processes by
/// time. Not thread-safe; guarded by the NIC's lock.
class PacketLog {
 public:
  /// Appends to `file`, which is created if absent. `device`: the interface name in the capture. Errors:
  /// std::runtime_error that names the file, for example if it exists and is not a pcapng file.
  PacketLog(const std::filesystem::path& file, std::string device, LogExtent extent = {});
  /// Calls write_out().
  ~PacketLog();
  PacketLog(const PacketLog&) = delete;
  PacketLog& operator=(const PacketLog&) = delete;

  /// Adds the packets of a batch that was sent now. All packets have `segment_bytes` of UDP payload except the last,
  /// which may be shorter. Packet n has IPv4 identification `headers.identification` + n.
  void add_sent(WireHeaders headers, std::span<const iovec> parts, std::size_t segment_bytes);

  /// Precondition: extent().received.
  void add_received(const WireHeaders& headers, std::span<const std::byte> payload);

  void comment(const std::string& text);

  const LogExtent& extent() const { return extent_; }
  bool pending() const { return !blocks_.empty(); }
  /// Writes the pending packets. After a failed write, reports the error on standard error and ends the capture.
  void write_out();

  /// To be called in the child after fork(): the capture belongs to the parent.
  void close_in_child() { file_ = Descriptor(); }

 private:
  void add(bool outbound, const WireHeaders& headers, std::span<const iovec> payload, std::uint64_t time_ns);

  const std::string path_;
  const std::string device_;
  const LogExtent extent_;
  Descriptor file_;
  std::vector<std::byte> blocks_;
  std::vector<iovec> pieces_;  ///< parts of the current packet; a member to reuse its memory
  std::string comment_;
};

}  // namespace plugfest::roce
