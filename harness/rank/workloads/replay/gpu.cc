#include "harness/rank/workloads/replay/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fabric/system/clock.h"
#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/rank/memory.h"

namespace plugfest::rank {

namespace {

// A slot is overwritten when the GPU has emptied it, so that a message that never arrives is not mistaken for the one
// before it. Only its first bytes, for speed.
constexpr std::size_t kEmptied = 256;
constexpr int kEmptyByte = 0xd7;
constexpr std::uint64_t kPauseOneIn = 8;
constexpr std::uint64_t kMaxPause = 64;

void add_floats(std::byte* sum, const std::byte* other, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
    float left, right;
    std::memcpy(&left, sum + at, sizeof left);
    std::memcpy(&right, other + at, sizeof right);
    left += right;
    std::memcpy(sum + at, &left, sizeof left);
  }
}

}  // namespace

GpuStream::GpuStream(const Replay& request, const ReplayStream& stream, std::vector<ReplayEnd>& ends,
                     std::uint64_t seed)
    : request_(&request), stream_(&stream), ends_(&ends), seed_(seed) {
  if (!finished()) begin_kernel();
}

void GpuStream::begin_kernel() {
  programs_.clear();
  for (const ReplayProgram& program : running().programs) programs_.push_back({&program});
  for (const ReplayOperation& operation : running().operations) {
    for (const ReplaySub& sub : operation.subs) {
      ReplayEnd& end = ends_->at(sub.connection);
      end.gpu_step = round_up(end.gpu_step, running().chunk_steps);
    }
  }
}

std::uint64_t GpuStream::draw() { return mix(seed_, draws_++); }

bool GpuStream::progress() {
  bool moved = false;
  while (!finished()) {
    bool running_still = false;
    for (Program& program : programs_) {
      moved |= progress(program);
      running_still |= program.next < program.plan->moves.size();
    }
    if (running_still) return moved;
    ends_ns_.push_back(now_ns());
    moved = true;
    if (++kernel_ < stream_->kernels.size()) begin_kernel();
  }
  return moved;
}

bool GpuStream::progress(Program& program) {
  bool moved = false;
  while (program.next < program.plan->moves.size()) {
    if (program.pause > 0) {
      --program.pause;
      return true;  // a pause is not a stall
    }
    const ReplayMove& move = program.plan->moves[program.next];
    for (const std::uint32_t end : move.receives)
      if (!can_receive(ends_->at(end), move.bytes)) return moved;
    for (const std::uint32_t end : move.sends)
      if (!can_send(ends_->at(end))) return moved;
    if (request_->patterns) {
      if (!contents_arrived(move)) return moved;
      move_pattern(move);
    } else {
      move_data(move);
    }
    for (const std::uint32_t end : move.receives) pass(ends_->at(end), move.bytes, false);
    for (const std::uint32_t end : move.sends) pass(ends_->at(end), move.bytes, true);
    suspect_.clear();
    ++program.next;
    moved = true;
    if (request_->pauses && draw() % kPauseOneIn == 0) program.pause = static_cast<std::uint32_t>(draw() % kMaxPause);
  }
  return moved;
}

bool GpuStream::can_receive(ReplayEnd& end, std::uint32_t bytes) const {
  const ProxyProtocol protocol = running().protocol;
  // The flags alone tell that an LL message has arrived, often before the proxy knows.
  if (protocol != ProxyProtocol::kLl && end.tail < end.gpu_step + running().slice_steps) return false;
  return protocol == ProxyProtocol::kSimple ||
         lines_arrived(protocol, end.slot(protocol, end.gpu_step), bytes, end.gpu_step);
}

bool GpuStream::can_send(const ReplayEnd& end) const {
  return end.head + static_cast<std::int64_t>(kSteps) >=
         static_cast<std::int64_t>(end.gpu_step + running().slice_steps);
}

std::uint64_t GpuStream::contents(const ReplayEnd& end, std::uint64_t message) const {
  return mix(mix(request_->seed, end.plan().id), message);
}

const std::byte* GpuStream::payload(const ReplayEnd& end, std::uint32_t bytes, std::vector<std::byte>& scratch) const {
  const std::byte* slot = end.slot(running().protocol, end.gpu_step);
  if (running().protocol == ProxyProtocol::kSimple) return slot;
  scratch.resize(std::max<std::size_t>(scratch.size(), bytes));
  read_lines(running().protocol, slot, scratch.data(), bytes);
  return scratch.data();
}

bool GpuStream::contents_arrived(const ReplayMove& move) {
  for (const std::uint32_t index : move.receives) {
    const ReplayEnd& end = ends_->at(index);
    const std::byte* got = payload(end, move.bytes, scratch_);
    const std::string wrong = difference(end, got, move.bytes);
    if (wrong.empty()) continue;
    if (running().protocol == ProxyProtocol::kSimple) throw ReplayFailed{wrong};
    suspect_ = wrong;
    return false;
  }
  return true;
}

