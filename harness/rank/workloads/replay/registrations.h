// Registers memory while a replay runs.
#pragma once

#include <cstdint>

namespace plugfest::rank {

/// Ends ReplayRegistrations of the same run when it goes out of scope.
class ReplayEndNotice {
 public:
  explicit ReplayEndNotice(std::uint64_t run) : run_(run) {}
  ~ReplayEndNotice();
  ReplayEndNotice(const ReplayEndNotice&) = delete;
  ReplayEndNotice& operator=(const ReplayEndNotice&) = delete;

 private:
  std::uint64_t run_;
};

}  // namespace plugfest::rank
