// NCCL's kernels on the CPU: the numbers of device functions, the moves of algorithms, and launches.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/nccl/device/pipe.h"
#include "harness/nccl/device/types.h"

namespace plugfest::nccl::device {

enum class Collective { kSendRecv, kAllGather, kBroadcast, kAllReduce, kReduce, kReduceScatter };
/// The numbers are NCCL's.
enum class Algorithm { kTree, kRing, kCollNetDirect, kCollNetChain, kNvls, kNvlsTree, kPat };

struct Function {
  Collective collective = Collective::kSendRecv;
  Operator op = Operator::kSum;
  Type type = Type::kUint8;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;

  /// "AllReduce Sum f32 Ring LL", "AllGather PAT Simple".
  std::string text() const;
};

/// The functions by number. `rows`: NCCL's ncclDevFuncRowToId, the numbers of all combinations in NCCL's order; -1: the
/// combination does not exist. Combinations that share a number are computed alike; the table contains the last of
/// them.
class FunctionTable {
 public:
  /// Number of rows of NCCL 2.22 to 2.28.
  static constexpr std::size_t kRows = 1996;

  /// `rows` has kRows entries.
  explicit FunctionTable(std::span<const int> rows);
  /// Nothing for a number without function.
  std::optional<Function> find(unsigned number) const;

 private:
  std::vector<std::optional<Function>> by_number_;
};

// The algorithms: the moves of a rank for its part of a collective.

/// The ring of a channel.
struct Ring {
  int index = 0;               ///< this rank's position
  int previous = 0, next = 0;  ///< ranks
  const int* ranks = nullptr;  ///< all ranks, from this one on
};

/// The tree of a channel, from this rank.
struct Tree {
  int up = -1;  ///< -1: this rank is the root
  std::vector<int> down;
};

/// The work of one channel of one rank.
struct Part {
  Function function;
  int rank = 0, ranks = 0;
  /// CollNet: this channel and their number, which take chunks in turn.
  std::size_t channel = 0, channels = 1;
  int root = 0;
  std::size_t count = 0;   ///< AllGather: elements of a rank's input; ReduceScatter: of its output
  std::size_t offset = 0;  ///< first element of this channel's part
  std::size_t size = 0;    ///< elements of this channel's part; CollNet: of all channels
  std::size_t chunk = 0;   ///< elements of a chunk
  bool in_place = false;   ///< the rank's own part of the output is its input
};

/// One pipe: the ranks that it receives from and sends to, and its moves.
struct Lane {
  std::vector<int> receive;
  std::vector<int> send;
  std::vector<Move> moves;
  int connection = 0;  ///< which one between the ranks
};

/// The lanes of a part; they run at the same time. `tree`: the tree, or for CollNet the chain of this host, whose head
/// is below the switches, the peer after the last rank.
std::vector<Lane> plan(const Part& part, const Ring& ring, const Tree& tree);

/// Slices of a chunk, and steps of a slice, with the Simple protocol.
Cut cut_of(const Function& function);

/// Whether plan() knows the function.
bool supports(const Function& function);

// Runs one launch of an NCCL kernel.

/// Runs the work that `arguments`, a kernel's parameter, describes, and returns when it is done or NCCL's abort flag is
/// set. Work that the emulation does not support ends the process: see refuse(). Thread safety: kernels of different
/// communicators may run at the same time.
void run_kernel(const FunctionTable& functions, std::span<const std::byte> arguments);

}  // namespace plugfest::nccl::device
