// Captures the packets of a host in the background of a test.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "fabric/netns/packet_capture.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Writes the RoCE packets of a host to a pcapng file from construction until stop().
class BackgroundCapture {
 public:
  /// Errors: as the constructor of PacketCapture; std::system_error if the file cannot be created.
  BackgroundCapture(netns::Fabric& fabric, const std::string& host, const std::filesystem::path& file)
      : capture_(fabric, host), file_(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_) throw std::system_error(errno, std::generic_category(), file.string());
    writer_ = std::thread([this] { count_ = capture_.write(file_.get(), stop_); });
  }
  ~BackgroundCapture() { join(); }
  BackgroundCapture(const BackgroundCapture&) = delete;
  BackgroundCapture& operator=(const BackgroundCapture&) = delete;

  /// Ends the capture. Returns the number of packets. Errors: std::runtime_error if the kernel dropped packets because
  /// the capture was too slow.
  std::size_t stop() {
    join();
    if (count_.dropped > 0) throw std::runtime_error("the capture lost packets");
    return count_.written;
  }

 private:
  void join() {
    stop_ = true;
    if (writer_.joinable()) writer_.join();
  }

  netns::PacketCapture capture_;
  Descriptor file_;
  netns::PacketCapture::Count count_;
  std::atomic<bool> stop_{false};
  std::thread writer_;
};

}  // namespace plugfest::roce
