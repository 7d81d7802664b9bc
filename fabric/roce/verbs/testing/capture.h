// For tests: every packet on one interface, kept and written as a pcap file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "fabric/netns/fabric.h"

namespace plugfest::roce {

/// Captures from construction until stop(). Sees what leaves and what arrives, as tcpdump does.
class Capture {
 public:
  /// Errors: std::system_error.
  Capture(netns::Fabric& fabric, const std::string& host, const std::string& interface);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Ends the capture and writes it. Returns the number of packets. Errors: std::runtime_error, also if the kernel
  /// dropped packets because the capture was too slow.
  std::size_t stop(const std::filesystem::path& file);

 private:
  void receive();

  int socket_ = -1;
  int stop_ = -1;  ///< eventfd
  std::vector<std::vector<std::uint8_t>> packets_;
  std::thread receiver_;
};

}  // namespace plugfest::roce
