#include "plugins/mesh/transfer/send_comm.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {
namespace {

// Twice the receives that the peer can have outstanding, so that an announcement always finds a posted receive.
constexpr std::uint32_t kAnnouncements = 2 * kMaxReceives;

// A message up to this size is one chunk.
constexpr std::size_t kWholeBytes = 128 * 1024;
constexpr std::size_t kChunkBytes = 1024 * 1024;
constexpr std::size_t kChunkUnit = 4096;
// With several lanes, a lane gets no further chunk while it has this much in flight, so that a fast lane gets more.
constexpr std::size_t kMaxInFlightOfSeveral = 8 * 1024 * 1024;

constexpr std::size_t kBatch = 16;
// Time in which the peer must answer the notice that a lane failed.
constexpr std::int64_t kAnswerMs = 10000;

}  // namespace

SendComm::SendComm(const std::vector<LaneStart>& starts)
    : Comm(starts,
           {.sends = WorkQueue::kMax,
            .inline_bytes = kInlineBytes,
            .receives = kAnnouncements,
            .receive_bytes = kMaxGroupBytes},
           kMaxSends, Arrival::kMaxChunks) {}

Result SendComm::send(const void* data, std::size_t bytes, int tag, const Registration* memory, void* profiler_handle,
                      void** request) {
  if (broken()) return report();
  if (bytes > 0 && (memory == nullptr || !memory->covers(data, bytes))) {
    MESH_WARN("isend of %zu bytes: the memory is not inside the registration of its mhandle", bytes);
    return Result::kInvalidArgument;
  }
  if (free_.empty()) {
    progress();
    return broken() ? report() : Result::kSuccess;
  }
  std::optional<Match> match = find(tag, bytes);
  if (!match) {
    progress();
    if (broken()) return report();
    match = find(tag, bytes);
  }
  if (!match) {
    if (bytes <= eager_.bytes() || eager_.bytes() == 0 || !slots_.may_be_eager(tag)) return Result::kSuccess;
    if (slots_.empty()) {
      ask_for_announcement();
      return Result::kSuccess;
    }
    MESH_WARN("isend of %zu bytes, tag %d: the matching receive has at most %u bytes", bytes, tag, eager_.bytes());
    return Result::kInvalidUsage;
  }
  if (bytes > match->slot.size || bytes > Arrival::kMaxPieces * piece_bytes_) {
    MESH_WARN("isend of %zu bytes, tag %d: the matching receive has %zu bytes", bytes, tag,
              static_cast<std::size_t>(match->slot.size));
    return Result::kInvalidUsage;
  }
  slots_.take(*match);

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  if (bytes > 0) taken.local_keys = memory->local_keys;
  // The CPU cannot read GPU memory.
  taken.is_inline = bytes > 0 && bytes <= kInlineBytes && !memory->of_gpu;
  if (taken.is_inline) std::memcpy(taken.inline_data.data(), data, bytes);
  taken.data = static_cast<const std::byte*>(data);
  taken.profiler_handle = profiler_handle;
  taken.memory.store(memory, std::memory_order_release);
  taken.bytes = bytes;
  taken.sequence = messages_sent_++;
  taken.match = *match;
  cut(taken);
  ++counters_.messages;
  counters_.bytes += bytes;
  posting_.push(index);
  to_post_ = true;
  // The next sends of the group probably follow at once. An eager message behind others waits for the next test, or for
  // enough messages, so that one call of the NIC posts several.
  const bool waits =
      match->eager ? lanes_.front().work().in_flight() != 0 && posting_.size() < kBatch / 2 : slots_.has_more(*match);
  if (!waits) post();
  if (broken()) return report();
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

void SendComm::use_bounce(const Bounce& bounce, std::uint32_t requested_bytes) {
  if (bounce.bytes == 0) return;
  if (bounce.bytes > requested_bytes || lanes_.size() != 1) {
    throw Failure(Result::kRemoteError, "the peer expects eager messages of " + std::to_string(bounce.bytes) +
                                            " bytes, not of " + std::to_string(requested_bytes) +
                                            ": use the same plugin on all ranks");
  }
  eager_.enable(bounce);
  slots_.enable_eager();
}

// The slot for a message; nullopt if it must wait.
std::optional<Match> SendComm::find(std::int32_t tag, std::size_t bytes) {
  std::optional<Match> match = slots_.find(tag);
  if (match || !eager_.has_room(bytes) || !slots_.may_be_eager(tag)) return match;
  return Match{.slot = eager_.take(tag), .eager = true};
}

void SendComm::ask_for_announcement() {
  if (eager_.must_ask(slots_.tagged(), coarse_now_ms()) && tell_eager(0)) eager_.asked();
}

void SendComm::on_eager(std::uint32_t copied) {
  if (eager_.on_copied(copied)) return;
  fail(Result::kRemoteError, peer_text() + " copied more messages than were sent: use the same plugin on all ranks");
}

// Sets the number and size of a message's chunks.
void SendComm::cut(Request& request) const {
  request.chunks = 1;
  request.next_chunk = request.done_chunks = 0;
  request.chunk_bytes = request.bytes;
  const std::size_t lanes = lanes_.size() > 1 ? lanes_up() : 1;
  if (lanes == 1 || request.bytes <= kWholeBytes) return;
  const std::size_t wanted =
      std::clamp<std::size_t>((request.bytes + kChunkBytes - 1) / kChunkBytes, lanes, Arrival::kMaxChunks);
  const std::size_t unit = wanted * kChunkUnit;
  request.chunk_bytes = (request.bytes + unit - 1) / unit * kChunkUnit;
  request.chunks = static_cast<std::uint8_t>((request.bytes + request.chunk_bytes - 1) / request.chunk_bytes);
}

// The lane with the least data in flight.
std::optional<std::size_t> SendComm::choose_lane() {
  if (lanes_.size() == 1) return lanes_.front().work().room() > 0 ? std::optional<std::size_t>(0) : std::nullopt;
  const bool several = lanes_up() > 1;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (!lane.up() || lane.work().room() == 0 || (several && lane.work().bytes_in_flight() >= kMaxInFlightOfSeveral))
      continue;
    if (!best || lane.work().bytes_in_flight() < lanes_[*best].work().bytes_in_flight()) best = i;
  }
  return best;
}

