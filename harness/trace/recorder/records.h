// Collects the records about one event, which belong together in the file.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "harness/trace/recorder/writer.h"

namespace plugfest::trace {

/// The records about one event or communicator. Not thread-safe.
class Records {
 public:
  explicit Records(const Record& first) { records_[0] = first; }
  void add(Key key, std::uint64_t value) {
    if (count_ < records_.size()) records_[count_++] = record(RecordKind::kNumber, key, 0, value);
  }
  void add(Key key, int value) { add(key, static_cast<std::uint64_t>(std::int64_t{value})); }
  /// `text` may be null. Only its first 128 bytes are recorded.
  void add(Key key, const char* text) {
    if (text == nullptr) return;
    constexpr std::size_t kMaxTextBytes = 128, kPart = 16;
    for (std::string_view left(text, ::strnlen(text, kMaxTextBytes)); !left.empty() && count_ < records_.size();
         left.remove_prefix(std::min(left.size(), kPart))) {
      std::uint64_t words[2] = {};
      std::memcpy(words, left.data(), std::min(left.size(), kPart));
      records_[count_++] = record(RecordKind::kText, key, static_cast<std::int64_t>(words[0]), words[1]);
    }
  }
  void write() const { Writer::get().append({records_.data(), count_}); }

 private:
  Record record(RecordKind kind, Key key, std::int64_t time, std::uint64_t value) const {
    return {time, records_[0].event, value, kind, static_cast<std::uint8_t>(key), 0, records_[0].communicator};
  }

  std::array<Record, Writer::kMaxAtOnce> records_;  // the first `count_` have values
  std::size_t count_ = 1;
};

}  // namespace plugfest::trace
