// A random exchange of requests between two NICs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/roce/model/direction.h"
#include "fabric/roce/model/endpoint.h"
#include "fabric/roce/model/transports.h"

namespace plugfest::roce::model {

/// The seed determines settings, faults and requests.
class Exchange {
 public:
  /// Creates both sides and connects their queue pairs.
  explicit Exchange(std::uint64_t seed);

  /// Posts and polls in random order until all requests are complete, then compares all memory. Reports differences as
  /// failures of the current GoogleTest test, and stops after the first one.
  void run();

 private:
  // One side, and its requests to the other side.
  struct Side {
    FaultPlan faults;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<std::unique_ptr<Direction>> directions;       ///< one for each queue pair
    std::vector<UnreliableDirection*> unreliable_directions;  ///< `directions`, for UC and UD
  };

  void connect_pair(unsigned index);
  std::unique_ptr<Direction> make_direction(Side& from, Side& to, unsigned index);
  void exchange_all();
  void finish_unreliable();
  bool all_messages_counted(const Side& from, const Side& to);
  void poll(Side& side, CompletionQueue* queue);
  void dispatch(Side& side, const ibv_wc& completion);
  bool done() const;

  Random random_;
  Setting setting_;
  Side a_;
  Side b_;
};

}  // namespace plugfest::roce::model