// Makes the next chunk the current one. Returns false if there is none.
bool SendComm::next_chunk() {
  if (!lost_.empty()) {
    current_ = lost_.front();
    lost_.pop_front();
    if (!is_current(current_->request, current_->generation)) {
      current_.reset();
      return next_chunk();
    }
  } else if (!posting_.empty()) {
    const std::uint8_t index = posting_.front();
    Request& request = requests_[index];
    current_ = Chunk{.request = index, .number = request.next_chunk++, .generation = request.generation};
    if (request.next_chunk == request.chunks) posting_.pop();
  } else {
    return false;
  }
  return true;
}

void SendComm::post_chunks() {
  while (!broken() && post_batch()) {
  }
  to_post_ = current_ || !lost_.empty() || !posting_.empty();
}

// Posts pieces for one lane together, and the last of them is signaled. Returns whether more may be left to post.
bool SendComm::post_batch() {
  std::array<ibv_send_wr, kBatch> writes;
  std::array<ibv_sge, kBatch> entries;
  std::size_t count = 0;
  std::size_t batch_lane = 0;
  bool more = false;
  while (current_ || next_chunk()) {
    std::optional<std::size_t>& chosen = current_->lane;
    if (!chosen) chosen = choose_lane();
    // A chunk that was begun on a failed lane waits until the peer has stopped that lane.
    if (!chosen || lanes_[*chosen].work().room() == 0 || !lanes_[*chosen].up()) break;
    more = count == kBatch || (count > 0 && batch_lane != *chosen);
    if (more) break;
    batch_lane = *chosen;
    Lane& lane = lanes_[batch_lane];

    const Request& request = requests_[current_->request];
    const std::size_t begin = current_->number * request.chunk_bytes;
    const std::size_t end = std::min(begin + request.chunk_bytes, request.bytes);
    const std::size_t offset = begin + current_->pieces * piece_bytes_;
    if (current_->pieces == 0 && events_.enabled()) {
      events_.start(current_->request, current_->number, request.profiler_handle,
                    lane.event(IBV_WR_RDMA_WRITE_WITH_IMM, end - begin));
    }
    const std::size_t left = end - offset;
    const bool last = left <= piece_bytes_;
    const auto bytes = static_cast<std::uint32_t>(last ? left : piece_bytes_);
    const bool is_inline = request.is_inline && bytes <= lane.queue_pair().inline_bytes();
    const std::byte* const data = is_inline ? request.inline_data.data() : request.data + offset;
    entries[count] = {
        .addr = reinterpret_cast<std::uintptr_t>(data), .length = bytes, .lkey = request.local_keys[batch_lane]};
    ibv_send_wr& write = writes[count];
    write = {};
    write.wr_id = lane.work().next_id();
    write.sg_list = &entries[count];
    write.num_sge = bytes > 0 ? 1 : 0;
    write.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    write.send_flags = is_inline ? IBV_SEND_INLINE : 0;
    write.wr.rdma.remote_addr = request.match.slot.address + offset;
    write.wr.rdma.rkey = request.match.slot.remote_keys[batch_lane];
    const Arrival arrival = {.group = request.match.group,
                             .index = request.match.index,
                             .chunks = request.chunks,
                             .pieces = current_->pieces};
    write.imm_data = htonl(request.match.eager ? Arrival::kEager : arrival.encode());
    if (count > 0) writes[count - 1].next = &write;
    ++count;
    lane.work().add({.request = current_->request,
                     .generation = current_->generation,
                     .part = current_->number,
                     .counted = last,
                     .bytes = bytes});
    ++current_->pieces;
    if (last) current_.reset();
  }
  if (count == 0) return false;
  writes[count - 1].send_flags |= IBV_SEND_SIGNALED;
  if (const int error = lanes_[batch_lane].queue_pair().post_send(writes.data())) {
    fail(Result::kSystemError,
         "cannot post a write to " + lanes_[batch_lane].device().name() + ": " + error_text(error));
  }
  return more;
}

