// One endpoint of a stream of messages: keeps a number of operations in flight and checks each completed message.
#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "fabric/system/text.h"
#include "harness/abi/base.h"
#include "harness/rank/memory.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/stepping.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kTail = 64;     // bytes that are checked after each message
constexpr std::size_t kWiped = 4096;  // bytes of a send buffer that are overwritten when the send is done
constexpr std::uint64_t kMarker = 1;

// An isend or irecv that the plugin has accepted.
struct Posted {
  Group group;
  // Sender: index of the message in the group. Receivers receive the whole group.
  std::uint32_t place = 0;
  std::size_t slot = 0;
  std::uint64_t request = 0;
  bool marked = false;
};

// Ends the workload with a message.
struct Failed {
  std::string what;
};

// Memory of the operations in flight: one slot for each. A slot holds one message, or the messages of a group.
class Slots {
 public:
  // `stride`: bytes for one message. Errors: std::system_error.
  Slots(std::size_t count, std::size_t stride, std::size_t messages_per_slot)
      : stride_(stride),
        slot_size_(stride * messages_per_slot),
        memory_(map_guarded(slot_size_ * count, false)),
        last_requests_(count, 0) {
    for (std::size_t slot = count; slot > 0; --slot) free_.push_back(slot - 1);
  }

  void unmap() { unmap_guarded(memory_); }
  std::uint64_t address() const { return memory_.address; }
  std::size_t size() const { return slot_size_ * last_requests_.size(); }
  std::size_t stride() const { return stride_; }
  // Buffer of the message at index `place` of the slot's group.
  std::byte* buffer(std::size_t slot, std::uint32_t place) const {
    return static_cast<std::byte*>(pointer(memory_.address)) + slot * slot_size_ + place * stride_;
  }

  bool any_free() const { return !free_.empty(); }
  std::size_t next() const { return free_.back(); }
  void take(std::uint64_t request) {
    last_requests_[free_.back()] = request;
    free_.pop_back();
  }
  void give_back(std::size_t slot) { free_.push_back(slot); }
  // The request that last took the slot; 0 for none.
  std::uint64_t last_request(std::size_t slot) const { return last_requests_[slot]; }

 private:
  std::size_t stride_;
  std::size_t slot_size_;
  Mapping memory_;
  std::vector<std::uint64_t> last_requests_;
  std::vector<std::size_t> free_;
};

class StreamEndpoint {
 public:
  explicit StreamEndpoint(const Stream& request)
      : request_(request),
        plan_(request),
        stall_(request.timeout_ns),
        slots_(std::size_t{request.window} * (request.sends ? request.group : 1),
               (plan_.largest() + kTail + 63) / 64 * 64, request.sends ? 1 : request.group) {}

  StreamAnswer run() {
    answer_.start_ns = now_ns();
    try {
      register_memory();
      std::optional<Stepping> stepping;
      if (request_.stepping_seed != 0) stepping.emplace(request_.stepping_seed);
      loop();
      stepping.reset();
      deregister_memory();
      // After a failure, operations may be in flight: their memory stays mapped until the rank ends.
      slots_.unmap();
    } catch (const Failed& failed) {
      answer_.broken = failed.what;
    }
    answer_.end_ns = now_ns();
    return answer_;
  }

 private:
  void register_memory() {
    for (std::uint32_t i = 1; i < request_.registrations; ++i) {
      register_memory(slots_.size() / (1 + i % 8));
      deregister_memory();
    }
    register_memory(slots_.size());
  }
  void register_memory(std::size_t size) {
    const PointerAnswer answer = calls::reg_mr(request_.comm, slots_.address(), size, 0);
    if (answer.code != 0) throw Failed{fmt::format("regMr of {} bytes returned {}", size, code_text(answer.code))};
    mhandle_ = answer.value;
  }
  void deregister_memory() {
    const CallAnswer answer = calls::dereg_mr(request_.comm, mhandle_);
    if (answer.code != 0) throw Failed{fmt::format("deregMr returned {}", code_text(answer.code))};
  }

