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
// Each chunk that arrives takes one posted receive. An idle sender posts as many chunks as its send queue holds.
constexpr std::uint32_t kArrivals = WorkQueue::kMax;
// On a single lane, every kSignalEvery-th announcement is signaled; its completion acknowledges the others.
constexpr std::uint32_t kSignalEvery = 16;
static_assert(kMaxReceives + kSignalEvery <= kAnnouncements);

// A connection with several lanes or relays has no eager messages.
std::uint32_t usable(const std::vector<LaneStart>& starts, std::uint32_t eager_bytes) {
  return starts.size() == 1 && starts.front().local != kRelayed ? eager_bytes : 0;
}

}  // namespace

RecvComm::RecvComm(const std::vector<LaneStart>& starts, std::uint32_t eager_bytes)
    : Comm(starts,
           {.sends = kAnnouncements,
            .inline_bytes = kInlineBytes,
            .receives = kArrivals,
            .announcement_bytes = kAnnouncements * kMaxGroupBytes,
            .bounce_bytes = std::size_t{kBounceSlots} * usable(starts, eager_bytes),
            .remote_write = true},
           kMaxReceives, kMaxGroup),
      eager_(usable(starts, eager_bytes)) {}

Bounce RecvComm::bounce() const {
  if (eager_.bytes() == 0) return {};
  const StagingMemory& memory = lanes_.front().bounce();
  return {.bytes = eager_.bytes(),
          .remote_key = memory.remote_key(),
          .address = reinterpret_cast<std::uintptr_t>(memory.data())};
}

bool RecvComm::may_announce() const { return !free_.empty() && in_flight_ < kAnnouncements && !switching(); }

// Whether the receive must be announced: its message has not arrived and is not sent without an announcement.
bool RecvComm::awaits_announcement(int count, std::size_t bytes, int tag) const {
  return count != 1 || eager_.tag() != tag || eager_.awaits_announcement(bytes);
}

Result RecvComm::receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                         void* const* profiler_handles, void** request) {
  // The sender of an eager message may have left: its send was done.
  const bool arrived = eager_.waiting() > 0 && count == 1 && eager_.tag() == tags[0];
  if (broken() && (!arrived || lanes_.empty())) return report();
  if (count < 1 || count > kMaxGroup) {
    MESH_WARN("irecv of %d buffers: expected 1 to %d (maxRecvs)", count, kMaxGroup);
    return Result::kInvalidUsage;
  }
  const bool announced = awaits_announcement(count, sizes[0], tags[0]);
  if (announced ? !may_announce() : free_.empty()) {
    if (broken()) return report();
    poll();
    if (broken()) return report();
    if (!may_announce()) return Result::kSuccess;
  }
  for (int i = 0; i < count; ++i) {
    const auto* registration = static_cast<const Registration*>(memory[i]);
    if (sizes[i] > 0 && (registration == nullptr || !registration->covers(data[i], sizes[i]))) {
      MESH_WARN("irecv of %zu bytes: the memory is not inside the registration of its mhandle", sizes[i]);
      return Result::kInvalidArgument;
    }
  }
  if (eager_.bytes() != 0 && groups_ == 0 && count == 1) eager_.set_tag(tags[0]);

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  taken.missing = (1u << count) - 1;
  taken.announced = false;
  taken.count = count;
  for (int i = 0; i < count; ++i) {
    Buffer& buffer = taken.buffers[static_cast<std::size_t>(i)];
    const auto* registration = static_cast<const Registration*>(memory[i]);
    buffer.memory.store(registration, std::memory_order_release);
    if (sizes[i] > 0) buffer.remote_keys = registration->remote_keys;
    buffer.data = static_cast<std::byte*>(data[i]);
    buffer.tagged = eager_.tag() == tags[i];
    buffer.posted_bytes = sizes[i];
    buffer.received_bytes = 0;
    buffer.chunks = buffer.arrived = 0;
  }
  if (announced) announce(index, tags, eager_.buffers());
  for (int i = 0; i < count && profiler_handles != nullptr && events_.enabled(); ++i) {
    events_.start(index, static_cast<std::size_t>(i), profiler_handles[i],
                  lanes_[broken() ? 0 : first_lane_up()].event(IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i]));
  }
  for (int i = 0; i < count; ++i) {
    if (!taken.buffers[static_cast<std::size_t>(i)].tagged) continue;
    const EagerReceiver::Place place = {static_cast<std::uint8_t>(index), static_cast<std::uint8_t>(i)};
    eager_.add(place);
    if (eager_.waiting() > 0) copy_eager(place);
  }
  if (broken() && taken.missing != 0) {
    taken.state = State::kFree;
    free_.give_back(index);
    return report();
  }
  ++outstanding_;
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

