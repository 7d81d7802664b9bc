// A reliable connection over TCP with the work requests of a queue pair, for peers that only relays connect.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/relay/frames.h"

namespace mesh {

/// Carries SENDs and RDMA WRITEs, in order, and completes them as an RC queue pair does: a work request is done when
/// the peer has put its data in place and says so. No thread: `poll` moves bytes. Not thread-safe.
class Stream {
 public:
  /// Takes a connected socket and what was read from it already.
  void start(Socket socket, std::vector<std::uint8_t> received, FrameReader::MayWrite may_write);

  /// As the functions of a queue pair. Work requests without IBV_SEND_SIGNALED have no completion unless they fail.
  int post_send(const ibv_send_wr* first);
  int post_receive(const ibv_recv_wr* first);
  int poll(std::span<ibv_wc> completions);
  /// Ends all work requests with a flush error. Later ones get it, too.
  void stop();

  /// Tells the peer that this side closes the connection and how many messages it received.
  void say_goodbye(std::uint64_t messages_received);

  /// Whether the peer has closed the connection, or a relay between has ended. What arrived before is complete then.
  bool ended() const { return ended_; }
  /// Why: "it closed the connection".
  const std::string& end_reason() const { return end_reason_; }
  /// How many messages the peer had received when it closed the connection; nullopt if it did not say so.
  std::optional<std::uint64_t> goodbye() const { return goodbye_; }

 private:
  void flush();
  void read();
  void end_frame(const FrameHeader& header);
  void complete(std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes = 0,
                std::uint32_t value = 0, bool has_value = false);
  void end(const std::string& reason);

  Socket socket_;
  FrameReader::MayWrite may_write_;
  FrameWriter writer_;
  FrameReader reader_;
  std::deque<ibv_wc> completions_;
  bool stopped_ = false;
  bool ended_ = false;
  std::string end_reason_;
  std::optional<std::uint64_t> goodbye_;
};

}  // namespace mesh
