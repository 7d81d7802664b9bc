// One endpoint of a stream of messages: keeps a number of operations in flight and checks what completes.
#include <fmt/format.h>

#include <cstring>
#include <deque>

#include "harness/abi/base.h"
#include "harness/rank/calls/argument_area.h"
#include "harness/rank/calls/dispatch.h"
#include "harness/rank/guard_pages.h"
#include "harness/rank/pointer.h"
#include "harness/rank/workloads/pattern.h"
#include "harness/rank/workloads/stall_timer.h"
#include "harness/rank/workloads/stream_plan.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kTail = 64;     // checked behind each message
constexpr std::size_t kWiped = 4096;  // of a send buffer, right after done
constexpr std::uint64_t kMarker = 1;

/// An isend or irecv that the plugin has accepted, or is asked to.
struct Posted {
  Group group;
  /// Sender: which message of the group; receivers take all.
  std::uint32_t place = 0;
  std::size_t slot = 0;
  std::uint64_t request = 0;
  bool marked = false;
};

/// Something is wrong: the program stops and says it.
struct Failed {
  std::string what;
};

class StreamEndpoint {
 public:
  explicit StreamEndpoint(const Stream& request) : request_(request), plan_(request), stall_(request.timeout_ns) {
    const std::uint32_t messages_per_slot = request.sends ? 1 : request.group;
    slots_ = std::size_t{request.window} * (request.sends ? request.group : 1);
    stride_ = (plan_.largest() + kTail + 63) / 64 * 64;
    slot_size_ = stride_ * messages_per_slot;
    memory_ = map_guarded(slot_size_ * slots_, false);
    stale_.assign(slots_, 0);
    for (std::size_t slot = slots_; slot > 0; --slot) free_slots_.push_back(slot - 1);
  }
  ~StreamEndpoint() {
    // After a finding operations may be in flight: their memory stays as it is until the rank ends.
    if (answer_.broken.empty()) unmap_guarded({memory_.pages_address, memory_.pages_size});
  }

  StreamAnswer run() {
    answer_.start_ns = now_ns();
    try {
      register_memory();
      loop();
      deregister_memory();
    } catch (const Failed& failed) {
      answer_.broken = failed.what;
    }
    answer_.end_ns = now_ns();
    return answer_;
  }

 private:
  void register_memory() {
    const PointerAnswer answer =
        execute(RegMr{request_.comm, memory_.address, slot_size_ * slots_, abi::kPointerHost, 0});
    if (answer.code != 0) throw Failed{fmt::format("regMr of {} bytes returned {}", slot_size_ * slots_, answer.code)};
    mhandle_ = answer.value;
  }
  void deregister_memory() {
    const CallAnswer answer = execute(DeregMr{request_.comm, mhandle_});
    if (answer.code != 0) throw Failed{fmt::format("deregMr returned {}", answer.code)};
  }

  void loop() {
    next_group();
    while (group_.width != 0 || !in_flight_.empty() || !late_.empty()) {
      bool moved = false;
      if (group_.width != 0 && !free_slots_.empty()) moved |= post();
      if (!in_flight_.empty()) moved |= test_one();
      if (!late_.empty()) moved |= look_at_late();
      if (moved) {
        stall_.restart();
      } else if (stall_.expired()) {
        answer_.stalled = true;
        throw Failed{stall()};
      }
    }
  }

  void next_group() {
    group_ = plan_.next(group_);
    order_ = plan_.posting_order(group_);
    place_ = 0;
  }

  std::byte* memory_of(std::size_t slot, std::uint32_t place) const {
    return static_cast<std::byte*>(pointer(memory_.address)) + slot * slot_size_ + place * stride_;
  }

  bool post() { return request_.sends ? post_send() : post_receive(); }

  bool post_send() {
    const std::uint32_t place = order_[place_];
    const std::uint64_t message = group_.first + place;
    const std::size_t slot = free_slots_.back();
    std::byte* buffer = memory_of(slot, 0);
    fill_pattern(buffer, plan_.size(message), plan_.contents(message));
    const std::uint64_t preset = request_.stale ? stale_[slot] : request_.request_slot;
    const PointerAnswer answer =
        execute(Isend{{request_.comm, {{number(buffer), plan_.size(message), plan_.tag(place), mhandle_, 0}}, preset}});
    if (!accepted(answer, fmt::format("isend of message {}", message))) return false;
    keep({group_, place, slot, answer.value, false});
    if (++place_ == group_.width) next_group();
    return true;
  }

