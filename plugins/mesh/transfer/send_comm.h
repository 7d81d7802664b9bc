// The sending side of a connection.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "plugins/mesh/transfer/comm.h"
#include "plugins/mesh/transfer/eager.h"
#include "plugins/mesh/transfer/request.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Writes messages to the buffers that the receiver announces. Threads: see Comm.
///
/// The receiver announces each receive with a SEND of a `Group` of slots. A message that matches a slot is cut into
/// chunks, which the lanes carry; a small message, or one on a single lane, is one chunk. A chunk is sent as RDMA
/// WRITEs to the slot's buffer, one per piece; the last carries an immediate value that tells the receiver which slot
/// it is for. An eager message, see SlotQueue, is written to a bounce slot of the receiver instead, and the receiver
/// copies it. A bounce slot is used again when the receiver has said that it is free. A send is done when its chunks
/// are acknowledged. Sends to one group are posted together, when the group is full or at the next call of test.
class SendComm final : public Comm {
 public:
  /// Errors: Failure.
  explicit SendComm(const std::vector<LaneStart>& starts);

  /// Enables eager messages, to the slots of the listener's answer. Errors: Failure if the connection allows none.
  void use_bounce(const Bounce& bounce, std::uint32_t requested_bytes);

  /// Implements NCCL's isend. `*request` stays null when no announced buffer matches yet and the message cannot be sent
  /// eagerly, or all requests are in use. Returns InvalidUsage and writes nothing if the message
  /// is larger than its announced buffer.
  Result send(const void* data, std::size_t bytes, int tag, const Registration* memory, void* profiler_handle,
              void** request);

  Result test(const RequestId& id, int* done, int* sizes) override;

 private:
  static constexpr std::uint32_t kInlineBytes = 64;
  enum class State : std::uint8_t { kFree, kActive, kDone };
  struct Request {
    State state = State::kFree;
    std::uint8_t chunks = 1;       ///< number of chunks of the message
    std::uint8_t next_chunk = 0;   ///< the first that was not posted yet
    std::uint8_t done_chunks = 0;  ///< number of acknowledged chunks
    std::uint16_t generation = 0;
    std::array<std::uint32_t, kMaxLanes> local_keys = {};
    const std::byte* data = nullptr;
    void* profiler_handle = nullptr;
    /// The registration of the data, to compare: it may have been deregistered. Null unless the state is kActive.
    std::atomic<const Registration*> memory = nullptr;
    bool is_inline = false;                                ///< whether the data are in `inline_data`
    std::array<std::byte, kInlineBytes> inline_data = {};  ///< a copy: `data` may be deregistered before it is posted
    std::size_t bytes = 0;
    std::size_t chunk_bytes = 0;  ///< bytes of all chunks but the last
    std::uint64_t sequence = 0;   ///< number of messages of the comm before this one
    Match match;
  };
  struct Chunk {
    std::uint8_t request = 0;
    std::uint8_t number = 0;
    std::uint16_t generation = 0;          ///< generation of the request
    std::optional<std::size_t> lane = {};  ///< the lane that carries it, once a piece is to be posted
    std::uint32_t pieces = 0;              ///< number of posted pieces
  };

  void on_done(const Work& work) override;
  void on_lost(std::size_t lane, const Work& work) override;
  void on_idle(std::uint32_t groups) override;
  void on_eager(std::uint32_t copied) override;
  bool copies() const override { return false; }
  void on_received(const Lane& lane, const ibv_wc& completion) override;
  void on_switched() override;
  void settle(std::optional<std::uint64_t> messages_received) override;
  std::uint64_t messages_received() const override { return 0; }
  bool uses(const Registration& memory) const override;

  std::optional<Match> find(std::int32_t tag, std::size_t bytes);
  void ask_for_announcement();
  void finish_by_idle();
  void limit_switching();
  bool is_current(std::size_t request, std::uint16_t generation) const {
    return requests_[request].generation == generation && requests_[request].state == State::kActive;
  }
  static void set_done(Request& request);
  void finish(std::size_t request);
  void cut(Request& request) const;
  std::optional<std::size_t> choose_lane();
  bool next_chunk();
  void post() {
    if (to_post_) post_chunks();
  }
  void post_chunks();
  bool post_batch();
  void progress();

  SlotQueue slots_;
  EagerSender eager_;

  std::array<Request, kMaxSends> requests_;
  FreeIndexes<kMaxSends> free_;

  bool to_post_ = false;           ///< whether chunks may be left to post
  IndexQueue<kMaxSends> posting_;  ///< requests that have chunks to post
  std::deque<Chunk> lost_;         ///< chunks of failed lanes, to post again
  std::optional<Chunk> current_;   ///< the chunk whose pieces are being posted

  std::uint64_t messages_sent_ = 0;
  bool peer_idle_ = false;  ///< the peer has finished all receives that it has announced
};

}  // namespace mesh
