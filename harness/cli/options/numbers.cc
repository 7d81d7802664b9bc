#include "harness/cli/options/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>

namespace plugfest::cli {
namespace {

constexpr double kLargestScale = 1e6;

// Each check accepts text that is no number: CLI11's conversion then reports it.

std::string why_no_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool fits = error != std::errc::result_out_of_range && !text.starts_with('-');
  return fits ? "" : fmt::format("\"{}\": expected a whole number from 0 to 2^64 - 1", text);
}

std::string why_no_scale(const std::string& text) {
  double scale = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), scale);
  if (error == std::errc::invalid_argument) return "";
  return scale > 0 && scale <= kLargestScale
             ? ""
             : fmt::format("\"{}\": expected a number above 0, {} at most", text, static_cast<int>(kLargestScale));
}

}  // namespace

Option check_seed(Option option) { return option.check(why_no_seed); }
Option check_timeout_scale(Option option) { return option.check(why_no_scale); }

Option check_count(Option option, int most) {
  return option.check([most](const std::string& text) -> std::string {
    int count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error == std::errc::invalid_argument || (error == std::errc() && count >= 1 && count <= most)) return "";
    return fmt::format("\"{}\": expected a whole number from 1 to {}", text, most);
  });
}

}  // namespace plugfest::cli
