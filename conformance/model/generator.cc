// Makes random schedules, and shrinks those that fail.
#include "conformance/model/schedule.h"

#include <rapidcheck.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "conformance/model/model.h"

namespace plugfest::model {
namespace {

// Limits of one schedule, so that many run in a second.
constexpr std::uint64_t kBytes = 8u << 20;
constexpr std::uint64_t kGroupBytes = 4u << 20;

// Makes one schedule. Usable only inside rc::gen::exec, which `*generator` requires.
class Author {
 public:
  explicit Author(const Shape& shape) : shape_(shape) {}

  Schedule write() {
    schedule_.topology = shape_.topology;
    schedule_.ranks = shape_.ranks;
    schedule_.seed = *rc::gen::arbitrary<std::uint64_t>();
    largest_ = pick<std::uint32_t>({64, 256, 256, 1024, 4096, 70'000, 1u << 20});
    if (shape_.faults && chance(8)) {
      schedule_.faults = pick<std::string>(
          {"loss=1%", "duplicate=3%", "reorder=3%", "corrupt=1%", "delay=100us", "loss=0.5%,duplicate=1%,reorder=2%"});
      max_repetitions_ = 20;
    }
    if (!shape_.interface.empty()) {
      schedule_.interface = shape_.interface;
      for (unsigned left = number(1, 80); left > 0; --left) add_operation();
      return without_invalid_steps(schedule_);
    }
    connect();
    for (unsigned left = number(1, 40); left > 0; --left) add_step();
    return std::move(schedule_);
  }

 private:
  unsigned number(unsigned min, unsigned max) { return *rc::gen::inRange<unsigned>(min, max + 1); }
  bool chance(unsigned percent) { return number(0, 99) < percent; }
  template <typename T>
  T pick(std::vector<T> values) {
    return *rc::gen::elementOf(std::move(values));
  }

  void add_step() {
    const unsigned kind = number(0, 99);
    if (kind < 8 && next_comm_ < 6) {
      connect();
    } else if (kind < 12 && open_.size() > 1) {
      const std::size_t which = number(0, static_cast<unsigned>(open_.size()) - 1);
      schedule_.steps.emplace_back(Close{open_[which]});
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (kind < 16) {
      schedule_.steps.emplace_back(Register{pick(open_)});
    } else if (kind < 17) {
      const unsigned rank = number(0, static_cast<unsigned>(shape_.ranks.size()) - 1);
      schedule_.steps.emplace_back(Freeze{rank, number(0, 20'000), number(1, 30'000)});
    } else if (kind < 21) {
      schedule_.steps.emplace_back(
          Pause{number(0, static_cast<unsigned>(shape_.ranks.size()) - 1), number(1, chance(20) ? 5000 : 300)});
    } else {
      transfer();
    }
  }

  void add_operation() {
    if (chance(3)) {
      schedule_.steps.emplace_back(Compare{});
      return;
    }
    const auto rank = [&] { return number(0, static_cast<unsigned>(shape_.ranks.size()) - 1); };
    OneSided step{.get = shape_.gets && chance(25), .from = rank(), .to = rank()};
    const bool data = step.get || chance(80);
    if (data) step.bytes = std::clamp<std::uint32_t>(size(), 1, bytes_ < kBytes ? largest_ : 64);
    if (!data || (!step.get && chance(50))) {
      step.signal = number(0, kSignals - 1);
      if (chance(50)) step.add = *rc::gen::arbitrary<std::uint64_t>();
    }
    if (shape_.contexts) step.context = number(0, kContexts - 1);
    bytes_ += step.bytes;
    schedule_.steps.emplace_back(step);
  }

  void connect() {
    const unsigned ranks = static_cast<unsigned>(shape_.ranks.size());
    Connect step{.comm = next_comm_++};
    step.from = number(0, ranks - 1);
    step.to = (step.from + number(1, std::max(ranks, 2u) - 1)) % ranks;
    if (chance(30)) step.window = number(1, kMaxWindow);
    step.oldest_only = chance(70);
    open_.push_back(step.comm);
    schedule_.steps.emplace_back(step);
  }

  std::uint32_t size() {
    static const std::vector<std::uint32_t> edges = {0,    1,    3,    7,     8,     63,    64,    65,
                                                     127,  128,  129,  255,   256,   1023,  1024,  4095,
                                                     4096, 4097, 8192, 65535, 65536, 65537, 131072};
    if (chance(50)) return std::min(pick(edges), largest_);
    return number(0, largest_);
  }

  void transfer() {
    static const std::vector<int> tags = {0, 1, 2, 5, 7, 65535, 65541, INT32_MAX};
    Transfer step{.comm = pick(open_)};
    const unsigned max = std::min(shape_.max_receives, 8u);
    const unsigned count = max > 1 && chance(40) ? number(2, max) : 1;
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < count && bytes < kGroupBytes; ++i) {
      Message message{.tag = pick(tags), .bytes = size()};
      message.room = message.bytes;
      bytes += message.bytes;
      step.messages.push_back(message);
    }
    if (chance(40)) grow_rooms(step);
    even_rooms(step);
    step.sends = in_order(step.messages.size());
    if (chance(60))
      for (std::size_t i = step.sends.size(); i > 1; --i)
        std::swap(step.sends[i - 1], step.sends[number(0, static_cast<unsigned>(i) - 1)]);
    if (chance(60)) step.repeat = number(2, chance(40) ? max_repetitions_ : 20);
    const std::uint64_t left = kBytes > bytes_ ? kBytes - bytes_ : 0;
    step.repeat = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(left / (bytes + 1), 1, step.repeat));
    bytes_ += bytes * step.repeat;
    schedule_.steps.emplace_back(std::move(step));
  }

  void grow_rooms(Transfer& step) {
    for (Message& message : step.messages)
      if (chance(60)) message.room += size();
  }

  // Gives messages with one tag the same room, since the order of the sends decides which buffer they fill.
  static void even_rooms(Transfer& step) {
    for (Message& message : step.messages) {
      for (const Message& other : step.messages)
        if (other.tag == message.tag) message.room = std::max(message.room, other.room);
    }
  }

  const Shape& shape_;
  Schedule schedule_;
  std::uint32_t largest_ = 0;
  unsigned max_repetitions_ = 400;
  unsigned next_comm_ = 0;
  std::vector<unsigned> open_;
  std::uint64_t bytes_ = 0;
};

// Returns copies of `base` with one member replaced by each of `values`.
template <typename T, typename Value>
rc::Seq<Step> with(const T& base, Value T::*member, rc::Seq<Value> values) {
  return rc::seq::map(std::move(values), [base, member](const Value& value) {
    T copy = base;
    copy.*member = value;
    return Step(copy);
  });
}

template <typename Value>
rc::Seq<Value> only(const Value& now, const Value& simplest) {
  return now == simplest ? rc::Seq<Value>() : rc::seq::just(simplest);
}

rc::Seq<Message> smaller_messages(const Message& message) {
  const auto fitting = [message](std::uint32_t bytes) { return Message{message.tag, bytes, bytes}; };
  const auto with_room = [message](std::uint32_t room) { return Message{message.tag, message.bytes, room}; };
  Message untagged = message;
  untagged.tag = 0;
  return rc::seq::concat(rc::seq::map(rc::shrink::towards(message.bytes, 0u), fitting),
                         rc::seq::map(rc::shrink::towards(message.room, message.bytes), with_room),
                         only(message, untagged));
}

rc::Seq<Step> smaller(const Connect& step) {
  return rc::seq::concat(with(step, &Connect::window, only(step.window, Connect{}.window)),
                         with(step, &Connect::oldest_only, only(step.oldest_only, true)));
}
rc::Seq<Step> smaller(const Transfer& step) {
  const auto in_posted_order = [step](std::vector<Message>&& messages) {
    Transfer copy = step;
    copy.messages = std::move(messages);
    if (copy.messages.size() != step.messages.size()) copy.sends = in_order(copy.messages.size());
    return Step(copy);
  };
  return rc::seq::concat(with(step, &Transfer::repeat, rc::shrink::towards(step.repeat, std::uint32_t{1})),
                         rc::seq::map(rc::shrink::removeChunks(step.messages), in_posted_order),
                         with(step, &Transfer::sends, only(step.sends, in_order(step.sends.size()))),
                         rc::seq::map(rc::shrink::eachElement(step.messages, smaller_messages), in_posted_order));
}
rc::Seq<Step> smaller(const Pause& step) {
  return with(step, &Pause::us, rc::shrink::towards(step.us, std::uint32_t{0}));
}
rc::Seq<Step> smaller(const Freeze& step) {
  return rc::seq::concat(with(step, &Freeze::us, rc::shrink::towards(step.us, std::uint32_t{0})),
                         with(step, &Freeze::at_us, rc::shrink::towards(step.at_us, std::uint32_t{0})));
}
rc::Seq<Step> smaller(const OneSided& step) {
  const std::optional<unsigned> least = step.bytes > 0 ? std::nullopt : std::optional(0u);
  return rc::seq::concat(
      with(step, &OneSided::bytes, rc::shrink::towards(step.bytes, std::uint32_t{step.signal ? 0u : 1u})),
      step.add ? rc::Seq<Step>() : with(step, &OneSided::signal, only(step.signal, least)),
      with(step, &OneSided::add, only(step.add, std::optional<std::uint64_t>())),
      with(step, &OneSided::context, only(step.context, 0u)));
}
rc::Seq<Step> smaller(const Compare&) { return {}; }
rc::Seq<Step> smaller(const Register&) { return {}; }
rc::Seq<Step> smaller(const Close&) { return {}; }

Schedule without_idle_ranks(Schedule schedule) {
  // NCCL connects no single rank with itself.
  const std::size_t least = schedule.interface.empty() ? 0 : 2;
  for (unsigned rank = static_cast<unsigned>(schedule.ranks.size()); rank-- > 0 && schedule.ranks.size() > least;) {
    std::vector<unsigned*> used;
    for (Step& step : schedule.steps) {
      if (auto* connect = std::get_if<Connect>(&step)) used.insert(used.end(), {&connect->from, &connect->to});
      if (auto* one_sided = std::get_if<OneSided>(&step)) used.insert(used.end(), {&one_sided->from, &one_sided->to});
      if (auto* pause = std::get_if<Pause>(&step)) used.push_back(&pause->rank);
      if (auto* freeze = std::get_if<Freeze>(&step)) used.push_back(&freeze->rank);
    }
    if (std::any_of(used.begin(), used.end(), [&](const unsigned* value) { return *value == rank; })) continue;
    for (unsigned* value : used) *value -= *value > rank ? 1 : 0;
    schedule.ranks.erase(schedule.ranks.begin() + static_cast<std::ptrdiff_t>(rank));
  }
  return schedule;
}

Schedule without_faults(Schedule schedule) {
  schedule.faults.clear();
  return schedule;
}

// Returns smaller valid schedules, those that remove most first.
rc::Seq<Schedule> smaller(const Schedule& schedule) {
  const auto valid = [schedule](std::vector<Step>&& steps) {
    Schedule copy = schedule;
    copy.steps = std::move(steps);
    return without_invalid_steps(copy);
  };
  const auto smaller_steps = [](const Step& step) {
    return std::visit([](const auto& entry) { return smaller(entry); }, step);
  };
  return rc::seq::filter(rc::seq::concat(rc::seq::map(rc::shrink::removeChunks(schedule.steps), valid),
                                         rc::seq::just(without_idle_ranks(schedule), without_faults(schedule)),
                                         rc::seq::map(rc::shrink::eachElement(schedule.steps, smaller_steps), valid)),
                         [schedule](const Schedule& other) { return other != schedule; });
}

}  // namespace

Schedule random_schedule(const Shape& shape, std::uint64_t seed) {
  // RapidCheck keeps the context of exec in variables of the process.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto schedules = rc::gen::exec([&shape] { return Author(shape).write(); });
  return schedules(rc::Random(seed), rc::kNominalSize).value();
}

Schedule shrink(Schedule schedule, const std::function<bool(const Schedule&)>& fails) {
  for (bool found = true; found;) {
    found = false;
    rc::Seq<Schedule> candidates = smaller(schedule);
    while (auto candidate = candidates.next()) {
      if (!fails(*candidate)) continue;
      schedule = std::move(*candidate);
      found = true;
      break;
    }
  }
  return schedule;
}

}  // namespace plugfest::model
