// Two NICs, what each of their queue pairs asks of the other, and a seed that decides everything.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/roce/model/direction.h"
#include "fabric/roce/model/endpoint.h"
#include "fabric/roce/model/unreliable_direction.h"

namespace plugfest::roce::model {

class Exchange {
 public:
  /// Connects everything.
  explicit Exchange(std::uint64_t seed);

  /// Posts and polls in a drawn order until everything has come, then compares all memory. What differs is a failure of
  /// the GoogleTest test that is running; the first one ends it.
  void run();

 private:
  // One of the two ends, and what goes to the other.
  struct End {
    FaultPlan faults;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<std::unique_ptr<Direction>> directions;       ///< by queue pair
    std::vector<UnreliableDirection*> unreliable_directions;  ///< the same, where they are that
  };

  void connect_pair(unsigned index);
  std::unique_ptr<Direction> make_direction(End& from, End& to, unsigned index);
  void exchange_everything();
  void end_unreliable();
  bool everything_is_counted(const End& from, const End& to);
  void poll(End& end, CompletionQueue* queue);
  void take(End& end, const ibv_wc& completion);
  bool done() const;

  Random random_;
  Setting setting_;
  End a_;
  End b_;
};

}  // namespace plugfest::roce::model
