// One direction of a connection between a kernel and the proxy of a network plugin, or a kernel of the same host.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/nccl/device/types.h"
#include "harness/traffic/moves.h"

namespace plugfest::nccl::device {

/// The numbers are NCCL's.
enum class Protocol { kLowLatency = 0, kLowLatency128 = 1, kSimple = 2 };

/// Number of steps, buffers of equal size, in the fifo of a connection.
inline constexpr std::uint64_t kSteps = 8;

/// Entry of the fifo of sizes, by which a kernel tells the proxy the size of a step, and the proxy the kernel where the
/// step's buffer is. Source: NCCL, ncclConnFifo.
struct StepInfo {
  /// `mode`: the buffer of the step is at `offset`, not at its place in the ring of buffers.
  static constexpr int kOffset = 1;
  int mode;
  int offset;
  ssize_t size;
  void* pointer;
};

/// 16 bytes of the LL protocol: each 8 bytes are written at once and contain 4 bytes of data and their flag.
struct Line {
  std::uint64_t halves[2];
};

/// The connection as a kernel sees it. All pointers belong to NCCL.
struct Connection {
  std::byte* simple_buffer = nullptr;
  Line* line_buffer = nullptr;
  std::uint64_t* tail = nullptr;        ///< number of steps that the sender has filled
  std::uint64_t* head = nullptr;        ///< number of steps that the receiver has emptied
  StepInfo* steps = nullptr;            ///< kSteps entries; null between kernels
  std::size_t step_bytes = 0;           ///< distance of the steps in `simple_buffer`
  std::uint64_t* saved_step = nullptr;  ///< stores the step between kernels
};

inline std::uint64_t load(const std::uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void store(std::uint64_t* word, std::uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

// Moves the data of one work item through connections. NCCL's kernels call this primitives.

using traffic::Move;

/// How a chunk is cut.
struct Cut {
  Protocol protocol = Protocol::kSimple;
  /// Simple: slices of a chunk, and steps of a slice.
  unsigned slices = 1;
  unsigned steps = 1;
  /// Simple: bytes of a step. LL: bytes of a step including flags.
  std::size_t step_bytes = 0;
};

/// Runs moves in order, as far as possible without waiting.
class Pipe {
 public:
  /// `input`, `output`: the rank's buffers; may be null if no move uses them.
  Pipe(const Cut& cut, const Reduction& reduction, std::vector<Connection> receive, std::vector<Connection> send,
       const std::byte* input, std::byte* output, std::vector<Move> moves);

  /// Does the work that is possible now; false if there was none.
  bool advance();
  bool done() const { return next_ == moves_.size(); }

 private:
  struct Peer {
    Connection connection;
    std::uint64_t step = 0;
  };

  static std::vector<Peer> open(const std::vector<Connection>& connections, unsigned round_up_to);
  bool advance_simple(const Move& move);
  bool advance_lines(const Move& move);
  /// Whether all receiving peers have filled, and all sending peers can take, the next `steps` steps.
  bool ready(const Move& move, unsigned steps, bool wait_for_data);
  std::byte* simple_buffer(Peer& peer) const;
  void finish_move();
  void save_steps();

  const Cut cut_;
  const Reduction reduction_;
  const std::size_t element_;
  std::vector<Peer> receive_;
  std::vector<Peer> send_;
  const std::byte* const input_;
  std::byte* const output_;
  const std::vector<Move> moves_;
  std::size_t next_ = 0;

  // The move in progress.
  unsigned slice_ = 0;
  std::size_t done_ = 0;  ///< elements
  std::size_t lines_done_ = 0;
  bool slot_taken_ = false;
};

}  // namespace plugfest::nccl::device
