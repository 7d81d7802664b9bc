// Sizes on the command line, as nccl-tests writes them.
#pragma once

#include <cstddef>
#include <string>

namespace plugfest::cli {

/// Bytes of "8", "64K", "1M", "1G" (powers of 1024). `option`: begins the error. Errors: std::runtime_error for other
/// texts, 0 and sizes above 1 TiB.
std::size_t parse_size(const std::string& option, const std::string& text);

}  // namespace plugfest::cli
