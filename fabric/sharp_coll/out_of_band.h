// The caller's collectives, by which ranks agree before they have a tree.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "fabric/sharp_coll/failure.h"
#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/sharp_coll/transfer.h"

namespace plugfest::sharp_coll {

/// The result of a step of one rank, which all ranks learn before they continue.
struct Outcome {
  int code = SHARP_COLL_SUCCESS;
  std::string text;  ///< the text of an error; a long text is cut
};

/// Out-of-band collectives over a group of ranks. With one rank they do nothing.
/// Errors of all functions: Failure with EOOB if a collective of the caller fails. Thread safety: none.
class OutOfBand {
 public:
  OutOfBand(const sharp_coll_out_of_band_colls& collectives, void* context, Place place)
      : collectives_(collectives), context_(context), place_(place) {}

  Place place() const { return place_; }

  /// Gathers a value of each rank at rank 0. Returns them there; elsewhere an empty list.
  template <typename T>
  std::vector<T> gather(const T& value) const {
    std::vector<T> all(place_.rank == 0 ? static_cast<std::size_t>(place_.size) : 0);
    gather_bytes(&value, all.data(), sizeof(T));
    if (place_.size == 1) all[0] = value;
    return all;
  }

  /// Sends a text of rank 0 to all ranks.
  void broadcast(std::string& text) const;

  /// Gives all ranks the outcome of the first rank that failed; success if none did. Its text then begins with "rank
  /// R:" on other ranks.
  Outcome agree(const Outcome& own) const;

  /// Runs a step of this rank. Errors: Failure on all ranks if the step throws on any.
  template <typename Step>
  void attempt(Step step) const {
    Outcome own;
    try {
      step();
    } catch (const Failure& failure) {
      own = {failure.code(), failure.what()};
    } catch (const std::bad_alloc&) {
      own = {SHARP_COLL_ENOMEM, "out of memory"};
    } catch (const std::exception& error) {
      own = {SHARP_COLL_ERROR, error.what()};
    }
    if (const Outcome all = agree(own); all.code != SHARP_COLL_SUCCESS)
      throw Failure(static_cast<sharp_error_no>(all.code), all.text);
  }

 private:
  void gather_bytes(const void* value, void* all, std::size_t bytes) const;
  void broadcast_bytes(void* data, std::size_t bytes) const;

  sharp_coll_out_of_band_colls collectives_;
  void* context_;
  Place place_;
};

}  // namespace plugfest::sharp_coll
