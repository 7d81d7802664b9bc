// Two NICs, what each of their queue pairs asks of the other, and a seed that decides everything.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/roce/model/direction.h"
#include "fabric/roce/model/endpoint.h"

namespace plugfest::roce::model {

class Exchange {
 public:
  /// Connects everything.
  explicit Exchange(std::uint64_t seed);

  /// Posts and polls in a drawn order until everything has come, then compares all memory. What differs is a failure of
  /// the GoogleTest test that is running; the first one ends it.
  void run();

 private:
  void poll(Endpoint& end, CompletionQueue* queue);
  void take(Endpoint& end, const ibv_wc& completion);
  bool done() const;

  Random random_;
  Setting setting_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  std::vector<Direction> from_a_;  ///< by queue pair
  std::vector<Direction> from_b_;
};

}  // namespace plugfest::roce::model
