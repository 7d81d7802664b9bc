// Fork support: none is needed. The NIC copies with the process's own threads, so a page that became shared by a fork
// is copied for the parent by the first write to it, as for any other write.
#include <infiniband/verbs.h>

#include <cstddef>

extern "C" {

int ibv_fork_init() { return 0; }

ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

int ibv_dontfork_range(void* /*base*/, size_t /*size*/) { return 0; }

int ibv_dofork_range(void* /*base*/, size_t /*size*/) { return 0; }

}  // extern "C"
