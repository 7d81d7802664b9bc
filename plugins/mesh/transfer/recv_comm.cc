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
// Receives are posted again this many at a time.
constexpr std::uint32_t kBatch = 16;

}  // namespace

RecvComm::RecvComm(const std::vector<LaneStart>& starts)
    : Comm(starts,
           {.send = kAnnouncements, .receive = kArrivals + kBatch + Lane::kNotices, .inline_bytes = kInlineBytes}, true,
           kAnnouncements * sizeof(Group), kMaxReceives, kMaxGroup) {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) post_arrivals(lane, kArrivals + kBatch + Lane::kNotices);
  if (broken()) throw Failure(Result::kSystemError, "cannot post receives to " + starts.front().device->name());
}

// Posts receives without a buffer. They take the immediate values of the sender's writes.
void RecvComm::post_arrivals(std::size_t lane, std::uint32_t count) {
  std::array<ibv_recv_wr, kBatch> receives = {};
  while (count > 0 && !broken()) {
    const std::uint32_t batch = std::min<std::uint32_t>(count, receives.size());
    for (std::uint32_t i = 0; i < batch; ++i) receives[i].next = i + 1 < batch ? &receives[i + 1] : nullptr;
    if (const int error = lanes_[lane].queue_pair().post_receive(receives.data())) {
      fail(Result::kSystemError, "cannot post a receive to " + lanes_[lane].device().name() + ": " + error_text(error));
    }
    count -= batch;
  }
}

void RecvComm::post_receives(std::size_t lane, std::span<const std::uint64_t> ids) {
  to_post_[lane] += static_cast<std::uint32_t>(ids.size());
  if (to_post_[lane] < kBatch) return;
  post_arrivals(lane, to_post_[lane]);
  to_post_[lane] = 0;
}

bool RecvComm::may_announce() const { return !free_.empty() && in_flight_ < kAnnouncements && !switching(); }

Result RecvComm::receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                         void* const* profiler_handles, void** request) {
  const std::lock_guard lock(mutex_);
  if (broken()) return report();
  if (count < 1 || count > kMaxGroup) {
    MESH_WARN("irecv of %d buffers: expected 1 to %d (maxRecvs)", count, kMaxGroup);
    return Result::kInvalidUsage;
  }
  Group group;
  group.number = groups_;
  group.count = static_cast<std::uint32_t>(count);
  for (int i = 0; i < count; ++i) {
    const auto* registration = static_cast<const Registration*>(memory[i]);
    if (sizes[i] > 0 && (registration == nullptr || !registration->covers(data[i], sizes[i]))) {
      MESH_WARN("irecv of %zu bytes: the memory is not inside the registration of its mhandle", sizes[i]);
      return Result::kInvalidArgument;
    }
    Slot& slot = group.slots[static_cast<std::size_t>(i)];
    slot.address = reinterpret_cast<std::uintptr_t>(data[i]);
    slot.size = sizes[i];
    slot.tag = tags[i];
    for (std::size_t lane = 0; lane < lanes_.size() && sizes[i] > 0; ++lane) {
      slot.remote_keys[lane] = registration->remote_keys[lane];
    }
  }
  if (!may_announce()) {
    poll();
    if (broken()) return report();
    if (!may_announce()) return Result::kSuccess;
  }
  const std::size_t lane = first_lane_up();
  if (!announce(group)) return report();

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  taken.missing = (1u << count) - 1;
  taken.group = group.number;
  taken.count = count;
  for (int i = 0; i < count; ++i)
    taken.buffers[static_cast<std::size_t>(i)] = {.memory = static_cast<const Registration*>(memory[i]),
                                                  .posted_bytes = sizes[i]};
  for (int i = 0; i < count && profiler_handles != nullptr && events_.enabled(); ++i) {
    events_.start(index, static_cast<std::size_t>(i), profiler_handles[i],
                  lanes_[lane].event(IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i]));
  }
  request_of_group_[group.number % Arrival::kGroupModulus] = static_cast<std::uint8_t>(index);
  ++groups_;
  ++outstanding_;
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

bool RecvComm::announce(const Group& group) {
  // The last announcement in this place is acknowledged: announcements are acknowledged in order, and fewer than
  // kAnnouncements are in flight.
  const std::size_t lane = first_lane_up();
  const auto place = static_cast<std::uint16_t>(group.number % kAnnouncements);
  write_group(group, lanes_.size(), announcements_[lane]->data() + place * sizeof(Group));
  ++in_flight_;
  post_announcement(lane, place, static_cast<std::uint32_t>(group.bytes(lanes_.size())));
  return !broken();
}

void RecvComm::post_announcement(std::size_t index, std::uint16_t place, std::uint32_t bytes) {
  Lane& lane = lanes_[index];
  StagingMemory& memory = *announcements_[index];
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(memory.data() + place * sizeof(Group)),
                   .length = bytes,
                   .lkey = memory.local_key()};
  ibv_send_wr send = {};
  send.wr_id = lane.next_id();
  send.sg_list = &entry;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
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
  std::memcpy(announcements_[next]->data() + offset, announcements_[lane]->data() + offset, work.bytes);
  post_announcement(next, work.request, work.bytes);
}

void RecvComm::on_received(std::size_t /*lane*/, const ibv_wc& completion) {
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
  events_.stop(request_of_group_[arrival.group], arrival.index);
  ++counters_.messages;
  counters_.bytes += bytes;
}

bool RecvComm::uses(const Registration& memory) const {
  for (const Request& each : requests_) {
    for (std::size_t i = 0; i < kMaxGroup && each.state == State::kActive; ++i) {
      if ((each.missing >> i & 1) != 0 && each.buffers[i].memory == &memory) {
        return true;
      }
    }
  }
  return false;
}

// Each NIC reads one byte of the last buffer: its earlier writes, also those to other buffers, are ordered before it.
Result RecvComm::flush(int count, void** data, const int* sizes, void** memory, void** request) {
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
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
