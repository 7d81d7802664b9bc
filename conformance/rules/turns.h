// Rules run beside each other, except one that changes the network for others too.
#pragma once

#include <condition_variable>
#include <mutex>

namespace plugfest::conformance {

/// The rules that run now. Thread safety: any thread.
class Turns {
 public:
  /// One rule's turn, from construction to destruction. One thread.
  class Turn {
   public:
    /// Waits while a rule runs alone or waits to.
    explicit Turn(Turns& turns) : turns_(turns) {
      std::unique_lock lock(turns_.mutex_);
      turns_.changed_.wait(lock, [&] { return !turns_.one_is_alone_ && turns_.waiting_ == 0; });
      ++turns_.running_;
    }
    ~Turn() {
      const std::lock_guard lock(turns_.mutex_);
      --turns_.running_;
      if (alone_) turns_.one_is_alone_ = false;
      turns_.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// Notes that the rule changes the network, which ranks may remember.
    void note_change() { changes_network_ = true; }
    bool changes_network() const { return changes_network_; }
    /// Waits until the rules that run now have ended. No other starts before the end of this turn.
    void be_alone() {
      if (alone_) return;
      std::unique_lock lock(turns_.mutex_);
      ++turns_.waiting_;
      --turns_.running_;
      turns_.changed_.notify_all();
      turns_.changed_.wait(lock, [&] { return turns_.running_ == 0; });
      ++turns_.running_;
      --turns_.waiting_;
      alone_ = turns_.one_is_alone_ = true;
    }

   private:
    Turns& turns_;
    bool alone_ = false;
    bool changes_network_ = false;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;  ///< without those that wait to be alone
  int waiting_ = 0;  ///< to be alone
  bool one_is_alone_ = false;
};

}  // namespace plugfest::conformance
