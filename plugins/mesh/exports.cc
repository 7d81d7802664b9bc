// The symbols that NCCL looks for: one function table for each version of the net interface.
#include "plugins/mesh/exports.h"

extern "C" {
PLUGFEST_NET_VERSIONS(MESH_EXPORT_NET)
}  // extern "C"
