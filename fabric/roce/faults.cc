// Reads fault plans and carries them out.
#include "fabric/roce/faults.h"

#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>

namespace plugfest::roce {

namespace {

[[noreturn]] void refuse(std::string_view word) {
  throw std::runtime_error("PLUGFEST_ROCE_FAULTS: \"" + std::string(word) +
                           "\": expected drop=, duplicate=, reorder= or corrupt= with a probability as in 1% or 0.01, "
                           "or seed= with a number");
}

double parse_probability(std::string_view word, std::string_view value) {
  const bool percent = value.ends_with('%');
  if (percent) value.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) refuse(word);
  if (percent) number /= 100;
  if (number < 0 || number > 1) refuse(word);
  return number;
}

}  // namespace

FaultPlan parse_faults(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : text.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) refuse(word);
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (name == "drop") {
      plan.drop = parse_probability(word, value);
    } else if (name == "duplicate") {
      plan.duplicate = parse_probability(word, value);
    } else if (name == "reorder") {
      plan.reorder = parse_probability(word, value);
    } else if (name == "corrupt") {
      plan.corrupt = parse_probability(word, value);
    } else if (name == "seed") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), plan.seed);
      if (error != std::errc() || end != value.data() + value.size()) refuse(word);
    } else {
      refuse(word);
    }
  }
  return plan;
}

unsigned Faults::pass(std::vector<std::byte> packet, const std::function<void(const std::vector<std::byte>&)>& send) {
  unsigned faults = 0;
  std::vector<std::vector<std::byte>> due;
  for (std::size_t i = 0; i < held_.size();) {
    if (--held_[i].until_later_packets > 0) {
      ++i;
      continue;
    }
    due.push_back(std::move(held_[i].packet));
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // Each decision takes its random numbers whether or not it is needed, so that changing one probability leaves the
  // other faults where they were.
  const bool drop = chance(plan_.drop);
  const bool corrupt = chance(plan_.corrupt);
  const bool duplicate = chance(plan_.duplicate);
  const bool reorder = chance(plan_.reorder);
  const std::uint64_t choice = random_();
  if (drop) {
    ++faults;
  } else {
    if (corrupt) {
      const std::size_t bit = choice % (packet.size() * 8);
      packet[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      ++faults;
    }
    if (duplicate) {
      send(packet);
      ++faults;
    }
    if (reorder) {
      held_.push_back({std::move(packet), 1 + static_cast<unsigned>(choice % 4)});
      ++faults;
    } else {
      send(packet);
    }
  }
  for (const auto& earlier : due) send(earlier);
  return faults;
}

}  // namespace plugfest::roce
