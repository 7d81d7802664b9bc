// Decides which rules run at the same time.
#pragma once

#include <condition_variable>
#include <mutex>

namespace plugfest::conformance {

/// Lets rules run at the same time, except a rule that changes the network for others. Thread safety: any thread.
class Turns {
  friend class Turn;

  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;         ///< turns that run, except those that wait to run alone
  int waiting_ = 0;         ///< turns that have run and wait to run alone
  int starting_alone_ = 0;  ///< turns that wait to start alone
  bool one_is_alone_ = false;
};

/// One rule's turn, from construction to destruction. One thread.
class Turn {
 public:
  /// Waits while a rule runs alone or waits for that. `alone`: also until no other rule has started: one that waits in
  /// its body to run alone continues first, because its ranks exist already.
  explicit Turn(Turns& turns, bool alone = false);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// Notes that the rule changes the network, which ranks may remember.
  void note_change() { changes_network_ = true; }
  bool changes_network() const { return changes_network_; }
  /// Waits until the rules that run now have ended. No other rule starts before the end of this turn.
  void be_alone();
  /// Whether be_alone() was called.
  bool became_alone() const { return became_alone_; }

 private:
  Turns& turns_;
  bool alone_ = false;
  bool became_alone_ = false;
  bool changes_network_ = false;
};

}  // namespace plugfest::conformance