  void loop() {
    int idle = 0;
    next_group();
    while (group_.width != 0 || !in_flight_.empty() || !late_.empty()) {
      bool moved = false;
      while (group_.width != 0 && slots_.any_free() && post()) moved = true;
      while (!in_flight_.empty() && test_one()) moved = true;
      if (!late_.empty()) moved |= check_late();
      if (moved) {
        stall_.restart();
        idle = 0;
      } else if (stall_.expired()) {
        answer_.stalled = true;
        throw Failed{stall()};
      } else {
        wait_after(++idle);
      }
    }
  }

  // Waits after so many rounds without progress: first as NCCL's progress thread does, then longer, so that a processor
  // is free for the peer and for other ranks. The first part is long, because the NIC's own thread takes over the work
  // of a program that stops polling, and each such change costs time.
  static void wait_after(int idle_rounds) {
    constexpr int kYields = 1500;
    if (idle_rounds < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(30));
  }

  void next_group() {
    group_ = plan_.next(group_);
    order_ = plan_.posting_order(group_);
    place_ = 0;
  }

  bool post() { return request_.sends ? post_send() : post_receive(); }

  bool post_send() {
    const std::uint32_t place = order_[place_];
    const std::uint64_t message = group_.first + place;
    const std::size_t slot = slots_.next();
    std::byte* buffer = slots_.buffer(slot, 0);
    if (plan_.contents_checked(message)) fill_pattern(buffer, plan_.size(message), plan_.contents(message));
    const std::uint64_t preset = request_.stale ? slots_.last_request(slot) : request_.request_slot;
    const PointerAnswer answer =
        calls::isend(request_.comm, {number(buffer), plan_.size(message), plan_.tag(place), mhandle_, 0}, preset);
    if (!accepted(answer, [&] { return fmt::format("isend of message {}", message); })) return false;
    keep({group_, place, slot, answer.value, false});
    if (++place_ == group_.width) next_group();
    return true;
  }

  bool post_receive() {
    const std::size_t slot = slots_.next();
    const bool marked = request_.request_slot == kMarker && group_.width == 1 && group_.number % 2 == 0;
    std::uint64_t preset = request_.stale ? slots_.last_request(slot) : request_.request_slot;
    if (request_.request_slot == kMarker) preset = marked ? kMarker : slots_.last_request(slot);
    std::vector<Piece> pieces;
    for (std::uint32_t place = 0; place < group_.width; ++place) {
      const std::uint64_t message = group_.first + place;
      std::byte* buffer = slots_.buffer(slot, place);
      std::memset(buffer + plan_.size(message), kCanary, slots_.stride() - plan_.size(message));
      pieces.push_back({number(buffer), plan_.posted_size(message), plan_.tag(place), mhandle_, 0});
    }
    const PointerAnswer answer = calls::irecv(request_.comm, pieces, preset);
    if (!accepted(answer, [&] { return fmt::format("irecv of {}", messages(group_)); })) return false;
    keep({group_, 0, slot, answer.value, marked});
    next_group();
    return true;
  }

  // `what`: returns the text of the call, for messages.
  template <typename What>
  bool accepted(const PointerAnswer& answer, What what) {
    if (answer.code != 0) throw Failed{fmt::format("{} returned {}", what(), code_text(answer.code))};
    if (!answer.damage.empty()) throw Failed{fmt::format("{} {}", what(), answer.damage)};
    if (answer.value == 0) ++answer_.deferrals;
    return answer.value != 0;
  }

  void keep(const Posted& posted) {
    slots_.take(posted.request);
    in_flight_.push_back(posted);
  }

  bool test_one() {
    const std::size_t index = request_.oldest_only ? 0 : turn_++ % in_flight_.size();
    const Posted posted = in_flight_[index];
    ++answer_.tests;
    const TestAnswer answer = calls::test(posted.request, 0, request_.sends ? -1 : 0);
    const auto what = [&] { return fmt::format("test of {}", messages(posted)); };
    if (answer.code != 0) throw Failed{fmt::format("{} returned {}", what(), code_text(answer.code))};
    if (!answer.damage.empty()) throw Failed{fmt::format("{} {}", what(), answer.damage)};
    if (answer.done == 0) return false;
    if (answer.done != 1) throw Failed{fmt::format("{} stored done = {}", what(), answer.done)};
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
    if (request_.sends)
      finish_send(posted);
    else
      finish_receive(posted, answer);
    return true;
  }

