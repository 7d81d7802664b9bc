// A file with every packet of a NIC, for Wireshark.
//
// The processes of a host may share one file: each appends whole pcapng sections by single writes, which the kernel
// keeps apart. So packets of several processes stand in the file in pieces of at most a tenth of a second; their times
// tell the order (reordercap sorts them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/capture/ip_headers.h"
#include "fabric/system/descriptor.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class PacketLog {
 public:
  /// Appends to `file`, which is made if it is absent. `device`: the interface's name in it. Errors: std::runtime_error
  /// that names the file; so too if it holds something that is no capture.
  PacketLog(const std::filesystem::path& file, std::string device);
  /// Writes what is left.
  ~PacketLog();
  PacketLog(const PacketLog&) = delete;
  PacketLog& operator=(const PacketLog&) = delete;

  /// Packets that leave at this moment as one batch, all with `segment_bytes` of UDP payload but for the last. The
  /// identification counts from that in `headers`.
  void add_departures(WireHeaders headers, std::span<const iovec> parts, std::size_t segment_bytes);

  /// A packet that has arrived.
  void add_arrival(const WireHeaders& headers, std::span<const std::byte> payload);

  /// Puts a comment on the next packet.
  void comment(const std::string& text);

  bool pending() const { return !blocks_.empty(); }
  /// Writes what was collected. Where the file takes no more, that is said once on standard error, and nothing else is
  /// written.
  void write_out();

  /// In the child after fork: what was collected is the parent's.
  void close_in_child() { file_ = Descriptor(); }

 private:
  void add(bool outbound, const WireHeaders& headers, std::span<const iovec> payload, std::uint64_t time_ns);

  const std::string path_;
  const std::string device_;
  Descriptor file_;
  std::vector<std::byte> blocks_;
  std::vector<iovec> pieces_;  ///< of the packet that is being added; a member to keep its memory
  std::string comment_;
};

}  // namespace plugfest::roce
