// Announces receives and collects arrivals.
#include "plugins/mesh/transfer/recv_comm.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

// Maximum number of announcements in flight. It exceeds the number of outstanding receives, since a receive may be done
// before its announcement is acknowledged.
constexpr std::uint32_t kAnnouncements = 2 * kMaxReceives;
// An announcement of 8 buffers on one lane.
constexpr std::uint32_t kInlineBytes = Group::kHeaderBytes + kMaxGroup * Slot::bytes(1);
// Each chunk that arrives takes one posted receive. An idle sender posts as many chunks as fit its send queue.
constexpr std::uint32_t kArrivals = Lane::kMostInFlight;
// On a single lane, one announcement of so many is signalled; its completion acknowledges the others.
constexpr std::uint32_t kSignalEvery = 16;
static_assert(kMaxReceives + kSignalEvery <= kAnnouncements);

}  // namespace

RecvComm::RecvComm(const std::vector<LaneStart>& starts)
    : Comm(starts,
           {.sends = kAnnouncements,
            .inline_bytes = kInlineBytes,
            .receives = kArrivals,
            .announcement_bytes = kAnnouncements * sizeof(Group),
            .remote_write = true},
           kMaxReceives, kMaxGroup) {}

bool RecvComm::may_announce() const { return !free_.empty() && in_flight_ < kAnnouncements && !switching(); }

Result RecvComm::receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                         void* const* profiler_handles, void** request) {
  if (broken()) return report();
  if (count < 1 || count > kMaxGroup) {
    MESH_WARN("irecv of %d buffers: expected 1 to %d (maxRecvs)", count, kMaxGroup);
    return Result::kInvalidUsage;
  }
  if (!may_announce()) {
    poll();
    if (broken()) return report();
    if (!may_announce()) return Result::kSuccess;
  }
  const std::size_t lane = first_lane_up();
  // The last announcement in this place is acknowledged: announcements are acknowledged in order, and fewer than
  // kAnnouncements are in flight.
  const auto place = static_cast<std::uint16_t>(groups_ % kAnnouncements);
  std::byte* const begin = lanes_[lane].announcements().data() + place * sizeof(Group);
  std::byte* end = write_header(groups_, static_cast<std::uint32_t>(count), begin);
  for (int i = 0; i < count; ++i) {
    const auto* registration = static_cast<const Registration*>(memory[i]);
    if (sizes[i] > 0 && (registration == nullptr || !registration->covers(data[i], sizes[i]))) {
      MESH_WARN("irecv of %zu bytes: the memory is not inside the registration of its mhandle", sizes[i]);
      return Result::kInvalidArgument;
    }
    Slot slot = {.address = reinterpret_cast<std::uintptr_t>(data[i]), .size = sizes[i], .tag = tags[i]};
    if (sizes[i] > 0) slot.remote_keys = registration->remote_keys;
    end = write_slot(slot, lanes_.size(), end);
  }
  ++in_flight_;
  post_announcement(lane, place, static_cast<std::uint32_t>(end - begin));
  if (broken()) return report();

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  taken.missing = (1u << count) - 1;
  taken.group = groups_;
  taken.count = count;
  for (int i = 0; i < count; ++i) {
    Buffer& buffer = taken.buffers[static_cast<std::size_t>(i)];
    buffer.memory.store(static_cast<const Registration*>(memory[i]), std::memory_order_release);
    buffer.posted_bytes = sizes[i];
    buffer.received_bytes = 0;
    buffer.chunks = buffer.arrived = 0;
  }
  for (int i = 0; i < count && profiler_handles != nullptr && events_.enabled(); ++i) {
    events_.start(index, static_cast<std::size_t>(i), profiler_handles[i],
                  lanes_[lane].event(IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i]));
  }
  request_of_group_[groups_ % Arrival::kGroupModulus] = static_cast<std::uint8_t>(index);
  ++groups_;
  ++outstanding_;
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

void RecvComm::post_announcement(std::size_t index, std::uint16_t place, std::uint32_t bytes) {
  Lane& lane = lanes_[index];
  const StagingMemory& memory = lane.announcements();
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(memory.data() + place * sizeof(Group)),
                   .length = bytes,
                   .lkey = memory.local_key()};
  ibv_send_wr send = {};
  send.wr_id = lane.next_id();
  send.sg_list = &entry;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  if (lanes_.size() > 1 || place % kSignalEvery == kSignalEvery - 1) send.send_flags = IBV_SEND_SIGNALED;
  if (bytes <= lane.queue_pair().inline_bytes()) send.send_flags |= IBV_SEND_INLINE;
  if (const int error = lane.queue_pair().post_send(&send)) {
    return fail(Result::kSystemError, "cannot post a send to " + lane.device().name() + ": " + error_text(error));
  }
  lane.add({.request = place, .generation = 0, .part = 0, .counted = true, .bytes = bytes});
}

void RecvComm::on_done(const Lane::Work&) { --in_flight_; }

void RecvComm::on_lost(std::size_t lane, const Lane::Work& work) {
  const std::size_t next = first_lane_up();
  const std::size_t offset = work.request * sizeof(Group);
  std::memcpy(lanes_[next].announcements().data() + offset, lanes_[lane].announcements().data() + offset, work.bytes);
  post_announcement(next, work.request, work.bytes);
}

