// Matches sends to announced slots, writes, and collects acknowledgements.
#include "plugins/mesh/transfer/send_comm.h"

#include <algorithm>
#include <climits>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

// Number of posted receives for announcements: twice the receives that the peer can have outstanding, so that an
// announcement always finds one.
constexpr std::uint32_t kAnnouncements = 2 * kMaxReceives;
constexpr std::uint32_t kWrites = kMaxSends;
constexpr std::uint32_t kInlineBytes = 64;

// The upper half of wr_id. The lower half is the index of the announcement's buffer or of the request.
enum Kind : std::uint64_t { kAnnouncement = 0, kPiece = 1, kLastPiece = 2 };
constexpr std::uint64_t work_id(Kind kind, std::size_t index) { return static_cast<std::uint64_t>(kind) << 32 | index; }

}  // namespace

SendComm::SendComm(std::shared_ptr<const Device> device, const Address& local)
    : Comm(device, local, {.send = kWrites, .receive = kAnnouncements, .inline_bytes = kInlineBytes}, false,
           kAnnouncements * sizeof(Group)) {
  for (std::size_t i = 0; i < kAnnouncements; ++i) post_buffer(i);
  if (broken()) throw Failure(Result::kSystemError, "cannot post receives to " + device->name());
}

void SendComm::start(const Endpoint& remote, const Transport& transport) {
  const std::lock_guard lock(mutex_);
  piece_bytes_ = piece_bytes(endpoint(), remote);
  connect_to(remote, transport);
}

void SendComm::post_buffer(std::size_t index) {
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(announcements_->data() + index * sizeof(Group)),
                   .length = sizeof(Group),
                   .lkey = announcements_->local_key()};
  ibv_recv_wr receive = {};
  receive.wr_id = work_id(kAnnouncement, index);
  receive.sg_list = &entry;
  receive.num_sge = 1;
  if (const int error = queue_pair_->post_receive(&receive)) {
    fail(Result::kSystemError, "cannot post a receive to " + device_->name() + ": " + error_text(error));
  }
}

Result SendComm::send(const void* data, std::size_t bytes, int tag, const Registration* memory, void** request) {
  const std::lock_guard lock(mutex_);
  if (broken()) return report();
  if (bytes > 0 && (memory == nullptr || !memory->covers(data, bytes))) {
    MESH_WARN("isend of %zu bytes: the memory is not inside the registration of its mhandle", bytes);
    return Result::kInvalidArgument;
  }
  if (free_.empty()) {
    progress();
    return broken() ? report() : Result::kSuccess;
  }
  std::optional<Match> match = slots_.find(tag);
  if (!match) {
    progress();
    if (broken()) return report();
    match = slots_.find(tag);
    if (!match) return Result::kSuccess;
  }
  if (bytes > match->slot.size || bytes / piece_bytes_ > Arrival::kMaxPieces) {
    MESH_WARN("isend of %zu bytes, tag %d: the matching receive has %zu bytes", bytes, tag,
              static_cast<std::size_t>(match->slot.size));
    return Result::kInvalidUsage;
  }
  slots_.take(*match);

  const std::size_t index = free_.take();
  Request& taken = requests_[index];
  taken.state = State::kActive;
  ++taken.generation;
  taken.local_key = bytes > 0 ? memory->region->lkey : 0;
  taken.pieces = 0;
  taken.data = static_cast<const std::byte*>(data);
  taken.bytes = bytes;
  taken.sequence = messages_sent_++;
  taken.match = *match;
  posting_[posting_end_++ % kMaxSends] = static_cast<std::uint8_t>(index);
  post_pieces();
  if (broken()) return report();
  *request = request_id(index, taken.generation).pointer();
  return Result::kSuccess;
}

void SendComm::post_pieces() {
  while (posting_first_ != posting_end_ && in_flight_ < kWrites && !broken()) {
    const std::size_t index = posting_[posting_first_ % kMaxSends];
    if (post_piece(requests_[index], index)) ++posting_first_;
  }
}

// Posts the next piece. Returns true when it was the last one.
bool SendComm::post_piece(Request& request, std::size_t index) {
  const std::size_t offset = request.pieces * piece_bytes_;
  const std::size_t left = request.bytes - offset;
  const bool last = left <= piece_bytes_;
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(request.data + offset),
                   .length = static_cast<std::uint32_t>(last ? left : piece_bytes_),
                   .lkey = request.local_key};
  ibv_send_wr write = {};
  write.wr_id = work_id(last ? kLastPiece : kPiece, index);
  write.sg_list = &entry;
  write.num_sge = left > 0 ? 1 : 0;
  write.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  write.send_flags = left > 0 && left <= queue_pair_->inline_bytes() ? IBV_SEND_INLINE : 0;
  write.wr.rdma.remote_addr = request.match.slot.address + offset;
  write.wr.rdma.rkey = request.match.slot.remote_key;
  const Arrival arrival = {.group = request.match.group, .index = request.match.index, .pieces = request.pieces};
  write.imm_data = htonl(arrival.encode());
  if (const int error = queue_pair_->post_send(&write)) {
    fail(Result::kSystemError, "cannot post a write to " + device_->name() + ": " + error_text(error));
    return false;
  }
  ++in_flight_;
  if (!last) ++request.pieces;
  return last;
}

int SendComm::poll() {
  std::array<ibv_wc, 16> completions;
  const int count = queue_pair_->poll(completions);
  if (count < 0) fail(Result::kSystemError, "cannot poll the completions of " + device_->name());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& each = completions[static_cast<std::size_t>(i)];
    const auto kind = static_cast<Kind>(each.wr_id >> 32);
    if (kind != kAnnouncement) --in_flight_;
    if (each.status != IBV_WC_SUCCESS) {
      fail_by(each);
    } else if (kind == kAnnouncement) {
      take_group(each);
    } else if (kind == kLastPiece) {
      requests_[each.wr_id & (kMaxSends - 1)].state = State::kDone;
    }
  }
  return count;
}

void SendComm::take_group(const ibv_wc& completion) {
  const std::size_t index = completion.wr_id & (kAnnouncements - 1);
  const std::span bytes(announcements_->data() + index * sizeof(Group),
                        std::min<std::size_t>(completion.byte_len, sizeof(Group)));
  const std::optional<Group> group = parse_group(bytes);
  if (!group || !slots_.push(*group)) {
    return fail(Result::kRemoteError, peer_text() + " announced an invalid receive: use the same plugin on all ranks");
  }
  if (!broken()) post_buffer(index);
}

void SendComm::progress() {
  const int count = poll();
  post_pieces();
  if (count == 0) check_peer();
}

void SendComm::settle(std::optional<std::uint64_t> messages_received) {
  for (Request& each : requests_) {
    if (each.state == State::kActive && each.sequence < messages_received.value_or(0)) each.state = State::kDone;
  }
}

Result SendComm::test(const RequestId& id, int* done, int* sizes) {
  const std::lock_guard lock(mutex_);
  Request& request = requests_[id.index];
  if (request.generation != id.generation || request.state == State::kFree) {
    MESH_WARN("test: the send is not outstanding");
    return Result::kInvalidArgument;
  }
  if (request.state != State::kDone && !broken()) progress();
  if (request.state != State::kDone) return broken() ? report() : Result::kSuccess;
  request.state = State::kFree;
  free_.give_back(id.index);
  *done = 1;
  if (sizes != nullptr) *sizes = static_cast<int>(std::min<std::size_t>(request.bytes, INT_MAX));
  return Result::kSuccess;
}

}  // namespace mesh
