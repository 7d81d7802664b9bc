// Where a datagram goes.
#pragma once

#include <infiniband/verbs.h>

namespace plugfest::roce {

/// What `ibv_ah` pointers of this library point into.
struct AddressHandle : ibv_ah {
  ibv_ah_attr attributes;
};

}  // namespace plugfest::roce