void RecvComm::on_received(const Lane& /*lane*/, const ibv_wc& completion) {
  const Arrival arrival = Arrival::decode(ntohl(completion.imm_data));
  Request& request = requests_[request_of_group_[arrival.group]];
  Buffer& buffer = request.buffers[arrival.index];
  const std::size_t bytes = buffer.received_bytes + arrival.pieces * piece_bytes_ + completion.byte_len;
  const bool expected = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM && request.state == State::kActive &&
                        request.group % Arrival::kGroupModulus == arrival.group &&
                        (request.missing >> arrival.index & 1) != 0 && bytes <= buffer.posted_bytes &&
                        (buffer.chunks == 0 || buffer.chunks == arrival.chunks);
  if (!expected) {
    return fail(Result::kRemoteError,
                peer_text() + " wrote to a buffer that was not announced: use the same plugin on all ranks");
  }
  buffer.chunks = arrival.chunks;
  buffer.received_bytes = bytes;
  if (++buffer.arrived < buffer.chunks) return;
  request.missing &= ~(1u << arrival.index);
  buffer.memory.store(nullptr, std::memory_order_release);
  events_.stop(request_of_group_[arrival.group], arrival.index);
  ++counters_.messages;
  counters_.bytes += bytes;
}

bool RecvComm::uses(const Registration& memory) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const Request& request) {
    return std::any_of(request.buffers.begin(), request.buffers.end(),
                       [&](const Buffer& each) { return each.memory.load(std::memory_order_acquire) == &memory; });
  });
}

// Each NIC reads one byte of the last buffer: its earlier writes, also those to other buffers, are ordered before it.
Result RecvComm::flush(int count, void** data, const int* sizes, void** memory, void** request) {
  if (broken()) return report();
  const Registration* last = nullptr;
  std::uint64_t address = 0;
  for (int i = 0; i < count; ++i) {
    const auto* registration = static_cast<const Registration*>(memory[i]);
    if (sizes[i] <= 0 || registration == nullptr || !registration->of_gpu) continue;
    last = registration;
    address = reinterpret_cast<std::uintptr_t>(data[i]);
  }
  if (last == nullptr) return Result::kSuccess;
  if (!last->covers(reinterpret_cast<const void*>(address), 1)) {
    MESH_WARN("iflush: the memory is not inside the registration of its mhandle");
    return Result::kInvalidArgument;
  }
  if (free_flushes_.empty()) {
    MESH_WARN("iflush: more than %d flushes are outstanding", kMaxReceives);
    return Result::kInvalidUsage;
  }
  const std::size_t index = free_flushes_.take();
  FlushRequest& taken = flush_requests_[index];
  taken = {.state = State::kActive, .generation = static_cast<std::uint16_t>(taken.generation + 1), .reads = 0};
  for (std::size_t lane = 0; lane < flushes_.size(); ++lane) {
    if (!flushes_[lane]) continue;
    if (const int error = flushes_[lane]->post(index, address, last->remote_keys[lane])) {
      fail(Result::kSystemError, "cannot post a flush to " + lanes_[lane].device().name() + ": " + error_text(error));
      return report();
    }
    ++taken.reads;
  }
  *request = request_id(kMaxReceives + index, taken.generation).pointer();
  return Result::kSuccess;
}

void RecvComm::poll_flushes() {
  for (std::size_t lane = 0; lane < flushes_.size(); ++lane) {
    std::array<ibv_wc, 16> completions;
    const int count = flushes_[lane] ? flushes_[lane]->poll(completions) : 0;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& each = completions[static_cast<std::size_t>(i)];
      if (each.status != IBV_WC_SUCCESS) {
        return fail(Result::kSystemError, "a flush of GPU memory through " + lanes_[lane].device().name() +
                                              " failed: " + ibv_wc_status_str(each.status));
      }
      --flush_requests_[each.wr_id].reads;
    }
  }
}

Result RecvComm::test_flush(const RequestId& id, int* done) {
  const std::size_t index = id.index - kMaxReceives;
  if (index >= flush_requests_.size() || flush_requests_[index].generation != id.generation ||
      flush_requests_[index].state == State::kFree) {
    MESH_WARN("test: the flush is not outstanding");
    return Result::kInvalidArgument;
  }
  FlushRequest& request = flush_requests_[index];
  if (request.reads > 0 && !broken()) poll_flushes();
  if (request.reads > 0) return broken() ? report() : Result::kSuccess;
  request.state = State::kFree;
  free_flushes_.give_back(index);
  *done = 1;
  return Result::kSuccess;
}

Result RecvComm::test(const RequestId& id, int* done, int* sizes) {
  if (id.index >= kMaxReceives) return test_flush(id, done);
  if (requests_[id.index].generation != id.generation || requests_[id.index].state == State::kFree) {
    MESH_WARN("test: the receive is not outstanding");
    return Result::kInvalidArgument;
  }
  Request& request = requests_[id.index];
  if (request.missing != 0 && !broken()) poll();
  if (request.missing != 0) {
    if (!broken()) return Result::kSuccess;
    events_.stop_all(id.index);
    return report();
  }
  if (--outstanding_ == 0 && lanes_.size() > 1 && !broken()) tell_idle(groups_);
  request.state = State::kFree;
  free_.give_back(id.index);
  *done = 1;
  if (sizes != nullptr) {
    for (int i = 0; i < request.count; ++i) {
      const Buffer& buffer = request.buffers[static_cast<std::size_t>(i)];
      sizes[i] = static_cast<int>(std::min<std::size_t>(buffer.received_bytes, INT_MAX));
    }
  }
  return Result::kSuccess;
}

}  // namespace mesh
