// The sending end of a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/mesh/transfer/comm.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Writes messages into the buffers that the receiver announces.
///
/// The receiver SENDs each of its receives as a `Group` of slots. A send that matches a slot is an RDMA WRITE into that
/// buffer; its last piece carries an immediate value, which tells the receiver which slot has been filled, and a done
/// send is one whose last piece has been acknowledged.
class SendComm final : public Comm {
 public:
  /// Errors: Failure.
  SendComm(std::shared_ptr<const Device> device, const Address& local);

  /// The receiver's end is known. Errors: Failure.
  void start(const Endpoint& remote, const Transport& transport);

  /// As NCCL's isend. `*request` is null when no announced buffer takes the message yet, or all requests are in use.
  /// A message larger than its buffer is InvalidUsage, and nothing is written.
  Result send(const void* data, std::size_t bytes, int tag, const Registration* memory, void** request);

  Result test(const RequestId& id, int* done, int* sizes) override;

 private:
  enum class State : std::uint8_t { kFree, kActive, kDone };
  struct Request {
    State state = State::kFree;
    std::uint16_t generation = 0;
    std::uint32_t local_key = 0;
    std::uint32_t pieces = 0;  ///< posted whole, before the last
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t sequence = 0;  ///< counts the messages of the comm
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
  std::array<std::uint8_t, kMaxSends> free_;  ///< stack of indexes
  std::size_t free_count_ = kMaxSends;

  // Requests with pieces still to be posted, oldest first.
  std::array<std::uint8_t, kMaxSends> posting_;
  std::size_t posting_first_ = 0;
  std::size_t posting_end_ = 0;

  std::uint64_t messages_sent_ = 0;
  std::uint32_t in_flight_ = 0;  ///< work requests
};

}  // namespace mesh
