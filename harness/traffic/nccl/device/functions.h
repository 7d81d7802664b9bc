// NCCL's device functions: which collective, operator, type, algorithm and protocol a number stands for.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/traffic/nccl/device/connection.h"
#include "harness/traffic/nccl/device/reduce.h"

namespace plugfest::nccl::device {

enum class Collective { kSendRecv, kAllGather, kBroadcast, kAllReduce, kReduce, kReduceScatter };
/// As NCCL numbers them.
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
/// combination does not exist. Combinations that share a number are computed alike; the table has the last of them.
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

}  // namespace plugfest::nccl::device
