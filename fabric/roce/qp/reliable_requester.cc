// Source of the rules: InfiniBand Architecture Specification vol. 1, section 9.7.
#include <algorithm>
#include <cerrno>

#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/reliable_requester.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

bool is_supported(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      return true;
    default:
      return false;
  }
}

}  // namespace

void ReliableRequester::start(const Settings& settings) {
  started_ = true;
  answered_ = false;
  post_psn_ = oldest_psn_ = sent_end_ = settings.first_psn;
  recovery_.start(settings.first_psn);
  set_limits(settings, 0);
  window_.start(connection_.path_mtu_bytes, connection_.nic.ports.largest_congestion_window_bytes());
}

void ReliableRequester::set_limits(const Settings& settings, Nanoseconds now) {
  max_reads_ = settings.reads_in_flight;
  timer_.start({.timeout = settings.timeout, .retry_count = settings.retry_count, .rnr_retry = settings.rnr_retry});
  restart_timers(now);
}

void ReliableRequester::reset() {
  while (!queue_.empty()) queue_.pop();
  started_ = paused_ = announce_drained_ = false;
  oldest_ = next_ = {queue_.oldest(), 0};
  reads_.clear();
  recovery_.forget_gap();
  failure_.reset();
  timer_.stop();
}

std::uint32_t ReliableRequester::packets_of(const SendRequest& request) const {
  if (request.is_local()) return 0;
  if (request.is_atomic() || request.length == 0) return 1;
  return divide_up(request.length, connection_.path_mtu_bytes);
}

int ReliableRequester::post(const ibv_send_wr& request) {
  if (!is_supported(request.opcode)) return EINVAL;
  if ((request.opcode == IBV_WR_RDMA_READ || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
       request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
      max_reads_ == 0 && started_)
    return EINVAL;
  const int error = queue_.prepare(request, signal_all_);
  if (error != 0) return error;
  SendRequest& kept = queue_[queue_.end()];
  if (connection_.transport == Transport::kExtended) kept.shared_queue = request.qp_type.xrc.remote_srqn;
  kept.packets = started_ ? packets_of(kept) : 1;
  kept.first = post_psn_;
  kept.cost_before = post_cost_;
  post_psn_ = kept.end();
  post_cost_ += kept.length + kept.packets * CongestionWindow::kPacketOverheadBytes;
  queue_.commit();
  return 0;
}

void ReliableRequester::withdraw(std::uint64_t posted) {
  if (posted == queue_.end()) return;
  post_psn_ = queue_[posted].first;
  post_cost_ = queue_[posted].cost_before;
  queue_.withdraw(posted);
}

void ReliableRequester::fail_oldest(ibv_wc_status status) {
  if (status == IBV_WC_RETRY_EXC_ERR) ++connection_.nic.counters.retries_exceeded;
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) ++connection_.nic.counters.rnr_retries_exceeded;
  if (!queue_.empty()) complete_oldest(status);
  oldest_ = next_ = {queue_.oldest(), 0};
  connection_.queue_pair.enter_error();
}

void ReliableRequester::flush() {
  while (!queue_.empty()) complete_oldest(IBV_WC_WR_FLUSH_ERR);
  oldest_ = next_ = {queue_.oldest(), 0};
  oldest_psn_ = sent_end_ = post_psn_;
  reads_.clear();
  failure_.reset();
  timer_.stop();
}

void ReliableRequester::on_congestion() {
  if (started_ && outstanding() && recovery_.begin(oldest_psn_, sent_end_)) window_.on_congestion();
}

void ReliableRequester::on_loss() {
  if (recovery_.begin(oldest_psn_, sent_end_)) window_.on_loss();
}

void ReliableRequester::go_back(Psn psn) {
  PacketPosition position = oldest_;
  while (position.request != queue_.end() && psn.after(queue_[position.request].end()) >= 0)
    position = {position.request + 1, 0};
  if (position.request != queue_.end())
    position.packet = static_cast<std::uint32_t>(psn.after(queue_[position.request].first));
  next_ = position;
  failure_.reset();
  while (!reads_.empty() && reads_.back().after(psn) > 0) reads_.pop_back();
}

void ReliableRequester::on_timer(Nanoseconds now) {
  if (timer_.end_rnr_wait(now)) {
    transmit(now);
  } else if (timer_.timed_out(now)) {
    ++connection_.nic.counters.timeouts;
    if (!timer_.retry(now, connection_.nic.scheduler.load_clock().speed())) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
    window_.on_timeout();
    recovery_.timed_out(sent_end_);
    go_back(oldest_psn_);
    transmit(now);
  } else if (timer_.probe_due(now)) {
    if (timer_.note_refusal(peer_is_gone())) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
    probe(now);
  }
}

