#include "harness/traffic/nccl/memory/view.h"

namespace plugfest::nccl::cuda {

DeviceViews device_views;

}  // namespace plugfest::nccl::cuda
