// The receiving side of a connection.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/mesh/transfer/comm.h"
#include "plugins/mesh/transfer/eager.h"
#include "plugins/mesh/transfer/request.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Announces receives to the sender, which writes to their buffers. Threads: see Comm.
///
/// One lane carries the announcements, so that they arrive in order.
///
/// With eager messages, see SlotQueue, a receive of one small buffer with the eager tag is not announced. An eager
/// message arrives in a bounce slot, and is copied to its buffer when the receive is posted. Only connections with a
/// single lane, on which messages arrive in order, have eager messages, and only to host memory.
class RecvComm final : public Comm {
 public:
  /// `eager_bytes`: maximum size of an eager message, at most kMaxEagerBytes; 0: none. Errors: Failure.
  RecvComm(const std::vector<LaneStart>& starts, std::uint32_t eager_bytes);

  /// The memory to which the sender may write eager messages.
  Bounce bounce() const;

  /// Implements NCCL's iflush. `*request` is null if no buffer is in GPU memory.
  Result flush(int count, void** data, const int* sizes, void** memory, void** request);

  /// Implements NCCL's irecv. `*request` is null when all requests are in use, and while announcements move to another
  /// lane.
  Result receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                 void* const* profiler_handles, void** request);

  Result test(const RequestId& id, int* done, int* sizes) override;

 private:
  enum class State : std::uint8_t { kFree, kActive };
  struct Buffer {
    std::atomic<const Registration*> memory = nullptr;  ///< valid until the buffer is full; may have been deregistered
    std::byte* data = nullptr;
    std::array<std::uint32_t, kMaxLanes> remote_keys = {};
    bool tagged = false;  ///< has the eager tag
    std::size_t posted_bytes = 0;
    std::size_t received_bytes = 0;
    std::uint32_t chunks = 0;   ///< number of chunks of its message; 0 until the first arrives
    std::uint32_t arrived = 0;  ///< number of chunks that arrived
  };
  struct Request {
    State state = State::kFree;
    std::uint16_t generation = 0;
    std::uint32_t missing = 0;  ///< one bit per buffer whose message is not complete
    bool announced = false;
    std::uint32_t group = 0;  ///< number of the announced group
    int count = 0;            ///< number of buffers
    std::array<Buffer, kMaxGroup> buffers;
  };

  void on_done(const Work& work) override;
  void on_lost(std::size_t lane, const Work& work) override;
  void on_received(const Lane& lane, const ibv_wc& completion) override;
  void on_switched() override {}
  void on_idle(std::uint32_t) override {}
  void on_eager(std::uint32_t value) override;
  bool copies() const override { return eager_.bytes() != 0; }
  void settle(std::optional<std::uint64_t>) override {}
  std::uint64_t messages_received() const override { return counters_.messages; }
  bool uses(const Registration& memory) const override;

  Result test_flush(const RequestId& id, int* done);
  bool awaits_announcement(int count, std::size_t bytes, int tag) const;
  void announce(std::size_t index, const int* tags, std::uint32_t tagged);
  void on_eager_message(const ibv_wc& completion);
  void copy_eager(EagerReceiver::Place place);
  void fill(EagerReceiver::Place place);
  void tell_copied();
  bool may_announce() const;
  void post_announcement(std::size_t lane, std::uint16_t place, std::uint32_t bytes);

  std::array<Request, kMaxReceives> requests_;
  FreeIndexes<kMaxReceives> free_;
  /// Index of the request, by the number of its group modulo 64.
  std::array<std::uint8_t, Arrival::kGroupModulus> request_of_group_ = {};

  EagerReceiver eager_;

  std::uint32_t outstanding_ = 0;  ///< number of receives that are not done
  std::uint32_t groups_ = 0;       ///< number of announced groups
  std::uint32_t in_flight_ = 0;    ///< number of announcements that are not acknowledged
};

}  // namespace mesh
