// The receiving side of a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "plugins/mesh/transfer/comm.h"
#include "plugins/mesh/transfer/free_indexes.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// Announces receives to the sender, which writes to their buffers. Thread-safe.
class RecvComm final : public Comm {
 public:
  /// Errors: Failure.
  RecvComm(std::shared_ptr<const Device> device, const Address& local);

  /// Connects to the sender. Errors: Failure.
  void start(const Endpoint& remote, const Transport& transport);

  /// As NCCL's irecv. `*request` is null when all requests are in use.
  Result receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory, void** request);

  Result test(const RequestId& id, int* done, int* sizes) override;

 private:
  enum class State : std::uint8_t { kFree, kActive };
  struct Request {
    State state = State::kFree;
    std::uint16_t generation = 0;
    std::uint32_t missing = 0;  ///< one bit per buffer that has received no message yet
    std::uint32_t group = 0;    ///< number of the announced group
    int count = 0;              ///< of buffers
    std::array<std::size_t, kMaxGroup> posted_bytes = {};
    std::array<std::size_t, kMaxGroup> received_bytes = {};
  };

  int poll() override;
  void settle(std::optional<std::uint64_t>) override {}
  std::uint64_t messages_received() const override { return messages_received_; }

  void post_arrivals(std::uint32_t count);
  bool announce(const Group& group);
  void take_arrival(const ibv_wc& completion);
  void progress();

  std::size_t piece_bytes_ = 0;

  std::array<Request, kMaxReceives> requests_;
  FreeIndexes<kMaxReceives> free_;
  /// Index of the request, by the number of its group modulo 64.
  std::array<std::uint8_t, Arrival::kGroupModulus> request_of_group_ = {};

  std::uint32_t groups_ = 0;     ///< number of announced groups
  std::uint32_t in_flight_ = 0;  ///< number of announcements that are not acknowledged
  std::uint64_t messages_received_ = 0;
};

}  // namespace mesh