// A peer that has answered had opened its RoCE port, which stays open as long as its process has queue pairs. So if its
// host reports then that the port is closed, the process has ended. Before its first answer it may not have opened it.
bool ReliableRequester::peer_is_gone() const {
  return answered_ && connection_.path.socket->refused(
                          connection_.path.remote, connection_.remote_number,
                          [&](Psn psn) { return psn.after(oldest_psn_) >= 0 && psn.after(sent_end_) < 0; });
}

void ReliableRequester::probe(Nanoseconds now) {
  timer_.back_off_probe(now);
  PacketPosition last = next_;
  if (last.packet > (last.request == oldest_.request ? oldest_.packet : 0)) {
    --last.packet;
  } else if (last.request > oldest_.request) {
    do --last.request;
    while (queue_[last.request].done);  // the loop ends, because some request has an outstanding packet
    last.packet = queue_[last.request].packets - 1;
  }
  // READs and atomics are repeated from the oldest missing response, not from the last packet.
  recovery_.forget_gap();
  go_back(queue_[last.request].awaits_response() ? oldest_psn_ : psn_at(last));
  ignore_window_once_ = true;
  transmit(now);
}

bool ReliableRequester::resolve(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces) {
  if (find_memory(number, request, pieces)) return true;
  on_memory_gone(request);
  return false;
}

// A program that learns from its peer that a message has arrived may deregister or unmap the memory before the
// acknowledgement arrives. So a packet that can no longer be repeated waits for the acknowledgement, until no retry is
// left.
void ReliableRequester::on_memory_gone(const SendRequest& request) {
  const bool repeats = psn_at(next_).after(sent_end_) < 0;
  if (!repeats || request.awaits_response()) failure_ = IBV_WC_LOC_PROT_ERR;
}

Headers ReliableRequester::headers_for(const SendRequest& request) const {
  Headers headers;
  headers.transport = connection_.transport;
  headers.shared_queue = request.shared_queue;
  headers.destination = connection_.remote_number;
  headers.address = request.remote.address;
  headers.key = request.remote.key;
  headers.length = request.length;
  headers.immediate = request.immediate;
  return headers;
}

bool ReliableRequester::add_packet(const Headers& headers, const iovec* payload, std::size_t pieces,
                                   std::size_t bytes) {
  PacketBatch& batch = connection_.nic.batch;
  if (!batch.add(connection_.path, headers, {payload, pieces}, bytes)) {
    if (batch.unreadable()) {
      on_memory_gone(queue_[next_.request]);
      return false;
    }
    repeat_batch();
    return false;
  }
  if (batch.begun()) {
    batch_start_ = headers.psn;
    sent_before_batch_ = sent_end_;
  }
  if (headers.psn.after(sent_end_) < 0) ++connection_.nic.counters.retransmitted_packets;
  ignore_window_once_ = false;
  return true;
}

void ReliableRequester::repeat_batch() {
  sent_end_ = sent_before_batch_;
  go_back(batch_start_);
  connection_.nic.scheduler.wait_for_room(connection_.queue_pair);
}

void ReliableRequester::set_next(PacketPosition position, Psn psn) {
  next_ = position;
  if (psn.after(sent_end_) > 0) sent_end_ = psn;
}

void ReliableRequester::transmit(Nanoseconds now) {
  if (!started_ || timer_.in_rnr_wait()) return;
  const bool idle_before = !timer_.running();
  while (next_.request != queue_.end() && !failure_) {
    SendRequest& request = queue_[next_.request];
    if (paused_ && next_.packet == 0 && psn_at(next_).after(sent_end_) >= 0) break;
    if (request.fenced && next_.packet == 0 && !reads_.empty()) break;
    if (!(request.is_read()     ? send_read(request)
          : request.is_atomic() ? send_atomic(request)
          : request.is_local()  ? execute_next_locally(request, now)
                                : send_packets(next_.request, request)))
      break;
  }
  const bool acknowledged = connection_.queue_pair.piggyback_acknowledgement();
  if (!connection_.nic.batch.flush()) {
    if (acknowledged) connection_.queue_pair.restore_acknowledgement();
    repeat_batch();
  }
  if (idle_before && outstanding()) restart_timers(now);
  if (failure_ && psn_at(next_) == oldest_psn_) fail_oldest(*failure_);
}

// A system call costs more than a small message. If several packets are in flight, an acknowledgement will come soon,
// and the program will probably post more. A program that posts one message at a time is never deferred.
bool ReliableRequester::may_defer() const {
  constexpr std::int32_t kMinInFlight = 8;
  constexpr std::int32_t kMaxDeferredPackets = 32;
  constexpr std::uint64_t kSmallBytes = 512;
  const Psn next = psn_at(next_);
  return next.after(oldest_psn_) >= kMinInFlight && post_psn_.after(next) < kMaxDeferredPackets &&
         post_cost_ - cost_at(next_) < kMaxDeferredPackets * (kSmallBytes + CongestionWindow::kPacketOverheadBytes);
}

