// Reads the output and the log lines of ranks, so that their pipes never fill up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabric/system/file.h"
#include "harness/control/process/process_facts.h"

namespace plugfest::control {

/// Output and log lines of one rank. Thread safety: any thread.
class Capture {
 public:
  /// Takes the read ends of two pipes and makes them non-blocking. Keeps the last `limit_bytes` of the output.
  Capture(Descriptor output, Descriptor log, std::size_t limit_bytes);
  /// Reads what the rank has written.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// The output since `clear`.
  std::string output();
  /// The last 4096 lines. Equal lines in sequence are one.
  std::vector<LogLine> log();
  /// The number of lines that precede log().
  std::size_t log_left_out();
  void clear();

  int output_fd() const { return output_pipe_.get(); }
  int log_fd() const { return log_pipe_.get(); }
  void drain();

 private:
  void drain_locked();
  void take_records();
  void add(LogLine line);

  const Descriptor output_pipe_;
  const Descriptor log_pipe_;
  const std::size_t limit_;
  std::mutex mutex_;
  std::string output_;
  std::size_t left_out_ = 0;
  std::string log_bytes_;
  std::deque<LogLine> log_;
  std::size_t log_left_out_ = 0;
  bool output_ended_ = false;
  bool log_ended_ = false;
  bool log_is_invalid_ = false;  ///< the plugin wrote into the pipe: what follows is read and discarded
};

/// One thread that drains all captures.
class Collector {
 public:
  Collector();
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void add(const std::shared_ptr<Capture>& capture);

 private:
  static constexpr std::uint64_t kStop = 0;  ///< key of `stop_`
  /// Keys of pipes, from 2 on: even for output, odd for logs. No key is used twice.
  static bool is_log(std::uint64_t key) { return key % 2 != 0; }

  void watch(int fd, std::uint64_t key);
  /// Null if the capture no longer exists.
  std::shared_ptr<Capture> find(std::uint64_t key);
  void run();

  Descriptor epoll_;
  Descriptor stop_;
  std::mutex mutex_;
  std::uint64_t next_key_ = 2;
  std::map<std::uint64_t, std::weak_ptr<Capture>> captures_;
  std::thread thread_;
};

/// A log line as text: "WARN net.cc:41 no route to 10.0.0.2", "INFO net.cc:7 retry (repeated 124 times)".
std::string to_text(const LogLine& line);

}  // namespace plugfest::control