// `tagged`: number of buffers with the eager tag before this receive.
void RecvComm::announce(std::size_t index, const int* tags, std::uint32_t tagged) {
  Request& request = requests_[index];
  const std::size_t lane = first_lane_up();
  // The last announcement in this memory is acknowledged: announcements are acknowledged in order, and fewer than
  // kAnnouncements are in flight.
  const auto place = static_cast<std::uint16_t>(groups_ % kAnnouncements);
  std::byte* const begin = lanes_[lane].announcements().data() + place * kMaxGroupBytes;
  std::byte* end = write_header(groups_, static_cast<std::uint32_t>(request.count), tagged, begin);
  for (std::size_t i = 0; i < static_cast<std::size_t>(request.count); ++i) {
    const Buffer& buffer = request.buffers[i];
    const Slot slot = {.address = reinterpret_cast<std::uintptr_t>(buffer.data),
                       .size = buffer.posted_bytes,
                       .tag = tags[i],
                       .remote_keys = buffer.remote_keys};
    end = write_slot(slot, lanes_.size(), end);
  }
  ++in_flight_;
  post_announcement(lane, place, static_cast<std::uint32_t>(end - begin));
  request.announced = true;
  request.group = groups_;
  request_of_group_[groups_ % Arrival::kGroupModulus] = static_cast<std::uint8_t>(index);
  ++groups_;
}

void RecvComm::on_eager_message(const ibv_wc& completion) {
  if (!eager_.accepts(completion.byte_len))
    return fail(Result::kRemoteError, peer_text() + " sent an invalid eager message: use the same plugin on all ranks");
  ++counters_.messages;
  counters_.bytes += completion.byte_len;
  if (const EagerReceiver::Place* place = eager_.arrive(completion.byte_len)) copy_eager(*place);
}

// Copies the oldest message of the bounce slots to its buffer.
void RecvComm::copy_eager(EagerReceiver::Place place) {
  Buffer& buffer = requests_[place.request].buffers[place.part];
  const auto [slot, bytes] = eager_.oldest();
  if (bytes > buffer.posted_bytes) {
    return fail(Result::kInvalidUsage,
                "a message of " + std::to_string(bytes) + " bytes, tag " + std::to_string(*eager_.tag()) + ", from " +
                    peer_text() + ": the matching receive has " + std::to_string(buffer.posted_bytes) + " bytes");
  }
  const std::span<const std::byte> source(lanes_.front().bounce().data() + std::size_t{slot} * eager_.bytes(), bytes);
  if (bytes > 0 && !copy_to(buffer.memory.load(std::memory_order_relaxed), buffer.data, source)) return;
  eager_.copied();
  buffer.received_bytes = bytes;
  fill(place);
  tell_copied();
}

void RecvComm::fill(EagerReceiver::Place place) {
  requests_[place.request].missing &= ~(1u << place.part);
  requests_[place.request].buffers[place.part].memory.store(nullptr, std::memory_order_release);
  events_.stop(place.request, place.part);
}

void RecvComm::tell_copied() {
  const std::optional<std::uint32_t> copied = eager_.to_tell();
  if (copied && tell_eager(*copied)) eager_.told();
}

// The sender has a large message with the eager tag. Its receive is small if it is not announced.
void RecvComm::on_eager(std::uint32_t /*value*/) {
  if (!eager_.tag())
    return fail(Result::kRemoteError, peer_text() + " sent an invalid notice: use the same plugin on all ranks");
  const EagerReceiver::Place* place = eager_.ask();
  if (place == nullptr || in_flight_ == kAnnouncements || requests_[place->request].announced) return;
  const std::int32_t tag = *eager_.tag();
  announce(place->request, &tag, eager_.messages());
}

