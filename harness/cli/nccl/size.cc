#include "harness/cli/nccl/size.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

namespace plugfest::cli {

std::size_t parse_size(const std::string& option, const std::string& text) {
  constexpr std::size_t kMost = std::size_t{1} << 40;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const int shift = unit.empty() ? 0 : unit == "K" || unit == "k" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (error != std::errc() || shift < 0 || number == 0 || number > kMost >> shift)
    throw std::runtime_error(fmt::format("{} \"{}\": expected a size such as 8, 64K or 1M", option, text));
  return number << shift;
}

}  // namespace plugfest::cli
