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
// Each announced buffer takes one posted receive.
constexpr std::uint32_t kArrivals = kMaxSends;

enum Kind : std::uint64_t { kArrival = 0, kAnnouncement = 1 };

}  // namespace

RecvComm::RecvComm(std::shared_ptr<const Device> device, const Address& local)
    : Comm(device, local, {.send = kAnnouncements, .receive = kArrivals, .inline_bytes = sizeof(Group)}, true,
           kAnnouncements * sizeof(Group)) {
  post_arrivals(kArrivals);
  if (broken()) throw Failure(Result::kSystemError, "cannot post receives to " + device->name());
}

void RecvComm::start(const Endpoint& remote, const Transport& transport) {
  const std::lock_guard lock(mutex_);
  piece_bytes_ = piece_bytes(endpoint(), remote);
  connect_to(remote, transport);
}

// Posts receives without a buffer. They take the immediate values of the sender's writes.
void RecvComm::post_arrivals(std::uint32_t count) {
  std::array<ibv_recv_wr, 16> receives = {};
  while (count > 0 && !broken()) {
    const std::uint32_t batch = std::min<std::uint32_t>(count, receives.size());
    for (std::uint32_t i = 0; i < batch; ++i) {
      receives[i].wr_id = static_cast<std::uint64_t>(kArrival) << 32;
      receives[i].next = i + 1 < batch ? &receives[i + 1] : nullptr;
    }
    if (const int error = queue_pair_->post_receive(receives.data())) {
      fail(Result::kSystemError, "cannot post a receive to " + device_->name() + ": " + error_text(error));
    }
    count -= batch;
  }
}

Result RecvComm::receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                         void** request) {
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
    group.slots[static_cast<std::size_t>(i)] = {.address = reinterpret_cast<std::uintptr_t>(data[i]),
                                                .size = sizes[i],
                                                .remote_key = sizes[i] > 0 ? registration->region->rkey : 0,
                                                .tag = tags[i]};
  }
  if (free_.empty() || in_flight_ == kAnnouncements) {
    progress();
    if (broken()) return report();
    if (free_.empty() || in_flight_ == kAnnouncements) return Result::kSuccess;
  }
  if (!announce(group)) return report();

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  taken.missing = (1u << count) - 1;
  taken.group = group.number;
  taken.count = count;
  for (int i = 0; i < count; ++i) taken.posted_bytes[static_cast<std::size_t>(i)] = sizes[i];
  taken.received_bytes.fill(0);
  request_of_group_[group.number % Arrival::kGroupModulus] = static_cast<std::uint8_t>(index);
  ++groups_;
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

bool RecvComm::announce(const Group& group) {
  // The last announcement in this buffer is acknowledged: announcements are acknowledged in order, and fewer than
  // kAnnouncements are in flight.
  std::byte* buffer = announcements_->data() + group.number % kAnnouncements * sizeof(Group);
  std::memcpy(buffer, &group, group.bytes());
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(buffer),
                   .length = static_cast<std::uint32_t>(group.bytes()),
                   .lkey = announcements_->local_key()};
  ibv_send_wr send = {};
  send.wr_id = static_cast<std::uint64_t>(kAnnouncement) << 32;
  send.sg_list = &entry;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = group.bytes() <= queue_pair_->inline_bytes() ? IBV_SEND_INLINE : 0;
  if (const int error = queue_pair_->post_send(&send)) {
    fail(Result::kSystemError, "cannot post a send to " + device_->name() + ": " + error_text(error));
    return false;
  }
  ++in_flight_;
  return true;
}

int RecvComm::poll() {
  std::array<ibv_wc, 16> completions;
  const int count = queue_pair_->poll(completions);
  if (count < 0) fail(Result::kSystemError, "cannot poll the completions of " + device_->name());
  std::uint32_t arrived = 0;
  for (int i = 0; i < count; ++i) {
    const ibv_wc& each = completions[static_cast<std::size_t>(i)];
    const auto kind = static_cast<Kind>(each.wr_id >> 32);
    if (kind == kAnnouncement) --in_flight_;
    if (each.status != IBV_WC_SUCCESS) {
      fail_by(each);
    } else if (kind == kArrival) {
      take_arrival(each);
      ++arrived;
    }
  }
  if (arrived > 0) post_arrivals(arrived);
  return count;
}

void RecvComm::take_arrival(const ibv_wc& completion) {
  const Arrival arrival = Arrival::decode(ntohl(completion.imm_data));
  Request& request = requests_[request_of_group_[arrival.group]];
  const std::size_t bytes = arrival.pieces * piece_bytes_ + completion.byte_len;
  const bool expected = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM && request.state == State::kActive &&
                        request.group % Arrival::kGroupModulus == arrival.group &&
                        (request.missing >> arrival.index & 1) != 0 && bytes <= request.posted_bytes[arrival.index];
  if (!expected) {
    return fail(Result::kRemoteError,
                peer_text() + " wrote to a buffer that was not announced: use the same plugin on all ranks");
  }
  request.missing &= ~(1u << arrival.index);
  request.received_bytes[arrival.index] = bytes;
  ++messages_received_;
}

void RecvComm::progress() {
  if (poll() == 0) check_peer();
}

Result RecvComm::test(const RequestId& id, int* done, int* sizes) {
  const std::lock_guard lock(mutex_);
  if (id.index >= kMaxReceives || requests_[id.index].generation != id.generation ||
      requests_[id.index].state == State::kFree) {
    MESH_WARN("test: the receive is not outstanding");
    return Result::kInvalidArgument;
  }
  Request& request = requests_[id.index];
  if (request.missing != 0 && !broken()) progress();
  if (request.missing != 0) return broken() ? report() : Result::kSuccess;
  request.state = State::kFree;
  free_.give_back(id.index);
  *done = 1;
  if (sizes != nullptr) {
    for (int i = 0; i < request.count; ++i) {
      sizes[i] = static_cast<int>(std::min<std::size_t>(request.received_bytes[static_cast<std::size_t>(i)], INT_MAX));
    }
  }
  return Result::kSuccess;
}

}  // namespace mesh
