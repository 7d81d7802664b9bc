// A communicator: the sockets of one rank in one group, and the engine that uses them.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "fabric/sharp_coll/engine.h"
#include "fabric/sharp_coll/log.h"
#include "fabric/sharp_coll/manager_connection.h"
#include "fabric/sharp_coll/out_of_band.h"
#include "fabric/sharp_coll/settings.h"
#include "fabric/system/file.h"

namespace plugfest::sharp_coll {

/// What a communicator needs of its context.
struct CommEnvironment {
  Settings settings;
  std::uint64_t job = 0;
  in_addr address = {};                 ///< the address of the device
  Nanoseconds result_timeout = kNever;  ///< without a result for this time, collectives fail
};

/// Thread safety: the caller holds the lock of the context.
class Comm {
 public:
  /// Joins a group that all ranks of `ranks` create together. With one rank no network is used.
  /// Errors: Failure, on all ranks with the same code.
  Comm(const CommEnvironment& environment, const OutOfBand& ranks, const Log& log);
  /// Leaves the group unless this is a forked process.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  Place place() const { return place_; }

  /// Starts a collective and sends what may be sent. Errors: Failure if the communicator has failed.
  std::shared_ptr<Operation> post(const Transfer& transfer);

  /// Receives, sends, and fails the operations if the group has failed. Returns whether a packet has arrived.
  bool progress();

  /// Leaves the group. Operations in progress fail. Returns after the manager has noted it: once all ranks have left,
  /// the group and its SAT lock are free.
  void leave();

  /// The descriptors that become readable when progress() has work, and the time at which it has some anyway.
  struct Waiting {
    int socket = -1;
    int manager = -1;
    bool sends = false;  ///< packets wait until the socket is writable
    Nanoseconds deadline = kNever;
  };
  Waiting waiting() const;

  /// The counters in one line.
  std::string statistics() const;

 private:
  struct Member;  // a rank's socket, for the manager
  Member open_socket();
  nlohmann::json ask_for_group(const std::vector<Member>& members, const char* mode);
  std::string create_group(const std::vector<Member>& members);
  void join(const std::string& group);

  static std::shared_ptr<Operation> finished_alone(const Transfer& transfer);

  bool receive(Nanoseconds now);
  void transmit(Nanoseconds now);
  bool flush();
  void watch_manager(Nanoseconds now);
  void fail(const std::string& reason);

  static constexpr std::size_t kBatch = 16;  // packets of one system call

  const CommEnvironment environment_;
  const Place place_;
  const Log log_;
  const pid_t process_;
  Descriptor socket_;
  ManagerConnection manager_;
  std::unique_ptr<Engine> engine_;      // null with one rank
  std::vector<std::byte> send_buffer_;  // kBatch packets
  std::vector<std::byte> receive_buffer_;
  std::array<std::size_t, kBatch> batch_sizes_ = {};
  std::size_t batch_begin_ = 0;  // packets of the batch that wait: [begin, end)
  std::size_t batch_end_ = 0;
  std::string name_;  // "group G"
  Nanoseconds manager_watched_ = 0;
  std::string failure_;  // empty, or why the communicator has failed
};

}  // namespace plugfest::sharp_coll