std::string GpuStream::difference(const ReplayEnd& end, const std::byte* got, std::uint32_t bytes) const {
  const Difference found = compare_pattern(got, bytes, contents(end, end.messages));
  if (found.bytes == 0) return "";
  const std::string message = fmt::format("message {} from {} ({}, {} of {})", end.messages, end.plan().peer,
                                          end.text(), counted(bytes, "byte"), running().name);
  // Most often the slot holds another message of a connection of this rank.
  for (const ReplayEnd& other : *ends_) {
    if (other.plan().sends || bytes < 8) continue;
    const std::uint64_t first = other.messages > 32 ? other.messages - 32 : 0;
    for (std::uint64_t index = first; index < other.messages + 32; ++index) {
      if (compare_pattern(got, 8, contents(other, index)).bytes != 0) continue;
      return fmt::format("{}: the buffer holds message {} from {} ({})", message, index, other.plan().peer,
                         other.text());
    }
  }
  return fmt::format("{}: byte {} is 0x{:02x}, sent 0x{:02x}; {} of {} differ", message, found.offset, found.got,
                     found.expected, found.bytes, counted(bytes, "byte"));
}

void GpuStream::move_pattern(const ReplayMove& move) {
  for (const std::uint32_t index : move.sends) {
    ReplayEnd& end = ends_->at(index);
    const std::uint64_t seed = contents(end, end.messages);
    if (running().protocol == ProxyProtocol::kSimple) {
      fill_pattern(end.slot(running().protocol, end.gpu_step), move.bytes, seed);
    } else {
      sum_.resize(std::max<std::size_t>(sum_.size(), move.bytes));
      fill_pattern(sum_.data(), move.bytes, seed);
      send(end, sum_.data(), move.bytes);
    }
  }
}

void GpuStream::move_data(const ReplayMove& move) {
  const std::byte* source =
      move.source < 0 ? nullptr : static_cast<const std::byte*>(pointer(request_->input)) + move.source;
  const std::byte* value = source;
  if (!move.receives.empty()) {
    value = payload(ends_->at(move.receives.front()), move.bytes, scratch_);
    if (source != nullptr || move.receives.size() > 1) {
      sum_.resize(std::max<std::size_t>(sum_.size(), move.bytes));
      if (move.bytes != 0) std::memcpy(sum_.data(), value, move.bytes);
      if (source != nullptr) add_floats(sum_.data(), source, move.bytes);
      for (std::size_t i = 1; i < move.receives.size(); ++i)
        add_floats(sum_.data(), payload(ends_->at(move.receives[i]), move.bytes, scratch_), move.bytes);
      value = sum_.data();
    }
  }
  if (move.target >= 0 && move.bytes != 0)
    std::memcpy(static_cast<std::byte*>(pointer(request_->output)) + move.target, value, move.bytes);
  for (const std::uint32_t end : move.sends) send(ends_->at(end), value, move.bytes);
}

void GpuStream::send(ReplayEnd& end, const std::byte* payload, std::uint32_t bytes) {
  std::byte* slot = end.slot(running().protocol, end.gpu_step);
  if (running().protocol != ProxyProtocol::kSimple)
    write_lines(running().protocol, slot, payload, bytes, end.gpu_step);
  else if (bytes != 0)
    std::memcpy(slot, payload, bytes);
}

void GpuStream::pass(ReplayEnd& end, std::uint32_t bytes, bool sends) {
  const ProxyProtocol protocol = running().protocol;
  const std::size_t size = wire_size(protocol, bytes);
  if (sends)
    end.fifo[end.gpu_step % kSteps].size = static_cast<std::int64_t>(size);
  else
    std::memset(end.slot(protocol, end.gpu_step), kEmptyByte, std::min(size, kEmptied));
  ++end.messages;
  end.gpu_step += running().slice_steps;
  if (sends)
    end.tail = end.gpu_step;
  else
    end.head = static_cast<std::int64_t>(end.gpu_step);
}

std::string GpuStream::waits_for() const {
  if (finished()) return "";
  for (const Program& program : programs_) {
    if (program.next == program.plan->moves.size()) continue;
    const ReplayMove& move = program.plan->moves[program.next];
    for (const std::uint32_t index : move.receives) {
      ReplayEnd& end = ends_->at(index);
      if (can_receive(end, move.bytes)) continue;
      return fmt::format("message {} from {} ({}, {} of {}) never arrived", end.messages, end.plan().peer, end.text(),
                         counted(move.bytes, "byte"), running().name);
    }
    for (const std::uint32_t index : move.sends) {
      const ReplayEnd& end = ends_->at(index);
      if (can_send(end)) continue;
      return fmt::format("no slot for message {} to {} ({}, {} of {}) became free", end.messages, end.plan().peer,
                         end.text(), counted(move.bytes, "byte"), running().name);
    }
  }
  return "";
}

}  // namespace plugfest::rank