  bool post_receive() {
    const std::size_t slot = free_slots_.back();
    const bool marked = request_.request_slot == kMarker && group_.width == 1 && group_.number % 2 == 0;
    std::uint64_t preset = request_.stale ? stale_[slot] : request_.request_slot;
    if (request_.request_slot == kMarker) preset = marked ? kMarker : stale_[slot];
    Irecv post{{request_.comm, {}, preset}};
    for (std::uint32_t place = 0; place < group_.width; ++place) {
      const std::uint64_t message = group_.first + place;
      std::byte* buffer = memory_of(slot, place);
      std::memset(buffer + plan_.size(message), kCanary, stride_ - plan_.size(message));
      post.pieces.push_back({number(buffer), plan_.posted_size(message), plan_.tag(place), mhandle_, 0});
    }
    const PointerAnswer answer = execute(post);
    if (!accepted(answer, fmt::format("irecv of {}", messages(group_)))) return false;
    keep({group_, 0, slot, answer.value, marked});
    next_group();
    return true;
  }

  bool accepted(const PointerAnswer& answer, const std::string& what) {
    if (answer.code != 0) throw Failed{fmt::format("{} returned {}", what, answer.code)};
    if (!answer.damage.empty()) throw Failed{fmt::format("{} {}", what, answer.damage)};
    if (answer.value == 0) ++answer_.deferrals;
    return answer.value != 0;
  }

  void keep(const Posted& posted) {
    free_slots_.pop_back();
    stale_[posted.slot] = posted.request;
    in_flight_.push_back(posted);
  }

  bool test_one() {
    const std::size_t index = request_.oldest_only ? 0 : turn_++ % in_flight_.size();
    const Posted posted = in_flight_[index];
    ++answer_.tests;
    const TestAnswer answer = execute(Test{posted.request, 0x5a5a5a5a, true, request_.sends ? -1 : 0});
    const std::string what = fmt::format("test of {}", messages(posted));
    if (answer.code != 0) throw Failed{fmt::format("{} returned {}", what, answer.code)};
    if (!answer.damage.empty()) throw Failed{fmt::format("{} {}", what, answer.damage)};
    if (answer.done == 0) return false;
    if (answer.done != 1) throw Failed{fmt::format("{} stored done = {}", what, answer.done)};
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
    if (request_.sends) {
      finish_send(posted, answer);
    } else {
      finish_receive(posted, answer);
    }
    return true;
  }

  void finish_send(const Posted& posted, const TestAnswer& answer) {
    const std::uint64_t message = posted.group.first + posted.place;
    const std::uint32_t size = plan_.size(message);
    // A send's size may be left unwritten.
    if (answer.sizes[0] != -1 && answer.sizes[0] != static_cast<std::int32_t>(size)) {
      throw Failed{fmt::format("message {}: the sender's sizes[0] = {}, sent {} (tag {})", message, answer.sizes[0],
                               size, plan_.tag(posted.place))};
    }
    std::memset(memory_of(posted.slot, 0), kOverwritten, std::min<std::size_t>(size, kWiped));
    complete(posted.slot, message);
  }

  void finish_receive(const Posted& posted, const TestAnswer& answer) {
    for (std::size_t i = 0; i < kSizes; ++i) {
      const bool filled = i < posted.group.width;
      const std::uint64_t message = posted.group.first + i;
      const std::int32_t right = filled ? static_cast<std::int32_t>(plan_.size(message)) : 0;
      if (answer.sizes[i] == right || (filled && posted.marked && answer.sizes[i] == 0)) continue;
      throw Failed{filled ? fmt::format("message {}: sizes[{}] = {}, sent {} (tag {})", message, i, answer.sizes[i],
                                        right, plan_.tag(static_cast<std::uint32_t>(i)))
                          : fmt::format("{}: sizes[{}] = {}, but the group has {} buffers", messages(posted.group), i,
                                        answer.sizes[i], posted.group.width)};
    }
    const std::string wrong = compare(posted);
    if (wrong.empty()) {
      complete_group(posted);
    } else if (posted.marked) {
      late_.push_back(posted);  // completion was optional: the contents may come later
    } else {
      throw Failed{wrong};
    }
  }

