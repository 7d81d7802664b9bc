// A reliable connection over TCP with the work requests of a queue pair, for peers that only relays connect.
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

/// Carries SENDs and RDMA WRITEs, in order, and completes them as an RC queue pair does: a work request is done when
/// the peer has put its data in place and says so. No thread: `poll` moves bytes. Not thread-safe.
///
/// Each work request is a frame: a header of 32 bytes, then the data. Header, little-endian, sizes in bytes: kind (1),
/// zero (3), immediate value (4), length of the data (8), remote address (8), remote key (4), count (4). A frame
/// `kDone` says that `count` further work requests are done. `kGoodbye` ends the stream; its address field holds how
/// many messages its sender has received.
class Stream {
 public:
  /// Calls `use` if the peer may write `bytes` at `address` with this remote key, and returns whether it may. The
  /// memory stays registered during the call.
  using MayWrite = std::function<bool(std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
                                      const std::function<void()>& use)>;

  /// Takes a connected socket and what was read from it already.
  void start(Socket socket, std::vector<std::uint8_t> received, MayWrite may_write);

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
  static constexpr std::size_t kHeaderBytes = 32;
  enum Kind : std::uint8_t { kSend = 1, kSendWithValue, kWrite, kWriteWithValue, kDone, kGoodbye };
  struct Header {
    std::uint8_t kind = 0;
    std::array<std::uint8_t, 3> zero = {};
    std::uint32_t value = 0;  ///< immediate value, as in ibv_wc
    std::uint64_t length = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t count = 0;
  };
  static_assert(sizeof(Header) == kHeaderBytes);
  struct Work {
    std::uint64_t id = 0;
    ibv_wc_opcode opcode = IBV_WC_SEND;
    bool signaled = false;
    Header header;
    const std::byte* data = nullptr;
    std::vector<std::byte> copy;  ///< of inline data
  };
  struct Receive {
    std::uint64_t id = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  void flush();
  bool write(const Header& header, const std::byte* data, std::size_t& sent);
  void read();
  bool begin_frame();
  void end_frame();
  bool take_bytes(std::byte* target, std::size_t bytes, std::size_t& got);
  void complete(std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes = 0,
                std::uint32_t value = 0, bool has_value = false);
  void end(const std::string& reason);

  Socket socket_;
  MayWrite may_write_;
  bool stopped_ = false;
  bool ended_ = false;
  std::string end_reason_;
  std::optional<std::uint64_t> goodbye_;
  std::deque<ibv_wc> completions_;

  std::deque<Work> work_;        ///< posted and not done, oldest first
  std::size_t next_work_ = 0;    ///< index of the first that is not sent completely
  std::size_t sent_ = 0;         ///< bytes of that frame that are sent
  std::uint32_t to_report_ = 0;  ///< work requests of the peer that are done, and the peer does not know it
  Header report_;
  bool reporting_ = false;  ///< `report_` is sent in part
  std::size_t report_sent_ = 0;

  std::deque<Receive> receives_;
  std::vector<std::uint8_t> early_;  ///< bytes that were read before `start`
  std::size_t early_taken_ = 0;
  Header incoming_;
  std::size_t header_got_ = 0;
  bool in_frame_ = false;  ///< the header is complete and its target is known
  std::byte* target_ = nullptr;
  std::size_t data_got_ = 0;
};

}  // namespace mesh
