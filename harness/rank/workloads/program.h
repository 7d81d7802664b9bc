// One endpoint of a connection in a program: its steps, its groups in flight and their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "harness/rank/attempt.h"

namespace plugfest::rank {

/// Ends a program: the plugin's deviation, and the step of the schedule in which it appeared.
struct Deviates {
  std::uint32_t step = 0;
  std::string what;
};

/// Connects, transfers and closes. One thread, a thread of the rank.
class CommEnd {
 public:
  /// `program` must outlive the object. `answer`: counts are added to it.
  CommEnd(const Program& program, const ProgramComm& comm, ProgramAnswer& answer);
  CommEnd(const CommEnd&) = delete;
  CommEnd& operator=(const CommEnd&) = delete;

  /// Adds a step, which must outlive the object.
  void issue(const ProgramStep& step) { steps_.push_back(&step); }
  /// Makes the plugin calls that are possible now, at most one for each operation. Returns whether one had an effect.
  /// Errors: Deviates.
  bool turn();
  /// Whether the plugin has accepted all operations that were issued.
  bool all_accepted() const { return steps_.empty() && unaccepted_ == 0; }
  /// Whether all operations that were issued are complete.
  bool idle() const { return steps_.empty() && groups_.empty(); }
  /// The operation that has waited longest, for a program that makes no progress. Requires !idle().
  Deviates oldest() const;

 private:
  struct Message {
    const ProgramMessage* plan = nullptr;
    std::byte* buffer = nullptr;
    std::uint64_t request = 0;
    bool accepted = false;
    bool done = false;
  };
  /// One repetition of a transfer. A receiver has one request for all messages, which the first of them holds.
  struct Group {
    const ProgramStep* step = nullptr;
    std::uint32_t repetition = 0;
    std::size_t slot = 0;
    std::vector<Message> messages;
    std::size_t unaccepted = 0;
    std::size_t not_done = 0;
  };

  bool connect(const ProgramStep& step);
  void close(const ProgramStep& step);
  void register_memory(const ProgramStep& step);
  void deregister_memory(const ProgramStep& step);
  std::uint64_t memory_size() const { return comm_.group_bytes * comm_.window; }
  void open_group();
  bool post_sends();
  bool post_receives();
  bool accept(Group& group, Message& message, const PointerAnswer& answer, const char* function);
  bool test_sends();
  bool test_receives();
  bool test(Group& group, Message& message);
  void check_send(const Group& group, const Message& message, const TestAnswer& answer) const;
  void check_receive(const Group& group, const TestAnswer& answer) const;
  std::string difference(const Group& group, const Message& message) const;
  std::string name(const Group& group, const Message& message) const;

  const Program& program_;
  const ProgramComm& comm_;
  ProgramAnswer& answer_;
  std::deque<const ProgramStep*> steps_;
  /// Repetitions of the transfer at the front of `steps_`.
  std::uint32_t repetition_ = 0;

  std::unique_ptr<Attempt> attempt_;
  std::uint64_t value_ = 0;
  /// Stays mapped until the rank ends unless the comm is closed, since operations may be in flight.
  Mapping memory_;
  std::uint64_t mhandle_ = 0;
  std::vector<std::size_t> free_slots_;
  /// The value of *request before the next call, by slot, as in NCCL.
  std::vector<std::uint64_t> stale_;

  std::deque<Group> groups_;
  std::size_t unaccepted_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace plugfest::rank
