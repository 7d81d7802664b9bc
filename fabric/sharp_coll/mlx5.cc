// A libmlx5.so.1 with the three functions that nccl-rdma-sharp-plugins calls: no NIC of the fabric is an mlx5 device.
// The library of rdma-core cannot be loaded beside the fabric's libibverbs, because it needs symbols of one exact
// rdma-core.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#define PLUGFEST_EXPORT __attribute__((visibility("default")))

extern "C" {

/// Always false.
PLUGFEST_EXPORT bool mlx5dv_is_supported(ibv_device*) { return false; }

/// Always EOPNOTSUPP.
PLUGFEST_EXPORT int mlx5dv_get_data_direct_sysfs_path(ibv_context*, char*, std::size_t) { return EOPNOTSUPP; }

/// Always null, with errno EOPNOTSUPP.
PLUGFEST_EXPORT ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
}
