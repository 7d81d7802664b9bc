// Values that mutations keep for requests, comms and registrations.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace plugfest::mutants {

/// A value for each pointer. Thread safety: any thread.
template <typename Value>
class PointerMap {
 public:
  void put(const void* key, Value value) {
    const std::lock_guard lock(mutex_);
    values_.insert_or_assign(key, std::move(value));
  }
  std::optional<Value> find(const void* key) const {
    const std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }
  void erase(const void* key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  template <typename Predicate>
  bool any(Predicate predicate) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(values_.begin(), values_.end(), [&](const auto& entry) { return predicate(entry.second); });
  }
  template <typename Change>
  auto change(const void* key, Change change) {
    const std::lock_guard lock(mutex_);
    return change(values_[key]);
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Value> values_;
};

}  // namespace plugfest::mutants
