// The sending side of a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/mesh/transfer/comm.h"
#include "plugins/mesh/transfer/free_indexes.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Writes messages to the buffers that the receiver announces. Thread-safe.
///
/// The receiver announces each receive with a SEND of a `Group` of slots. A message that matches a slot is sent as RDMA
/// WRITEs to the slot's buffer, one per piece. The last piece carries an immediate value that tells the receiver which
/// slot is complete. A send is done when its last piece is acknowledged.
class SendComm final : public Comm {
 public:
  /// Errors: Failure.
  SendComm(std::shared_ptr<const Device> device, const Address& local);

  /// Connects to the receiver. Errors: Failure.
  void start(const Endpoint& remote, const Transport& transport);

  /// As NCCL's isend. `*request` stays null when no announced buffer matches yet, or all requests are in use. For a
  /// message larger than its buffer it returns InvalidUsage and writes nothing.
  Result send(const void* data, std::size_t bytes, int tag, const Registration* memory, void** request);

  Result test(const RequestId& id, int* done, int* sizes) override;

 private:
  enum class State : std::uint8_t { kFree, kActive, kDone };
  struct Request {
    State state = State::kFree;
    std::uint16_t generation = 0;
    std::uint32_t local_key = 0;
    std::uint32_t pieces = 0;  ///< number of posted pieces
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t sequence = 0;  ///< number of messages of the comm before this one
    Match match;
  };

  int poll() override;
  void settle(std::optional<std::uint64_t> messages_received) override;
  std::uint64_t messages_received() const override { return 0; }

  void post_buffer(std::size_t index);
  void take_group(const ibv_wc& completion);
  void post_pieces();
  bool post_piece(Request& request, std::size_t index);
  void progress();

  SlotQueue slots_;
  std::size_t piece_bytes_ = 0;

  std::array<Request, kMaxSends> requests_;
  FreeIndexes<kMaxSends> free_;

  // Ring of the requests that have pieces to post, oldest first.
  std::array<std::uint8_t, kMaxSends> posting_;
  std::size_t posting_first_ = 0;
  std::size_t posting_end_ = 0;

  std::uint64_t messages_sent_ = 0;
  std::uint32_t in_flight_ = 0;  ///< number of posted work requests
};

}  // namespace mesh
