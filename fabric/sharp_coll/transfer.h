// What one collective moves: every collective is a reduction of one vector over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"

namespace plugfest::sharp_coll {

/// Memory that holds the bytes [begin, end) of the vector. `data` points to the byte `begin`.
template <typename Byte>
struct Part {
  Byte* data = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;

  bool empty() const { return begin >= end; }
};

/// A reduction of a vector of `bytes` bytes. The own contribution is `source`, and zeros outside it. The bytes of the
/// result in `destination` are stored.
///
/// allreduce: both parts are the whole vector. reduce: only the root has a destination. reduce-scatter: the destination
/// is the own block. allgather and broadcast are BOR of bytes: a block has one rank's data and the other ranks' zeros.
/// A barrier is one element that nobody stores.
struct Transfer {
  sharp_datatype dtype = SHARP_DTYPE_UINT8;
  sharp_reduce_op op = SHARP_OP_BOR;
  std::size_t element_bytes = 1;
  std::size_t bytes = 0;
  Part<const std::byte> source;
  Part<std::byte> destination;

  /// Whether storing a result can overwrite bytes of the source that other fragments still need: the parts share memory
  /// and do not hold the same bytes of the vector there.
  bool overwrites_source() const;
};

/// The place of the caller among the ranks of a communicator.
struct Place {
  int rank = 0;
  int size = 1;
};

// The functions below read only the members of a specification that their collective uses, because callers leave the
// others uninitialized. Errors: Failure with EINVAL or ENOT_SUPP that names the collective and the argument.

Transfer allreduce_of(const sharp_coll_reduce_spec& spec);
Transfer reduce_of(const sharp_coll_reduce_spec& spec, Place place);

/// Let V be the vector of `size` blocks of rbuf.length bytes. The call reduces the data window of `length` elements of
/// V that begins at byte `offset`; sbuf holds the data window. rbuf receives the part of the own block inside the data
/// window.
Transfer reduce_scatter_of(const sharp_coll_reduce_spec& spec, Place place);

/// Let V be the concatenation of the blocks of all ranks, each of sbuf.length bytes. The call moves the data window of
/// `size` elements of V that begins at byte `offset` to rbuf. sbuf points to the part of the own block inside the
/// data window; what follows this part is not read.
Transfer allgather_of(const sharp_coll_gather_spec& spec, Place place);

Transfer bcast_of(const sharp_coll_bcast_spec& spec, Place place);
Transfer barrier();

}  // namespace plugfest::sharp_coll
