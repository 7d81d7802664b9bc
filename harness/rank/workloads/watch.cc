// Watches memory while a message arrives in it, as kernels of the protocols LL and LL128 do.
#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/rank/memory.h"
#include "harness/rank/server.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kWord = 8;
constexpr std::size_t kLineWords = 16;

class Watched {
 public:
  explicit Watched(const Watch& request)
      : words_(static_cast<const std::uint64_t*>(pointer(request.address))), expected_(request.size / kWord) {
    fill_pattern(expected_.data(), expected_.size() * kWord, request.seed);
  }

  std::size_t words() const { return expected_.size(); }
  bool arrived(std::size_t word) const { return load(word) == expected_[word]; }

  // Waits for the word, for less than a microsecond. Returns its fault if its last four bytes, which hold the flag of
  // LL, have arrived and its first four have not; otherwise "".
  std::string poll_word(std::size_t word) const {
    constexpr int kLoads = 200;
    std::uint64_t value = 0;
    for (int i = 0; i < kLoads && value == 0; ++i) value = load(word);
    constexpr int kHalfBits = 32;
    if (value == expected_[word] || value >> kHalfBits != expected_[word] >> kHalfBits) return "";
    const std::size_t begin = word * kWord, middle = begin + kWord / 2, end = begin + kWord;
    return fmt::format(
        "bytes {} to {} of a message had arrived, and bytes {} to {} had not: expected 0x{:016x}, read 0x{:016x}",
        middle, end - 1, begin, middle - 1, expected_[word], value);
  }

  // The fault of a line whose last word has arrived before another word of it; otherwise "".
  std::string fault_of_line(std::size_t line) const {
    const std::size_t first = line * kLineWords, last = first + kLineWords - 1;
    if (!arrived(last)) return "";
    for (std::size_t word = first; word < last; ++word) {
      if (!arrived(word))
        return fmt::format(
            "bytes {} to {} of a message had arrived, and bytes {} to {} had not, expected the end of a "
            "line of 128 bytes last",
            last * kWord, last * kWord + kWord - 1, word * kWord, word * kWord + kWord - 1);
    }
    return "";
  }

 private:
  std::uint64_t load(std::size_t word) const {
    return std::atomic_ref(const_cast<std::uint64_t&>(words_[word])).load(std::memory_order_acquire);
  }

  const std::uint64_t* const words_;
  std::vector<std::uint64_t> expected_;
};

// Moves the calling thread to the next processor that it may use. Otherwise a scheduler may keep it on the processor
// of the plugin's thread, where it never runs while a message arrives.
void move_to_next_processor() {
  static cpu_set_t allowed = [] {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
    return set;
  }();
  static int last = CPU_SETSIZE - 1;
  if (CPU_COUNT(&allowed) == 0) return;
  do {
    last = (last + 1) % CPU_SETSIZE;
  } while (!CPU_ISSET(last, &allowed));
  cpu_set_t processor;
  CPU_ZERO(&processor);
  CPU_SET(last, &processor);
  ::sched_setaffinity(0, sizeof processor, &processor);
}

// Waits for a signal, as a kernel does.
WatchAnswer await_signal(const Watch& request) {
  WatchAnswer answer;
  const std::atomic_ref signal(*static_cast<std::uint64_t*>(pointer(request.signal_address)));
  StallTimer timer(request.timeout_ns);
  std::uint64_t value = 0;
  while ((value = signal.load(std::memory_order_acquire)) != request.signal) {
    if (!timer.expired()) continue;
    answer.broken = fmt::format("the signal has the value {}, expected {}", value, request.signal);
    return answer;
  }
  const Difference difference = compare_pattern(pointer(request.address), request.size, request.seed);
  if (difference.bytes != 0)
    answer.broken = fmt::format("the signal has arrived, and byte {} of {} bytes before it has not", difference.offset,
                                request.size);
  return answer;
}

}  // namespace

// A word or line is incomplete for a few nanoseconds only, so this function polls ahead of the data. It waits for a
// word, then for one in the next line. If that one has already arrived, it waits for a word in the next page, where a
// packet or a part of a copy most likely begins. While it waits, it checks one further line in each turn, because a
// message need not arrive from start to end.
WatchAnswer execute(const Watch& request) {
  if (request.signal_address != 0) return await_signal(request);
  constexpr std::size_t kPageLines = 32, kTurnsPerLook = 64;
  move_to_next_processor();
  const Watched watched(request);
  const std::size_t lines = watched.words() / kLineWords;
  WatchAnswer answer;
  const auto note = [&](bool matters, std::string fault) {
    if (matters && answer.broken.empty()) answer.broken = std::move(fault);
  };
  StallTimer timer(request.timeout_ns);
  std::size_t other = 0, turns = 0;
  for (std::size_t line = 0; line < lines;) {
    const std::uint64_t draw = mix(request.seed, line);
    const std::size_t in_line = draw % 2 == 0 ? draw / 2 % kLineWords : draw % 4 == 1 ? 0 : kLineWords - 1;
    const std::size_t word = line * kLineWords + in_line;
    const bool ahead = !watched.arrived(word);
    for (;;) {
      note(request.words, watched.poll_word(word));
      if (watched.arrived(word)) break;
      other = other + 1 < lines ? other + 1 : line;
      note(request.lines, watched.fault_of_line(other));
      // The timer yields the processor. It runs rarely, or this thread and the plugin's would alternate on one
      // processor.
      if (++turns % kTurnsPerLook == 0 && timer.expired()) return answer;
    }
    timer.restart();
    if (in_line == kLineWords - 1) note(request.lines, watched.fault_of_line(line));
    line = ahead ? line + 1 : (line / kPageLines + 1) * kPageLines;
  }
  return answer;
}

}  // namespace plugfest::rank
