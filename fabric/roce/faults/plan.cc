#include "fabric/roce/faults/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "fabric/roce/counters/page.h"

namespace plugfest::roce {
namespace {

constexpr double kMaxDelayNs = 10e9;
constexpr const char* kTextVariable = "PLUGFEST_ROCE_FAULTS";
constexpr const char* kFileVariable = "PLUGFEST_ROCE_FAULTS_FILE";

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
  const bool is_number = split_number(field.value, number, unit);
  // A bare 1 is refused: it may mean 1 % or 100 %.
  if (is_number && unit.empty() && number >= 0 && number < 1) return number;
  if (is_number && unit == "%" && number >= 0 && number <= 100) return number / 100;
  refuse(field.word, "expected a fraction below 1 or a percentage, as in 0.01 or 1%");
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
  if (value >= 1) return "100%";
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() ? std::string(digits.data(), end) : "0";
}

constexpr std::pair<std::string_view, double FaultPlan::*> kProbabilities[] = {{"loss", &FaultPlan::loss},
                                                                               {"drop", &FaultPlan::loss},
                                                                               {"duplicate", &FaultPlan::duplicate},
                                                                               {"reorder", &FaultPlan::reorder},
                                                                               {"corrupt", &FaultPlan::corrupt}};

void set_field(FaultPlan& plan, const Field& field) {
  for (const auto& [name, member] : kProbabilities) {
    if (field.name == name) {
      plan.*member = probability(field);
      return;
    }
  }
  if (field.name == "delay") {
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
           "unknown: expected loss=, duplicate=, reorder=, corrupt=, delay=, jitter=, seed=, direction= or device=");
  }
}

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
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

std::vector<FaultPlan> parse_fault_file(std::string_view text, std::string_view name) {
  std::vector<FaultPlan> plans;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    try {
      const FaultPlan plan = parse_faults(line.substr(0, line.find('#')));
      if (plan.any()) plans.push_back(plan);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(std::string(name) + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  return plans;
}

std::vector<FaultPlan> read_fault_file(const std::filesystem::path& file) {
  return parse_fault_file(read_file(file), file.string());
}

void write_fault_file(const std::filesystem::path& file, std::span<const FaultPlan> plans) {
  std::string text;
  for (const FaultPlan& plan : plans)
    if (plan.any()) text += text_of(plan) + '\n';
  if (!replace_file(file, text)) throw_file_error(file, "write");
}

void set_device_faults(const std::filesystem::path& device_folder, std::span<const FaultPlan> plans) {
  write_fault_file(device_folder / "faults", plans);
  announce_change(device_folder);
}

bool WatchedFaultFile::reload() {
  if (!version_.changed(file_)) return false;
  try {
    std::vector<FaultPlan> plans;
    if (version_.exists()) plans = read_fault_file(file_);
    if (plans == plans_) return false;
    plans_ = std::move(plans);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s; previous faults stay active\n", error.what());
    return false;
  }
}

FaultSource::FaultSource(const std::optional<FaultPlan>& given, const std::filesystem::path& device_folder) {
  if (given) {
    fixed_ = {*given};
  } else {
    if (const char* const text = variable(kTextVariable)) {
      try {
        fixed_ = {parse_faults(text)};
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(std::string(kTextVariable) + ": " + error.what());
      }
    }
    if (const char* const file = variable(kFileVariable)) {
      read_fault_file(file);  // throws; later errors are only reported
      files_.emplace_back(file);
    }
    if (!device_folder.empty()) {
      files_.emplace_back(device_folder / "link");
      files_.emplace_back(device_folder / "faults");
    }
  }
  for (WatchedFaultFile& file : files_) file.reload();
  merge();
}

void FaultSource::merge() {
  plans_ = fixed_;
  for (const WatchedFaultFile& file : files_) plans_.insert(plans_.end(), file.plans().begin(), file.plans().end());
}

bool FaultSource::reload() {
  bool changed = false;
  for (WatchedFaultFile& file : files_) changed |= file.reload();
  if (changed) merge();
  return changed;
}

}  // namespace plugfest::roce
