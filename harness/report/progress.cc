#include "harness/report/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/system/text.h"

namespace plugfest::report {

void Progress::end(const std::string& id, bool is_bad) {
  ended_.push_back(watch_.seconds());
  std::erase(running_, id);
  if (is_bad) ++bad_;
}

std::string Progress::line() const {
  constexpr std::size_t kWidth = 20;
  const std::size_t filled = kWidth * ended_.size() / total_;
  std::string line = fmt::format("[{}{}] {}/{}{}{}", std::string(filled, '='), std::string(kWidth - filled, ' '),
                                 ended_.size(), total_, failed(), time_left());
  for (const std::string& id : running_) line += (&id == &running_.front() ? ": " : " ") + id;
  return line;
}

std::string Progress::counts() const {
  return fmt::format("{} of {}{}", ended_.size(), counted(total_, "rule"), failed());
}

std::string Progress::time_left() const {
  constexpr std::size_t kMin = 5;
  if (ended_.size() < kMin) return "";
  // The later half shows the present speed: causes that cost time are cut short after some rules.
  const std::size_t middle = ended_.size() / 2;
  const double per_rule = (watch_.seconds() - ended_[middle - 1]) / static_cast<double>(ended_.size() - middle);
  const double left = per_rule * static_cast<double>(total_ - ended_.size());
  if (left < 100) return fmt::format(", about {:.0f} s left", std::max(left, 1.0));
  return fmt::format(", about {:.0f} min left", left / 60);
}

std::string Progress::failed() const { return bad_ == 0 ? "" : fmt::format(", {} failed", bad_); }

}  // namespace plugfest::report