  /// What is wrong with the contents of a receive; "" if nothing is.
  std::string compare(const Posted& posted) const {
    for (std::uint32_t place = 0; place < posted.group.width; ++place) {
      const std::uint64_t message = posted.group.first + place;
      const std::uint32_t size = plan_.size(message);
      const std::byte* buffer = memory_of(posted.slot, place);
      if (plan_.contents_checked(message)) {
        const Difference difference = compare_pattern(buffer, size, plan_.contents(message));
        if (difference.bytes != 0) return mismatch(message, place, size, buffer, difference);
      }
      const Difference behind = compare_byte(buffer + size, kTail, kCanary);
      if (behind.bytes != 0) {
        return fmt::format("message {}: byte {} of the receive buffer was written, only {} were sent (tag {})", message,
                           size + behind.offset, size, plan_.tag(place));
      }
    }
    return "";
  }

  std::string mismatch(std::uint64_t message, std::uint32_t place, std::uint32_t size, const std::byte* buffer,
                       const Difference& difference) const {
    // Whole other messages in the wrong place are the usual case: look among the neighbours.
    const std::uint64_t from = message > 64 ? message - 64 : 0;
    for (std::uint64_t other = from; other < std::min(plan_.count(), message + 64); ++other) {
      const std::size_t compared = std::min<std::size_t>(size, plan_.size(other));
      if (compared >= 8 && compare_pattern(buffer, compared, plan_.contents(other)).bytes == 0) {
        return fmt::format("message {} ({} bytes, tag {}): the buffer holds message {}", message, size,
                           plan_.tag(place), other);
      }
    }
    return fmt::format("message {} ({} bytes, tag {}): byte {} is 0x{:02x}, sent 0x{:02x}; {} bytes differ", message,
                       size, plan_.tag(place), difference.offset, difference.got, difference.expected,
                       difference.bytes);
  }

  bool look_at_late() {
    for (std::size_t i = 0; i < late_.size(); ++i) {
      if (!compare(late_[i]).empty()) continue;
      const Posted posted = late_[i];
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
      complete_group(posted);
      return true;
    }
    return false;
  }

  void complete_group(const Posted& posted) {
    for (std::uint32_t place = 1; place < posted.group.width; ++place) count(posted.group.first + place);
    complete(posted.slot, posted.group.first);
  }
  void complete(std::size_t slot, std::uint64_t message) {
    count(message);
    free_slots_.push_back(slot);
  }
  void count(std::uint64_t message) {
    ++answer_.messages;
    answer_.bytes += plan_.size(message);
  }

  std::string messages(const Group& group) const {
    if (group.width == 1) return fmt::format("message {}", group.first);
    return fmt::format("messages {} to {}", group.first, group.first + group.width - 1);
  }
  std::string messages(const Posted& posted) const {
    return request_.sends ? fmt::format("message {}", posted.group.first + posted.place) : messages(posted.group);
  }

  std::string stall() const {
    if (!in_flight_.empty()) {
      return fmt::format("{} never completed ({} in flight, {} of {} done)", messages(in_flight_.front()),
                         in_flight_.size(), answer_.messages, plan_.count());
    }
    if (!late_.empty()) return compare(late_.front());
    return fmt::format("{} of {} was never accepted ({} of {} done)", request_.sends ? "isend" : "irecv",
                       messages(group_), answer_.messages, plan_.count());
  }

  const Stream request_;
  const StreamPlan plan_;
  StallTimer stall_;
  StreamAnswer answer_;

  std::size_t slots_ = 0;
  std::size_t stride_ = 0;
  std::size_t slot_size_ = 0;
  Mapping memory_;
  std::uint64_t mhandle_ = 0;

  /// The group that is posted next, and how much of it a sender has posted.
  Group group_{0, 0, 0};
  std::vector<std::uint32_t> order_;
  std::uint32_t place_ = 0;

  std::vector<std::size_t> free_slots_;
  std::vector<std::uint64_t> stale_;
  std::deque<Posted> in_flight_;
  std::deque<Posted> late_;
  std::size_t turn_ = 0;
};

}  // namespace

StreamAnswer execute(const Stream& request) { return StreamEndpoint(request).run(); }

}  // namespace plugfest::rank
