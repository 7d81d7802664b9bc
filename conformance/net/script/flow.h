// Messages between two endpoints: their memory, their content, and the check of received content.
//
//   Flow flow = make_flow(8, 4096);                       // connects the rule's endpoints; 8 slots of 4096 bytes
//   for (std::size_t i = 0; i < 8; ++i) flow.receive(i);
//   for (std::size_t i = 0; i < 8; ++i) flow.send(i);
//   flow.finish();                                        // checks that all arrived, each in its slot
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conformance/net/script/traffic.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/connection.h"
#include "harness/control/script.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

/// Memory of a rank, registered on one of its comms: the whole pages that hold it, as in NCCL.
struct Registered {
  Memory memory;
  Registration registration;

  Buffer buffer() const { return registration; }
  Buffer buffer(std::size_t offset, std::size_t length) const { return registration.buffer(offset, length); }
  Slice slice(std::size_t offset, std::size_t length) const { return memory.sub(offset, length); }
  void release() {
    registration.dereg();
    memory.free();
  }
};
Registered allocate(Rank rank, const Comm& comm, std::size_t size, Placement placement = Placement::kEnd);
/// Registers the whole pages that hold `memory`. The result refers to `memory` only.
Registration register_pages(const Comm& comm, const Memory& memory);
/// Whether the CUDA bit of the device's ptrSupport is set: NCCL registers and flushes GPU memory with the plugin.
bool has_cuda_bit(Endpoint endpoint);

/// As `allocate`, for much memory. Errors: `Skipped` if the registration fails because the process may not lock so
/// much: it is above RLIMIT_MEMLOCK, and so is a smaller one, slightly above the limit, that fails too.
Registered allocate_lockable(Rank rank, const Comm& comm, std::size_t size);

/// A connection with registered memory at both endpoints.
struct RegisteredConnection {
  SendComm send;
  RecvComm receive;
  Registered from;
  Registered to;
};
/// Connects `sender` to `receiver` `count` times. Each connection gets `size` bytes of memory at both endpoints.
std::vector<RegisteredConnection> connect_registered(const Endpoint& sender, const Endpoint& receiver,
                                                     std::size_t count, std::size_t size);

/// A connection of another communicator of the same processes, which has a service thread and a progress thread of its
/// own. NCCL ends the progress thread of a communicator before it closes the comms.
RegisteredConnection connect_another_communicator(const Endpoint& sender, const Endpoint& receiver, std::size_t size);

struct Message {
  std::size_t size = 0;
  /// Determines the content. Each message of a rule has its own seed.
  std::uint64_t seed = 0;
  int tag = 0;
  /// Size of the receive in bytes; nullopt: `size`.
  std::optional<std::size_t> posted_size = std::nullopt;
};

/// Sends new content in `from` to `to`, and requires that it arrives. `what` names the message. Returns the size that
/// test reported to the receiver. Errors: `Broken`, and whatever the calls throw.
int transfer(Rank sender, const SendComm& send, const Buffer& from, Rank receiver, const RecvComm& receive,
             const Buffer& to, std::uint64_t seed, const std::string& what, int tag = 0);
/// Allocates memory at both endpoints and calls transfer().
int deliver(const Endpoint& sender, const SendComm& send, const Endpoint& receiver, const RecvComm& receive,
            const Message& message);
inline int deliver(const Endpoint& sender, const Endpoint& receiver, const Connection& connection,
                   const Message& message) {
  return deliver(sender, connection.send, receiver, connection.receive, message);
}

/// Connects and delivers one message: a plugin may defer receives until its first message has prepared the connection.
Connection connect_and_deliver(const Endpoint& from, const Endpoint& to, std::uint64_t seed, std::size_t size = 1000);
/// Posts up to `count` receives of `size` bytes each, to successive parts of `to`, before any message is sent. Stops at
/// a receive that the plugin still defers after many calls, and returns the requests of the others.
/// Errors: `NotApplicable` when the plugin defers the first one, as it may until the sender calls isend.
std::vector<Request> post_ahead(const RecvComm& comm, const Registered& to, std::size_t size, std::size_t count);
/// Requires that `slice` holds the pattern of `seed`. `what` names the message: "message 3 (1000 bytes, tag 7)".
void require_content(Rank rank, const Slice& slice, std::uint64_t seed, const std::string& what);

