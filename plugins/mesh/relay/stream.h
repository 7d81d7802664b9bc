// Carries the work requests of a queue pair as frames on a TCP connection.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/mesh/handshake/socket.h"

namespace mesh {

/// The header of each frame, little-endian, sizes in bytes.
struct FrameHeader {
  enum Kind : std::uint8_t {
    kSend = 1,
    kSendWithValue,
    kWrite,
    kWriteWithValue,
    kDone,  ///< `count` further work requests are done
    kClose  ///< ends the stream; `address` holds how many messages its sender has received
  };
  std::uint8_t kind = 0;
  std::array<std::uint8_t, 3> zero = {};
  std::uint32_t value = 0;  ///< immediate value, as in ibv_wc
  std::uint64_t length = 0;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t count = 0;

  bool is_send() const { return kind == kSend || kind == kSendWithValue; }
  bool is_write() const { return kind == kWrite || kind == kWriteWithValue; }
};
static_assert(sizeof(FrameHeader) == 32);

/// Calls `use` if `bytes` at `address` may be used with this key, and returns whether they may. The memory stays
/// registered during the call.
using MayUse = std::function<bool(std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                                  const std::function<void()>& use)>;

/// Sends the frames of work requests in order, and between them how many work requests of the peer are done. Never
/// waits. Not thread-safe.
class FrameWriter {
 public:
  struct Work {
    std::uint64_t id = 0;
    ibv_wc_opcode opcode = IBV_WC_SEND;
    bool signaled = false;
    FrameHeader header;
    const std::byte* data = nullptr;
    std::uint32_t local_key = 0;  ///< of `data`
    std::vector<std::byte> copy;  ///< copy of inline data
  };

  void post(Work work) { work_.push_back(std::move(work)); }
  /// The next flush() tells the peer that one more of its work requests is done.
  void report_one() { ++to_report_; }
  /// Sends as much as the socket takes. `may_read`: for the data of writes. Returns 0 if all is sent, or an error
  /// number; EAGAIN: the socket's buffer is full; EFAULT: data cannot be read.
  int flush(const Socket& socket, const MayUse& may_read);
  /// Sends a frame kClose, unless another frame is sent in part or the socket is full.
  void send_close(const Socket& socket, std::uint64_t messages_received);

  /// The posted work that is not done, oldest first.
  const std::deque<Work>& work() const { return work_; }
  /// Removes the oldest work, which the peer says is done. Returns nullopt if it is not sent completely.
  std::optional<Work> take_done();

 private:
  static int write(const Socket& socket, const FrameHeader& header, const std::byte* data, std::size_t& sent);

  std::deque<Work> work_;
  std::size_t next_ = 0;         ///< index of the first work that is not sent completely
  std::size_t sent_ = 0;         ///< bytes of that frame that are sent
  std::uint32_t to_report_ = 0;  ///< work requests of the peer that are done and not reported yet
  FrameHeader report_;
  bool reporting_ = false;  ///< `report_` is sent in part
  std::size_t report_sent_ = 0;
};

/// Reads frames, and puts their data into the memory of the oldest receive, or of the peer's RDMA WRITE. Never
/// waits. Not thread-safe.
class FrameReader {
 public:
  struct Receive {
    std::uint64_t id = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Progress {
    bool complete = false;     ///< header() describes a frame whose data is in place
    std::size_t bytes = 0;     ///< bytes read in this call
    std::string failure = {};  ///< why no more can be read: "it closed the connection"
  };

  /// `early`: bytes that were read from the socket already.
  void start(std::vector<std::uint8_t> early) { early_ = std::move(early); }
  void post(Receive receive) { receives_.push_back(receive); }
  /// Reads at most one frame. A frame that needs a receive stays in the socket until one is posted.
  Progress read(const Socket& socket, const MayUse& may_write);

  const FrameHeader& header() const { return header_; }
  /// The receives that are not used yet, oldest first.
  const std::deque<Receive>& receives() const { return receives_; }
  Receive take_receive();

 private:
  bool begin_frame(std::string& failure);
  bool take_bytes(const Socket& socket, std::byte* target, std::size_t bytes, std::size_t& got, std::string& failure);

  std::deque<Receive> receives_;
  std::vector<std::uint8_t> early_;
  std::size_t early_taken_ = 0;
  FrameHeader header_;
  std::size_t header_got_ = 0;
  bool in_frame_ = false;  ///< the header is complete and its target is known
  std::byte* target_ = nullptr;
  std::size_t data_got_ = 0;
};

/// A reliable connection over TCP for peers that only relays connect. It carries SENDs and RDMA WRITEs, in order, and
/// completes them as an RC queue pair does: a work request is done when the peer reports that its data is in place.
/// `poll` moves the bytes; no thread does. Not thread-safe.
class Stream {
 public:
  /// Takes a connected socket and the bytes that were read from it already. `may_read`: for memory that is sent, with
  /// local keys; `may_write`: for memory that the peer writes, with remote keys.
  void start(Socket socket, std::vector<std::uint8_t> received, MayUse may_read, MayUse may_write);

  /// The functions of a queue pair. Work requests without IBV_SEND_SIGNALED have no completion unless they fail. If the
  /// data of one cannot be read, because it was deregistered, all fail with a local protection error.
  int post_send(const ibv_send_wr* first);
  int post_receive(const ibv_recv_wr* first);
  int poll(std::span<ibv_wc> completions);
  /// Ends all work requests with this error. Later work requests get a flush error.
  void stop(ibv_wc_status status = IBV_WC_WR_FLUSH_ERR);

  /// Tells the peer that this side closes the connection and how many messages it received.
  void send_close(std::uint64_t messages_received);

  /// Whether the peer has closed the connection, or a relay between the hosts has ended. Messages that arrived before
  /// are then complete.
  bool ended() const { return ended_; }
  /// Why it ended: "it closed the connection".
  const std::string& end_reason() const { return end_reason_; }
  /// How many messages the peer had received when it closed the connection; nullopt if it did not say so.
  std::optional<std::uint64_t> received_by_peer() const { return received_by_peer_; }

 private:
  void flush();
  void read(std::size_t budget);
  void end_frame(const FrameHeader& header);
  void complete(std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes = 0,
                std::uint32_t value = 0, bool has_value = false);
  void end(const std::string& reason);

  Socket socket_;
  MayUse may_read_, may_write_;
  FrameWriter writer_;
  FrameReader reader_;
  std::deque<ibv_wc> completions_;
  bool stopped_ = false;
  bool ended_ = false;
  std::string end_reason_;
  std::optional<std::uint64_t> received_by_peer_;
};

}  // namespace mesh
