// The functions of NCCL's device API that wait, and what they wait for.
#pragma once

#include <string_view>

namespace plugfest::kernels::front {

/// The arguments of the plugfest::kernels::Expects (plugfest_kernel.h) that is to stand first in the body of `function`
/// of the header `file`, a path; empty if the function does not wait. They use the names of NCCL 2.28.9.
std::string_view wait_of(std::string_view file, std::string_view function);

}  // namespace plugfest::kernels::front