void RecvComm::post_announcement(std::size_t index, std::uint16_t place, std::uint32_t bytes) {
  Lane& lane = lanes_[index];
  const StagingMemory& memory = lane.announcements();
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(memory.data() + place * kMaxGroupBytes),
                   .length = bytes,
                   .lkey = memory.local_key()};
  ibv_send_wr send = {};
  send.wr_id = lane.work().next_id();
  send.sg_list = &entry;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  if (lanes_.size() > 1 || place % kSignalEvery == kSignalEvery - 1) send.send_flags = IBV_SEND_SIGNALED;
  if (bytes <= lane.queue_pair().inline_bytes()) send.send_flags |= IBV_SEND_INLINE;
  if (const int error = lane.queue_pair().post_send(&send))
    return fail(Result::kSystemError, "cannot post a send to " + lane.device().name() + ": " + error_text(error));
  lane.work().add({.request = place, .generation = 0, .part = 0, .counted = true, .bytes = bytes});
}

void RecvComm::on_done(const Work&) { --in_flight_; }

void RecvComm::on_lost(std::size_t lane, const Work& work) {
  const std::size_t next = first_lane_up();
  const std::size_t offset = work.request * kMaxGroupBytes;
  std::memcpy(lanes_[next].announcements().data() + offset, lanes_[lane].announcements().data() + offset, work.bytes);
  post_announcement(next, work.request, work.bytes);
}

void RecvComm::on_received(const Lane& /*lane*/, const ibv_wc& completion) {
  if (ntohl(completion.imm_data) == Arrival::kEager && completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
    return on_eager_message(completion);
  const Arrival arrival = Arrival::decode(ntohl(completion.imm_data));
  Request& request = requests_[request_of_group_[arrival.group]];
  Buffer& buffer = request.buffers[arrival.index];
  const std::size_t bytes = buffer.received_bytes + arrival.pieces * piece_bytes_ + completion.byte_len;
  const bool expected = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM && request.state == State::kActive &&
                        request.announced && request.group % Arrival::kGroupModulus == arrival.group &&
                        (request.missing >> arrival.index & 1) != 0 && bytes <= buffer.posted_bytes &&
                        (buffer.chunks == 0 || buffer.chunks == arrival.chunks);
  if (!expected) {
    return fail(Result::kRemoteError,
                peer_text() + " wrote to a buffer that was not announced: use the same plugin on all ranks");
  }
  buffer.chunks = arrival.chunks;
  buffer.received_bytes = bytes;
  if (++buffer.arrived < buffer.chunks) return;
  const EagerReceiver::Place place = {request_of_group_[arrival.group], static_cast<std::uint8_t>(arrival.index)};
  if (const EagerReceiver::Place* next = buffer.tagged ? eager_.count_message() : &place; !next || *next != place)
    return fail(Result::kRemoteError, peer_text() + " sent messages out of order: use the same plugin on all ranks");
  fill(place);
  ++counters_.messages;
  counters_.bytes += bytes;
}

bool RecvComm::uses(const Registration& memory) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const Request& request) {
    return std::any_of(request.buffers.begin(), request.buffers.end(),
                       [&](const Buffer& buffer) { return buffer.memory.load(std::memory_order_acquire) == &memory; });
  });
}

// Each NIC reads one byte of the last buffer: its earlier writes, even to other buffers, are ordered before it.
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
  if (flushes_.full()) {
    MESH_WARN("iflush: more than %zu flushes are outstanding", Flushes::kMax);
    return Result::kInvalidUsage;
  }
  try {
    const std::size_t index = flushes_.start(address, *last);
    *request = request_id(kMaxReceives + index, flushes_.generation(index)).pointer();
    return Result::kSuccess;
  } catch (const Failure& error) {
    fail(error.code(), error.what());
    return report();
  }
}

Result RecvComm::test_flush(const RequestId& id, int* done) {
  // The requests of flushes have the indexes after the requests of receives.
  const std::size_t index = id.index - kMaxReceives;
  if (!flushes_.is_active(index, id.generation)) {
    MESH_WARN("test: the flush is not outstanding");
    return Result::kInvalidArgument;
  }
  if (!flushes_.is_done(index) && !broken()) {
    try {
      flushes_.poll();
    } catch (const Failure& error) {
      fail(error.code(), error.what());
    }
  }
  if (!flushes_.is_done(index)) return broken() ? report() : Result::kSuccess;
  flushes_.release(index);
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
  tell_copied();
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
