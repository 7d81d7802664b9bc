// A rank of a program that uses libsharp_coll.
#pragma once

#include <string>
#include <vector>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/sharp_coll/star.h"

namespace plugfest::sharp_coll {

/// A function of libsharp_coll has returned an error.
struct SharpError {
  const char* function;
  int code;
};

/// Errors: SharpError if `code`, the result of `function`, is negative.
inline void check(int code, const char* function) {
  if (code < 0) throw SharpError{function, code};
}

/// The library, and communicators of all ranks of a star. Its users link libsharp_coll. Thread safety: none.
class StarRank {
 public:
  /// `spec`: the constructor sets the rank, the number of ranks and the out-of-band collectives. Errors: as Star,
  /// and SharpError.
  StarRank(int rank, int ranks, const std::string& path, sharp_coll_init_spec spec) : star_(rank, ranks, path) {
    spec.world_rank = rank;
    spec.world_size = ranks;
    spec.oob_colls = Star::collectives();
    spec.oob_ctx = &star_;
    check(sharp_coll_init(&spec, &context_), "sharp_coll_init");
  }
  /// Ends the communicators and the library.
  ~StarRank() {
    for (sharp_coll_comm* const comm : comms_) sharp_coll_comm_destroy(comm);
    if (context_ != nullptr) sharp_coll_finalize(context_);
  }
  StarRank(const StarRank&) = delete;
  StarRank& operator=(const StarRank&) = delete;

  int rank() const { return star_.rank(); }
  int ranks() const { return star_.ranks(); }
  sharp_coll_context* context() const { return context_; }
  const std::vector<sharp_coll_comm*>& comms() const { return comms_; }

  /// Adds a communicator. All ranks call it. Errors: SharpError.
  sharp_coll_comm* connect() {
    sharp_coll_comm_init_spec spec = {};
    spec.rank = rank();
    spec.size = ranks();
    spec.oob_ctx = &star_;
    sharp_coll_comm* comm = nullptr;
    check(sharp_coll_comm_init(context_, &spec, &comm), "sharp_coll_comm_init");
    comms_.push_back(comm);
    return comm;
  }

 private:
  Star star_;
  sharp_coll_context* context_ = nullptr;
  std::vector<sharp_coll_comm*> comms_;
};

}  // namespace plugfest::sharp_coll