  // Whether to compare sizes. Only the first wrong one is reported.
  bool compares_sizes() const { return request_.check_sizes && answer_.wrong_size.empty(); }

  void finish_send(const Posted& posted) {
    const std::uint64_t message = posted.group.first + posted.place;
    std::memset(slots_.buffer(posted.slot, 0), kOverwritten, std::min<std::size_t>(plan_.size(message), kWiped));
    complete(posted.slot, message);
  }

  void finish_receive(const Posted& posted, const TestAnswer& answer) {
    for (std::size_t i = 0; compares_sizes() && i < posted.group.width; ++i) {
      const std::uint64_t message = posted.group.first + i;
      const auto right = static_cast<std::int32_t>(plan_.size(message));
      if (answer.sizes[i] == right || (posted.marked && answer.sizes[i] == 0)) continue;
      answer_.wrong_size = fmt::format("message {}: sizes[{}] = {}, sent {} (tag {})", message, i, answer.sizes[i],
                                       right, plan_.tag(static_cast<std::uint32_t>(i)));
    }
    const std::string wrong = compare(posted);
    if (wrong.empty())
      complete_group(posted);
    else if (posted.marked)
      late_.push_back(posted);  // completion was optional (XF-19): the contents may arrive later
    else
      throw Failed{wrong};
  }

  // Describes the first difference in the contents of a receive; "" if there is none.
  std::string compare(const Posted& posted) const {
    for (std::uint32_t place = 0; place < posted.group.width; ++place) {
      const std::uint64_t message = posted.group.first + place;
      const std::uint32_t size = plan_.size(message);
      const std::byte* buffer = slots_.buffer(posted.slot, place);
      if (plan_.contents_checked(message)) {
        const Difference difference = compare_pattern(buffer, size, plan_.contents(message));
        if (difference.bytes != 0) return mismatch(message, place, size, buffer, difference);
      }
      const Difference past_end = compare_byte(buffer + size, kTail, kCanary);
      if (past_end.bytes != 0) {
        return fmt::format("message {}: byte {} of the receive buffer was written, only {} were sent (tag {})", message,
                           size + past_end.offset, size, plan_.tag(place));
      }
    }
    return "";
  }

  std::string mismatch(std::uint64_t message, std::uint32_t place, std::uint32_t size, const std::byte* buffer,
                       const Difference& difference) const {
    // The buffer usually holds another message: compares it with adjacent messages.
    const std::uint64_t from = message > 64 ? message - 64 : 0;
    for (std::uint64_t other = from; other < std::min(plan_.count(), message + 64); ++other) {
      const std::size_t compared = std::min<std::size_t>(size, plan_.size(other));
      if (compared >= 8 && compare_pattern(buffer, compared, plan_.contents(other)).bytes == 0) {
        return fmt::format("message {} ({}, tag {}): the buffer holds message {}", message, counted(size, "byte"),
                           plan_.tag(place), other);
      }
    }
    return fmt::format("message {} ({}, tag {}): byte {} is 0x{:02x}, sent 0x{:02x}; {} of {} differ", message,
                       counted(size, "byte"), plan_.tag(place), difference.offset, difference.got, difference.expected,
                       difference.bytes, counted(size, "byte"));
  }

  bool check_late() {
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
    slots_.give_back(slot);
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

  Slots slots_;
  std::uint64_t mhandle_ = 0;

  // The next group to post, and the number of its messages that a sender has posted.
  Group group_{0, 0, 0};
  std::vector<std::uint32_t> order_;
  std::uint32_t place_ = 0;

  std::deque<Posted> in_flight_;
  std::deque<Posted> late_;
  std::size_t turn_ = 0;
};

}  // namespace

StreamAnswer execute(const Stream& request) { return StreamEndpoint(request).run(); }

}  // namespace plugfest::rank
