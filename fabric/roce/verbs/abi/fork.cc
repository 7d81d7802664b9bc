// Fork support: not needed, because threads of the process access registered memory. Copy-on-write after fork() works
// as for any other store.
#include <infiniband/verbs.h>

#include <cstddef>

extern "C" {

int ibv_fork_init() { return 0; }

ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

int ibv_dontfork_range(void* /*base*/, size_t /*size*/) { return 0; }

int ibv_dofork_range(void* /*base*/, size_t /*size*/) { return 0; }

}  // extern "C"
