#include "fabric/roce/faults/plan.h"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace plugfest::roce {

namespace {

constexpr double kMaxDelayNs = 10e9;

[[noreturn]] void refuse(std::string_view word, std::string_view expected) {
  throw std::runtime_error("\"" + std::string(word) + "\": " + std::string(expected));
}

struct Field {
  std::string_view word;  ///< "name=value", for error messages
  std::string_view name;
  std::string_view value;
};

// Splits `value` into a number and its unit. Returns false if it does not start with a number.
template <typename Number>
bool split_number(std::string_view value, Number& number, std::string_view& unit) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  unit = value.substr(static_cast<std::size_t>(end - value.data()));
  return error == std::errc();
}

double probability(const Field& field) {
  double number = 0;
  std::string_view unit;
  const bool is_number = split_number(field.value, number, unit) && (unit.empty() || unit == "%");
  if (unit == "%") number /= 100;
  if (!is_number || !(number >= 0 && number <= 1)) refuse(field.word, "expected a probability, as in 1% or 0.01");
  return number;
}

Nanoseconds duration(const Field& field) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  double number = 0;
  std::string_view text;
  if (split_number(field.value, number, text)) {
    for (const auto& [unit, factor] : kUnits)
      if (text == unit && number >= 0 && number * factor <= kMaxDelayNs)
        return static_cast<Nanoseconds>(std::llround(number * factor));
  }
  refuse(field.word, "expected a time from 0us to 10s, as in 50us");
}

std::uint64_t whole_number(const Field& field) {
  std::uint64_t number = 0;
  std::string_view rest;
  if (!split_number(field.value, number, rest) || !rest.empty()) refuse(field.word, "expected a whole number");
  return number;
}

Direction direction(const Field& field) {
  if (field.value == "out") return Direction::kOut;
  if (field.value == "in") return Direction::kIn;
  if (field.value == "both") return Direction::kBoth;
  refuse(field.word, "expected out, in or both");
}

std::string duration_text(Nanoseconds value) {
  constexpr std::array<std::pair<const char*, Nanoseconds>, 3> kUnits = {
      {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}}};
  for (const auto& [unit, factor] : kUnits)
    if (value % factor == 0) return std::to_string(value / factor) + unit;
  return std::to_string(value) + "ns";
}

// The shortest text that parses to the same value.
std::string probability_text(double value) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() ? std::string(digits.data(), end) : "0";
}

void set_field(FaultPlan& plan, const Field& field) {
  if (field.name == "loss" || field.name == "drop") {
    plan.loss = probability(field);
  } else if (field.name == "duplicate") {
    plan.duplicate = probability(field);
  } else if (field.name == "reorder") {
    plan.reorder = probability(field);
  } else if (field.name == "corrupt") {
    plan.corrupt = probability(field);
  } else if (field.name == "delay") {
    plan.delay = duration(field);
  } else if (field.name == "jitter") {
    plan.jitter = duration(field);
  } else if (field.name == "seed") {
    plan.seed = whole_number(field);
  } else if (field.name == "direction") {
    plan.direction = direction(field);
  } else if (field.name == "device") {
    plan.device = field.value;
  } else {
    refuse(field.word,
           "unknown: expected loss=, duplicate=, reorder=, corrupt=, delay=, jitter=, seed=, direction= or "
           "device=");
  }
}

}  // namespace

FaultPlan parse_faults(std::string_view text) {
  constexpr std::string_view kBetweenWords = ", \t\r";
  FaultPlan plan;
  for (;;) {
    const std::size_t begin = text.find_first_not_of(kBetweenWords);
    if (begin == std::string_view::npos) return plan;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBetweenWords));
    text.remove_prefix(word.size());
    const std::size_t name_length = std::min(word.find('='), word.size());
    set_field(plan, {word, word.substr(0, name_length), word.substr(std::min(name_length + 1, word.size()))});
  }
}

std::string text_of(const FaultPlan& plan) {
  std::string text;
  const auto add = [&text](const char* name, const std::string& value) {
    text += (text.empty() ? "" : ",") + std::string(name) + "=" + value;
  };
  if (!plan.any()) return text;
  if (!plan.device.empty()) add("device", plan.device);
  if (plan.direction != Direction::kOut) add("direction", plan.direction == Direction::kIn ? "in" : "both");
  if (plan.loss > 0) add("loss", probability_text(plan.loss));
  if (plan.duplicate > 0) add("duplicate", probability_text(plan.duplicate));
  if (plan.reorder > 0) add("reorder", probability_text(plan.reorder));
  if (plan.corrupt > 0) add("corrupt", probability_text(plan.corrupt));
  if (plan.delay > 0) add("delay", duration_text(plan.delay));
  if (plan.jitter > 0) add("jitter", duration_text(plan.jitter));
  add("seed", std::to_string(plan.seed));
  return text;
}

}  // namespace plugfest::roce
