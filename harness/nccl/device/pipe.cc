#include "harness/nccl/device/pipe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fabric/system/number.h"

namespace plugfest::nccl::device {
namespace {

constexpr std::size_t kLineData = 8;
// LL: in steps whose number has all these bits, all lines are written, so that no old flag is valid once the numbers
// have wrapped.
constexpr std::uint64_t kCleaningSteps = 0x7ffffff8;

unsigned steps_of_chunk(const Cut& cut) { return cut.protocol == Protocol::kSimple ? cut.slices * cut.steps : 1; }
std::uint32_t flag_of(std::uint64_t step) { return static_cast<std::uint32_t>(step + 1); }

// Reads the data of a line; false if it has not arrived.
bool read_line(const Line& line, std::uint32_t flag, std::uint64_t& data) {
  const std::uint64_t low = load(&line.halves[0]), high = load(&line.halves[1]);
  if (low >> 32 != flag || high >> 32 != flag) return false;
  data = (low & 0xffffffff) | high << 32;
  return true;
}

void write_line(Line& line, std::uint32_t flag, std::uint64_t data) {
  const std::uint64_t mark = std::uint64_t{flag} << 32;
  store(&line.halves[0], (data & 0xffffffff) | mark);
  store(&line.halves[1], data >> 32 | mark);
}

}  // namespace

std::vector<Pipe::Peer> Pipe::open(const std::vector<Connection>& connections, unsigned round_up_to) {
  std::vector<Peer> peers;
  for (const Connection& connection : connections)
    peers.push_back({connection, round_up(*connection.saved_step, round_up_to)});
  return peers;
}

Pipe::Pipe(const Cut& cut, const Reduction& reduction, std::vector<Connection> receive, std::vector<Connection> send,
           const std::byte* input, std::byte* output, std::vector<Move> moves)
    : cut_(cut),
      reduction_(reduction),
      element_(size_of(reduction.type)),
      receive_(open(receive, steps_of_chunk(cut))),
      send_(open(send, steps_of_chunk(cut))),
      input_(input),
      output_(output),
      moves_(std::move(moves)) {
  // Rounding up skips steps, for which the sender gets its credit back.
  if (cut_.protocol == Protocol::kSimple)
    for (Peer& peer : receive_) store(peer.connection.head, peer.step);
  if (done()) save_steps();
}

bool Pipe::advance() {
  bool progress = false;
  while (!done()) {
    const Move& move = moves_[next_];
    if (!(cut_.protocol == Protocol::kSimple ? advance_simple(move) : advance_lines(move))) break;
    progress = true;
  }
  return progress;
}

bool Pipe::ready(const Move& move, unsigned steps, bool wait_for_data) {
  if (move.receive && wait_for_data)
    for (const Peer& peer : receive_)
      if (load(peer.connection.tail) < peer.step + steps) return false;
  if (move.send)
    for (const Peer& peer : send_)
      if (load(peer.connection.head) + kSteps < peer.step + steps) return false;
  return true;
}

std::byte* Pipe::simple_buffer(Peer& peer) const {
  const Connection& connection = peer.connection;
  const std::size_t slot = peer.step % kSteps;
  if (connection.steps != nullptr && connection.steps[slot].mode == StepInfo::kOffset)
    return connection.simple_buffer + *const_cast<volatile int*>(&connection.steps[slot].offset);
  return connection.simple_buffer + slot * connection.step_bytes;
}

bool Pipe::advance_simple(const Move& move) {
  if (!ready(move, cut_.steps, true)) return false;
  const std::size_t step_elements = cut_.step_bytes / element_;
  const std::size_t even = round_up(move.count, std::size_t{16} * cut_.slices) / cut_.slices;
  const std::size_t slice_size = std::max(even, step_elements * cut_.steps / 32);
  const std::size_t count = std::min(slice_size, move.count - done_);

  std::array<const std::byte*, kMaxSources> sources{};
  std::array<std::byte*, kMaxSources> targets{};
  std::size_t source_count = 0, target_count = 0;
  if (move.read_input) sources[source_count++] = input_ + (move.from + done_) * element_;
  if (move.write_output) targets[target_count++] = output_ + (move.to + done_) * element_;
  const auto take = [&](Peer& peer) {
    if (peer.connection.steps != nullptr)
      peer.connection.steps[peer.step % kSteps].size = static_cast<ssize_t>(count * element_);
    return simple_buffer(peer);
  };
  if (move.receive)
    for (Peer& peer : receive_) sources[source_count++] = take(peer);
  if (move.send)
    for (Peer& peer : send_) targets[target_count++] = take(peer);
  if (count != 0)
    combine(reduction_, {sources.data(), source_count}, {targets.data(), target_count}, count, move.read_input,
            move.completes());
  if (move.receive)
    for (Peer& peer : receive_) store(peer.connection.head, peer.step += cut_.steps);
  if (move.send)
    for (Peer& peer : send_) store(peer.connection.tail, peer.step += cut_.steps);
  done_ += count;
  if (++slice_ == cut_.slices) finish_move();
  return true;
}

bool Pipe::advance_lines(const Move& move) {
  const std::size_t lines_of_step = cut_.step_bytes / sizeof(Line);
  const std::size_t lines = divide_up(move.count * element_, kLineData);
  bool progress = false;
  const auto cleans = [](const Peer& peer) { return (peer.step & kCleaningSteps) == kCleaningSteps; };
  if (!slot_taken_) {
    if (!ready(move, 1, false)) return false;
    if (move.send)
      for (Peer& peer : send_)
        if (peer.connection.steps != nullptr)
          peer.connection.steps[peer.step % kSteps].size =
              static_cast<ssize_t>((cleans(peer) ? lines_of_step : lines) * sizeof(Line));
    slot_taken_ = true;
    progress = true;
  }
  const auto line_of = [&](const Peer& peer, std::size_t line) -> Line& {
    return peer.connection.line_buffer[peer.step % kSteps * lines_of_step + line];
  };
  const std::size_t per_line = kLineData / element_;
  for (; lines_done_ < lines; ++lines_done_) {
    std::array<std::uint64_t, kMaxSources> data{};
    std::array<const std::byte*, kMaxSources> sources{};
    const std::size_t at = lines_done_ * per_line;
    const std::size_t count = std::min(per_line, move.count - at);
    std::size_t source_count = 0;
    if (move.read_input) std::memcpy(&data[source_count++], input_ + (move.from + at) * element_, count * element_);
    if (move.receive) {
      for (Peer& peer : receive_)
        if (!read_line(line_of(peer, lines_done_), flag_of(peer.step), data[source_count++])) return progress;
    }
    for (std::size_t i = 0; i < source_count; ++i) sources[i] = reinterpret_cast<const std::byte*>(&data[i]);
    std::uint64_t result = 0;
    std::byte* const target = reinterpret_cast<std::byte*>(&result);
    combine(reduction_, {sources.data(), source_count}, {&target, 1}, per_line, move.read_input, move.completes());
    if (move.send)
      for (Peer& peer : send_) write_line(line_of(peer, lines_done_), flag_of(peer.step), result);
    if (move.write_output) std::memcpy(output_ + (move.to + at) * element_, &result, count * element_);
    progress = true;
  }
  if (move.receive)
    for (Peer& peer : receive_) store(peer.connection.head, ++peer.step);
  if (move.send) {
    for (Peer& peer : send_) {
      if (cleans(peer))
        for (std::size_t i = lines; i < lines_of_step; ++i) write_line(line_of(peer, i), flag_of(peer.step), 0);
      ++peer.step;
    }
  }
  finish_move();
  return true;
}

void Pipe::finish_move() {
  slice_ = 0;
  done_ = 0;
  lines_done_ = 0;
  slot_taken_ = false;
  ++next_;
  if (done()) save_steps();
}

void Pipe::save_steps() {
  for (const Peer& peer : receive_) *peer.connection.saved_step = peer.step;
  for (const Peer& peer : send_) *peer.connection.saved_step = peer.step;
}

}  // namespace plugfest::nccl::device
