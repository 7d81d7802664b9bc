// Cuts a stream of bytes into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace plugfest::nccl {

class LineSplitter {
 public:
  /// Longer lines are cut.
  static constexpr std::size_t kLongest = std::size_t{64} << 10;

  /// `line` gets each line without its line break.
  explicit LineSplitter(std::function<void(std::string_view)> line) : line_(std::move(line)) {}

  void add(std::string_view bytes);
  /// Ends a last line without line break.
  void finish();

 private:
  std::function<void(std::string_view)> line_;
  std::string part_;
};

}  // namespace plugfest::nccl