/// The content of the array of sizes before a call of test, for rules about what it writes.
inline constexpr int kUnwrittenSize = -77;

/// Requires that test reported the size that was sent. Errors: `WrongSize`.
void require_size(const std::string& rank, int reported, std::size_t sent, const std::string& what);

/// Calls `step` at least `count` times while the rank's progress threads stream messages over `connection`. A stream
/// that ends earlier is followed by another one. Errors: whatever the calls and the streams throw.
void during_streams(const Connection& connection, std::mt19937_64& random, int count,
                    const std::function<void()>& step);

/// An isend or irecv that may end in any result code: for rules about errors. Not thread-safe.
class Trial {
 public:
  static Trial send(const SendComm& comm, const Buffer& buffer, int tag = 0);
  static Trial receive(const RecvComm& comm, const std::vector<Part>& parts);

  /// Posts the operation, or tests it when the plugin has accepted it. Returns over().
  bool turn();
  /// Whether the operation is done or has failed.
  bool over() const { return over_; }
  bool done() const { return over_ && code_ == kSuccess; }
  bool failed() const { return over_ && code_ != kSuccess; }
  bool accepted() const { return static_cast<bool>(request_); }
  const Request& request() const { return request_; }
  const Outcome& last() const { return last_; }
  int size() const { return size_; }
  /// "reported 64 bytes", "was refused with ncclInternalError (3)", "failed with …", "did not complete".
  std::string describe() const;

 private:
  Trial(std::function<PointerOutcome()> post, std::function<Request(std::uint64_t)> request);

  std::function<PointerOutcome()> post_;
  std::function<Request(std::uint64_t)> to_request_;
  Request request_;
  Outcome last_;
  bool over_ = false;
  int code_ = kSuccess;
  int size_ = 0;
};

/// Gives each trial up to `turns` turns, in order, until all are over. Returns whether all are over.
bool drive(std::initializer_list<Trial*> trials, int turns);

/// Sends messages over one connection. Both endpoints have registered memory of equal slots, and a message goes from a
/// slot of the sender to the same slot of the receiver. Each message gets new content.
///
/// Several flows may share one Traffic, which posts and tests the operations of all in turn, and retries operations
/// that the plugin defers. Errors: see Traffic; `Broken` when a message arrives with wrong bytes. Not thread-safe.
class Flow {
 public:
  using Ticket = Traffic::Ticket;
  /// Stands for the size of the whole slot.
  static constexpr std::size_t kWhole = SIZE_MAX;

  /// `traffic` and `random` must outlive the flow.
  Flow(Traffic& traffic, std::mt19937_64& random, Endpoint sender, Endpoint receiver, Connection connection,
       std::size_t slots, std::size_t slot_size, Placement placement = Placement::kEnd);

  const SendComm& send_comm() const { return connection_.send; }
  const RecvComm& recv_comm() const { return connection_.receive; }
  const Connection& connection() const { return connection_; }
  Rank& sender() { return sender_.rank; }
  Rank& receiver() { return receiver_.rank; }
  const Registered& from() const { return from_; }
  const Registered& to() const { return to_; }

  /// Memory of a slot at the sender, and at the receiver.
  Buffer source(std::size_t slot, std::size_t size = kWhole) const;
  Buffer target(std::size_t slot, std::size_t size = kWhole) const;