void SendComm::on_done(const Work& work) {
  if (!work.counted || !is_current(work.request, work.generation)) return;
  Request& request = requests_[work.request];
  events_.stop(work.request, work.part);
  if (++request.done_chunks == request.chunks) set_done(request);
}

void SendComm::set_done(Request& request) {
  request.state = State::kDone;
  request.memory.store(nullptr, std::memory_order_release);
}

// Completes a request whose chunks are not all acknowledged.
void SendComm::finish(std::size_t request) {
  events_.stop_all(request);
  set_done(requests_[request]);
}

void SendComm::on_lost(std::size_t /*lane*/, const Work& work) {
  if (is_current(work.request, work.generation)) events_.stop(work.request, work.part);
  lost_.push_back(
      {.request = static_cast<std::uint8_t>(work.request), .number = work.part, .generation = work.generation});
}

void SendComm::on_switched() {
  // A chunk whose first pieces were posted to the failed lane starts again.
  if (current_ && current_->lane && lanes_[*current_->lane].settled()) {
    events_.stop(current_->request, current_->number);
    lost_.push_back({.request = current_->request, .number = current_->number, .generation = current_->generation});
    current_.reset();
  }
  to_post_ = true;
  post();
}

// The peer may have announced more receives since, and an older notice may arrive late on another lane.
void SendComm::on_idle(std::uint32_t groups) {
  if (groups == slots_.announced()) peer_idle_ = true;
}

// While a lane waits for the peer's notice, completes the sends of a peer whose receives are all done.
void SendComm::finish_by_idle() {
  for (std::size_t i = 0; peer_idle_ && i < requests_.size(); ++i)
    if (requests_[i].state == State::kActive && requests_[i].next_chunk == requests_[i].chunks &&
        !requests_[i].match.eager)
      finish(i);
}

// A receiver with outstanding receives tests them continuously, so it answers a notice soon.
void SendComm::limit_switching() {
  const bool waits = std::any_of(requests_.begin(), requests_.end(),
                                 [](const Request& request) { return request.state == State::kActive; });
  const std::int64_t now = coarse_now_ms();
  for (const Lane& lane : lanes_) {
    if (!waits || lane.up() || lane.settled() || now - lane.stopped_ms() < kAnswerMs) continue;
    return fail(Result::kRemoteError, lane.text() + " failed, and the peer did not say within " +
                                          std::to_string(kAnswerMs / 1000) +
                                          " s what it had received: its process hangs or no link to it works; check "
                                          "that host and its cables");
  }
}

void SendComm::on_received(const Lane& lane, const ibv_wc& completion) {
  const std::span bytes(lane.announcements().data() + completion.wr_id * kMaxGroupBytes,
                        std::min<std::size_t>(completion.byte_len, kMaxGroupBytes));
  if (!slots_.push(bytes, lanes_.size()))
    fail(Result::kRemoteError, peer_text() + " announced an invalid receive: use the same plugin on all ranks");
  peer_idle_ = false;
}

bool SendComm::uses(const Registration& memory) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const Request& request) { return request.memory.load(std::memory_order_acquire) == &memory; });
}

void SendComm::progress() {
  post();
  poll();
  if (broken()) return;
  post();
  if (lanes_.size() > 1 && switching()) {
    finish_by_idle();
    limit_switching();
  }
}

void SendComm::settle(std::optional<std::uint64_t> messages_received) {
  // Messages on several lanes may arrive in another order than their sends.
  if (lanes_.size() > 1 && messages_received != messages_sent_) return;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    if (request.state == State::kActive && request.sequence < messages_received.value_or(0)) finish(i);
  }
}

Result SendComm::test(const RequestId& id, int* done, int* sizes) {
  Request& request = requests_[id.index];
  if (request.generation != id.generation || request.state == State::kFree) {
    MESH_WARN("test: the send is not outstanding");
    return Result::kInvalidArgument;
  }
  if (request.state != State::kDone && !broken()) progress();
  if (request.state != State::kDone) {
    if (!broken()) return Result::kSuccess;
    events_.stop_all(id.index);
    return report();
  }
  request.state = State::kFree;
  free_.give_back(id.index);
  *done = 1;
  if (sizes != nullptr) *sizes = static_cast<int>(std::min<std::size_t>(request.bytes, INT_MAX));
  return Result::kSuccess;
}

}  // namespace mesh