bool ReliableRequester::send_packets(std::uint64_t number, SendRequest& request) {
  ScatterGatherList pieces;
  if (!resolve(number, request, pieces)) return false;
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::uint64_t packet_cost = mtu + CongestionWindow::kPacketOverheadBytes;
  std::uint64_t in_flight = cost_in_flight();
  Headers headers = headers_for(request);
  for (std::uint32_t packet = next_.packet; packet < request.packets; ++packet, in_flight += packet_cost) {
    if (!ignore_window_once_ && in_flight >= window_.bytes()) return false;
    const std::size_t offset = packet * mtu;
    const std::size_t bytes = std::min(mtu, request.length - offset);
    const bool last = packet + 1 == request.packets;
    headers.operation = operation_of(request.opcode, packet == 0, last);
    headers.psn = request.first + packet;
    headers.solicited = last && request.solicited;
    // An acknowledgement is requested four times per congestion window, so that the window never runs out.
    unacknowledged_cost_ += packet_cost;
    headers.ack_request = last || ignore_window_once_ || unacknowledged_cost_ >= window_.bytes() / 4;
    if (headers.ack_request) unacknowledged_cost_ = 0;
    iovec parts[kMaxSegments];
    const std::size_t count = pieces.slice(offset, bytes, parts);
    if (!add_packet(headers, parts, count, bytes)) return false;
    set_next(last ? PacketPosition{number + 1, 0} : PacketPosition{number, packet + 1}, headers.psn + 1);
  }
  return true;
}

// Executes a local request when all requests before it have been sent. It completes in order: now, if nothing before it
// is in flight.
bool ReliableRequester::execute_next_locally(SendRequest& request, Nanoseconds now) {
  const ibv_wc_status status = execute_locally(request);
  if (status != IBV_WC_SUCCESS) {
    failure_ = status;
    return false;
  }
  ++next_.request;
  if (oldest_psn_ == request.first) acknowledge_before(oldest_psn_, now);
  return true;
}

bool ReliableRequester::may_read() {
  if (reads_.size() < max_reads_) return true;
  if (max_reads_ == 0) failure_ = IBV_WC_LOC_QP_OP_ERR;  // the program has changed the limit after it had posted
  return false;
}

bool ReliableRequester::send_read(SendRequest& request) {
  if (!may_read() || window_is_full()) return false;
  ScatterGatherList pieces;
  if (!resolve(next_.request, request, pieces)) return false;
  // A long READ is sent as several READ requests with the PSNs of one, because nothing else limits how fast the peer
  // responds. Their length is decided once: a peer answers a repeated request only if it is part of one earlier
  // request.
  if (request.read_packets == 0) {
    const std::uint64_t packet_cost = connection_.path_mtu_bytes + CongestionWindow::kPacketOverheadBytes;
    const std::uint64_t share = window_.bytes() / std::min(max_reads_, 3u) / packet_cost;
    request.read_packets = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, share));
  }
  const std::uint32_t packets =
      std::min(request.packets - next_.packet, request.read_packets - next_.packet % request.read_packets);
  const std::uint32_t offset = next_.packet * connection_.path_mtu_bytes;
  Headers headers = headers_for(request);
  headers.operation = Operation::kReadRequest;
  headers.psn = request.first + next_.packet;
  headers.ack_request = true;
  headers.address += offset;
  headers.length = std::min(request.length - offset, packets * connection_.path_mtu_bytes);
  if (!add_packet(headers, nullptr, 0, 0)) return false;
  reads_.push_back(headers.psn + packets);
  const std::uint32_t packet = next_.packet + packets;
  set_next(packet < request.packets ? PacketPosition{next_.request, packet} : PacketPosition{next_.request + 1, 0},
           headers.psn + packets);
  return true;
}

bool ReliableRequester::send_atomic(SendRequest& request) {
  if (!may_read() || window_is_full()) return false;
  ScatterGatherList pieces;
  if (!resolve(next_.request, request, pieces)) return false;
  Headers headers = headers_for(request);
  headers.operation = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? Operation::kCompareSwap : Operation::kFetchAdd;
  headers.psn = request.first;
  headers.ack_request = true;
  headers.swap_or_add = request.remote.swap_or_add;
  headers.compare = request.remote.compare;
  if (!add_packet(headers, nullptr, 0, 0)) return false;
  reads_.push_back(headers.psn + 1);
  set_next({next_.request + 1, 0}, headers.psn + 1);
  return true;
}

}  // namespace plugfest::roce