  /// Writes new content for a message of `size` bytes; `check` expects it in the same slot of the receiver.
  Buffer fill(std::size_t slot, std::size_t size = kWhole, int tag = 0);
  Ticket send(std::size_t slot, std::size_t size = kWhole, int tag = 0);
  Ticket send_filled(std::size_t slot);
  Ticket receive(std::size_t slot, std::size_t size = kWhole, int tag = 0, const PostOptions& options = {});
  /// Receives a group into the slots from `first` on, one for each tag.
  Ticket receive_group(std::size_t first, const std::vector<int>& tags);
  std::vector<Part> parts(std::size_t first, const std::vector<int>& tags) const;

  /// Watches the receiver's slot, which must be zero, while the message that `fill` wrote arrives in it. `words`,
  /// `lines`: see start_watching().
  Started<WatchOutcome> watch(std::size_t slot, bool words, bool lines);
  /// Requires that all messages filled since the last check have arrived; with `slot` only the one in that slot.
  void check();
  void check(std::size_t slot);
  /// Drives the traffic until all of its operations are done, then checks.
  void finish();
  /// Receives and sends one message, and returns the size that test reported to the receiver.
  int exchange(std::size_t slot, std::size_t size = kWhole, int tag = 0);

  Traffic& traffic() { return *traffic_; }

 private:
  struct Message {
    std::uint64_t seed;
    std::size_t size;
    int tag;
  };
  std::size_t bytes(std::size_t size) const { return size == kWhole ? slot_size_ : size; }

  Traffic* traffic_;
  std::mt19937_64* random_;
  Endpoint sender_, receiver_;
  Connection connection_;
  std::size_t slot_size_;
  Registered from_, to_;
  /// The messages that are not yet checked, by slot.
  std::map<std::size_t, Message> unchecked_;
};

/// Base of rules that send messages between the endpoints of the path.
class MessageRule : public RuleBody {
 protected:
  Endpoint sender() { return near_endpoint(); }
  Endpoint receiver() { return far_endpoint(); }

  /// The traffic of all flows of this rule.
  Traffic& traffic();
  /// Connects the sender to the receiver, or `from` to `to`, or uses a connection.
  Flow make_flow(std::size_t slots, std::size_t slot_size);
  Flow make_flow(const Endpoint& from, const Endpoint& to, std::size_t slots, std::size_t slot_size);
  Flow make_flow(const Connection& connection, std::size_t slots, std::size_t slot_size);

  /// Whether NCCL may transfer GPU memory with the receiver's device: false if the run has a GPU and the device does
  /// not support its memory. Without a GPU, true, because the device may support GPU memory on other hosts.
  bool may_transfer_gpu_memory();
  /// Whether NCCL may register memory on a comm that is in use: buffers of users, which are in GPU memory, and, if
  /// maxRecvs is above 1, buffers of other connections, which share the comm.
  bool registers_during_transfers();
  /// Runs `part`, which compares sizes. NCCL uses the size of a receive only to decide about the flush of GPU memory,
  /// and for profilers. A wrong size is therefore a warning unless may_transfer_gpu_memory(); only the first one is
  /// recorded.
  void judge_sizes(const std::function<void()>& part);
  /// Judges the size that test reported for a send, which NCCL 2.20 to 2.23 read for user buffers in GPU memory: a
  /// wrong one is a warning unless the sender's device has the CUDA bit. Later releases, which load v9, ignore it.
  void judge_sent_size(int reported, std::size_t sent, const std::string& what);
  /// `size`, or 4 MiB if that is less and NCCL passes only its own buffers to the receiver's device.
  std::size_t usual_size(std::size_t size);
  /// maxRecvs of the receiver's device, at most 64, the maximum that NCCL posts.
  std::size_t max_recvs();
  /// Returns max_recvs(), for rules about groups. Errors: `NotApplicable` if it is 1.
  std::size_t widest_group();
  /// 0 to count-1 in random order.
  std::vector<std::size_t> shuffled(std::size_t count);

 private:
  std::optional<Traffic> traffic_;
  bool warned_of_size_ = false;
};

std::vector<int> tags_from(int first, std::size_t count);

}  // namespace plugfest::conformance
