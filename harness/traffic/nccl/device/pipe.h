// Moves the data of one work item through connections: what NCCL's kernels call primitives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/traffic/nccl/device/connection.h"
#include "harness/traffic/nccl/device/reduce.h"

namespace plugfest::nccl::device {

/// One chunk: receives it from all peers of the pipe's receiving side, reduces it, and sends it to all peers of the
/// sending side.
struct Move {
  bool receive = false;
  bool send = false;
  bool read_input = false;    ///< the rank's own data takes part: from the input …
  bool read_output = false;   ///< … or from the output, where an earlier move has put it
  bool write_output = false;  ///< the result also goes to the output
  bool finish = false;        ///< the result is final
  std::size_t from = 0;       ///< first element of the rank's own data
  std::size_t to = 0;         ///< first element in the output
  std::size_t count = 0;      ///< elements; an empty chunk also takes its steps
};

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
  /// `input`, `output`: of the rank; may be null if no move uses them.
  Pipe(const Cut& cut, const Reduction& reduction, std::vector<Connection> receive, std::vector<Connection> send,
       const std::byte* input, std::byte* output, std::vector<Move> moves);

  /// Does what can be done now; false if nothing could.
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
