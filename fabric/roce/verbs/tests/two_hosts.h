// A fabric whose hosts run programs on the NIC, and captures of their packets.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/host_process.h"
#include "fabric/netns/packet_capture.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/system/file.h"

namespace plugfest::roce::verbs {

using netns::find_program;
using netns::HostProcess;

/// A program and its arguments, for tests with parameters.
struct CommandLine {
  std::string name;  ///< the name of the test
  std::vector<std::string> argv;
};

// GoogleTest prints the name in ctest.
inline void PrintTo(const CommandLine& line, std::ostream* out) { *out << line.name; }

/// The TCP port on which ibverbs-utils and perftest exchange addresses.
inline constexpr std::uint16_t kExchangePort = 18515;

/// For `env`: gives a program the connection manager of fabric/rdma_cm, as fabric exec does.
inline constexpr const char* kConnectionManager = "LD_PRELOAD=libplugfest-rdmacm.so";

/// Hosts a and b of the topology "triangle": one link between them, device roce_eth0 on both sides, path MTU 4096.
/// Programs load this project's libibverbs and see /sys/class/infiniband.
///
/// Environment: PLUGFEST_TEST_NIC: folder of another build of the library. PLUGFEST_TEST_PRELOAD: LD_PRELOAD of the
/// programs, such as the runtime of a sanitizer.
class TwoHosts {
 public:
  TwoHosts();

  netns::Fabric& fabric() { return fabric_; }
  std::string address_of_a() const;

  HostProcess start(const std::string& host, const std::vector<std::string>& argv);

  /// The counters of all devices of a host, of running and of ended processes.
  Counters counters(const std::string& host);

  /// Runs a program as ServerAndClient. Expects that both exit with 0 (GoogleTest). Returns the output of the client.
  std::string run_server_and_client(const std::vector<std::string>& argv);

  /// The rows of `tshark -r file options`, which has one row for each packet. Requires the field separator "|" or a tab
  /// in `options`. Expects that tshark exits with 0 (GoogleTest).
  std::vector<std::string> dissect(const std::filesystem::path& file, const std::vector<std::string>& options);

 private:
  netns::Fabric fabric_;
};

/// A program that runs on both hosts, on a as server, on b as client with the address of a as last argument.
class ServerAndClient {
 public:
  /// Starts the server, and the client when the server listens on `port`. `client_argv`: if it differs from the
  /// server's. Errors: as HostProcess.
  ServerAndClient(TwoHosts& hosts, const std::vector<std::string>& argv, std::uint16_t port = kExchangePort,
                  std::vector<std::string> client_argv = {});

  HostProcess& client() { return client_; }
  /// Kills both with SIGKILL.
  void kill();
  /// Waits until both have exited and expects exit code 0 (GoogleTest). Returns the output of the client.
  std::string expect_success();

 private:
  HostProcess server_;
  HostProcess client_;
};

/// Writes the RoCE packets of a host to a pcapng file from construction until stop().
class BackgroundCapture {
 public:
  /// Errors: as the constructor of PacketCapture; std::runtime_error if the file cannot be written.
  BackgroundCapture(netns::Fabric& fabric, const std::string& host, const std::filesystem::path& file)
      : capture_(fabric, host), file_(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_) throw_file_error(file, "write");
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

}  // namespace plugfest::roce::verbs

/// Skips a test if a program is not installed.
#define PLUGFEST_NEEDS_PROGRAM(name) \
  if (!::plugfest::roce::verbs::find_program(name)) GTEST_SKIP() << "needs " << (name) << ", which is not installed"
