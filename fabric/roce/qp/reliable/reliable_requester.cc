// The requester: posting, acknowledgements, repetition. What goes onto the wire is in requester_send.cc.
// Source of the rules: InfiniBand Architecture Specification vol. 1, section 9.7.
#include "fabric/roce/qp/reliable/reliable_requester.h"

#include <algorithm>
#include <cerrno>

#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

namespace {

// Without a word from the peer for this long, one packet is repeated: the answer tells what was lost, long before the
// timeout that the program asked for.
constexpr Nanoseconds kFirstProbe = 2'000'000;

// A second NAK for the same packet within this time is taken for an echo of the first.
constexpr Nanoseconds kRepetitionUnderway = 200'000;

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
  settings_ = settings;
  started_ = true;
  post_psn_ = oldest_psn_ = sent_end_ = recovery_end_ = settings.first_psn;
  retries_left_ = settings.retry_count;
  rnr_retries_left_ = settings.rnr_retry;
  window_.reset(connection_.path_mtu_bytes, connection_.nic.ports.largest_congestion_window_bytes());
}

void ReliableRequester::reset() {
  while (!queue_.empty()) queue_.pop();
  started_ = paused_ = announce_drained_ = false;
  oldest_ = next_ = {queue_.oldest(), 0};
  reads_.clear();
  gap_known_ = failing_ = false;
  rnr_until_ = 0;
  timeout_at_ = probe_at_ = kNever;
}

std::uint32_t ReliableRequester::packets_of(const SendRequest& request) const {
  if (request.is_local()) return 0;
  if (request.is_atomic() || request.length == 0) return 1;
  return (request.length + connection_.path_mtu_bytes - 1) / connection_.path_mtu_bytes;
}

int ReliableRequester::post(const ibv_send_wr& request) {
  if (!is_supported(request.opcode)) return EINVAL;
  if ((request.opcode == IBV_WR_RDMA_READ || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
       request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
      settings_.reads_in_flight == 0 && started_)
    return EINVAL;
  const int error = queue_.prepare(request, signal_all_);
  if (error != 0) return error;
  SendRequest& kept = queue_[queue_.end()];
  kept.packets = started_ ? packets_of(kept) : 1;
  kept.first = post_psn_;
  kept.cost_before = post_cost_;
  post_psn_ = kept.end();
  post_cost_ += kept.length + kept.packets * Window::kPacketOverheadBytes;
  queue_.commit();
  return 0;
}

Psn ReliableRequester::psn_at(Place place) const {
  return place.request == queue_.end() ? post_psn_ : queue_[place.request].first + place.packet;
}

std::uint64_t ReliableRequester::cost_at(Place place) const {
  if (place.request == queue_.end()) return post_cost_;
  const SendRequest& request = queue_[place.request];
  return request.cost_before + place.packet * (connection_.path_mtu_bytes + Window::kPacketOverheadBytes);
}

void ReliableRequester::restart_timers(Nanoseconds now) {
  probe_after_ = kFirstProbe;
  if (!outstanding() || rnr_until_ != 0) {
    timeout_at_ = probe_at_ = kNever;
    return;
  }
  timeout_at_ = settings_.timeout == kNever ? kNever : now + settings_.timeout;
  probe_at_ = now + probe_after_;
  connection_.nic.scheduler.timer().arm(deadline());
}

Nanoseconds ReliableRequester::deadline() const {
  const Nanoseconds waiting = std::min(timeout_at_, probe_at_);
  return rnr_until_ != 0 ? std::min(waiting, rnr_until_) : waiting;
}

void ReliableRequester::oldest_is(Place place, Nanoseconds now) {
  const Psn psn = psn_at(place);
  oldest_ = place;
  if (psn == oldest_psn_) return;
  oldest_psn_ = psn;
  // What an earlier repetition was about to send again may have arrived after all.
  if (next_.request < oldest_.request || (next_.request == oldest_.request && next_.packet < oldest_.packet))
    next_ = oldest_;
  while (!reads_.empty() && reads_.front().after(psn) <= 0) reads_.pop_front();
  gap_known_ = false;
  retries_left_ = settings_.retry_count;
  rnr_retries_left_ = settings_.rnr_retry;
  restart_timers(now);
  announce_if_drained();
}

void ReliableRequester::acknowledge_before(Psn psn, Nanoseconds now) {
  const std::uint64_t cost_before = cost_at(oldest_);
  Place place = oldest_;
  bool response_missing = false;
  while (place.request != queue_.end()) {
    const SendRequest& request = queue_[place.request];
    if (request.done) {
      place = {place.request + 1, 0};
      continue;
    }
    const std::int32_t acknowledged = psn.after(request.first);
    if (acknowledged <= static_cast<std::int32_t>(place.packet)) break;
    if (request.awaits_response()) {
      response_missing = true;
      break;
    }
    if (acknowledged < static_cast<std::int32_t>(request.packets)) {
      place.packet = static_cast<std::uint32_t>(acknowledged);
      break;
    }
    place = {place.request + 1, 0};
  }
  const std::uint64_t cost_after = cost_at(place);
  while (queue_.oldest() != place.request) complete_oldest(IBV_WC_SUCCESS);
  if (cost_after > cost_before) window_.acknowledged(cost_after - cost_before);
  oldest_is(place, now);
  if (response_missing && (!gap_known_ || gap_ != oldest_psn_)) {
    gap_ = oldest_psn_;
    gap_known_ = true;
    note_loss();
    go_back(gap_);
  }
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
  reads_.clear();
  failing_ = false;
  rnr_until_ = 0;
  timeout_at_ = probe_at_ = kNever;
}

void ReliableRequester::receive(const Packet& packet, Nanoseconds now) {
  if (!started_) return;
  const Psn psn = packet.headers.psn;
  if (psn.after(oldest_psn_) < 0 || psn.after(sent_end_) >= 0) return;  // stale, or about what was never sent
  if (packet.headers.operation != Operation::kAcknowledge) {
    take_response(packet, now);
  } else if ((packet.headers.syndrome & kSyndromeKindMask) == 0) {
    acknowledge_before(psn + 1, now);
  } else {
    take_nak(packet, now);
  }
}

void ReliableRequester::take_response(const Packet& packet, Nanoseconds now) {
  const Psn psn = packet.headers.psn;
  acknowledge_before(psn, now);
  if (queue_.empty() || psn != oldest_psn_) return;  // one before it is missing and was asked for again
  SendRequest& request = queue_[oldest_.request];
  const bool atomic = packet.headers.operation == Operation::kAtomicAcknowledge;
  if (atomic ? !request.is_atomic() : !request.is_read()) return fail_oldest(IBV_WC_BAD_RESP_ERR);

  const std::uint64_t original = packet.headers.original;
  std::span<const std::byte> bytes = packet.payload;
  std::size_t offset = 0;
  if (atomic) {
    bytes = std::as_bytes(std::span(&original, 1));
  } else {
    offset = std::size_t{oldest_.packet} * connection_.path_mtu_bytes;
    if (bytes.size() != std::min<std::size_t>(connection_.path_mtu_bytes, request.length - offset))
      return fail_oldest(IBV_WC_BAD_RESP_ERR);
  }
  if (!packet.in_place) {
    ScatterGatherList pieces;
    if (!find_memory(oldest_.request, request, pieces)) return fail_oldest(IBV_WC_LOC_PROT_ERR);
    pieces.copy_in(offset, bytes);
  }
  const std::uint64_t cost_before = cost_at(oldest_);
  Place place = {oldest_.request, oldest_.packet + 1};
  if (place.packet == request.packets) {
    place = {oldest_.request + 1, 0};
    while (place.request != queue_.end() && queue_[place.request].done) ++place.request;
  }
  window_.acknowledged(cost_at(place) - cost_before);
  while (queue_.oldest() != place.request) complete_oldest(IBV_WC_SUCCESS);
  oldest_is(place, now);
}

Placement ReliableRequester::placement_for(const Headers& headers) const {
  if (headers.psn != oldest_psn_ || headers.operation != Operation::kReadResponseMiddle) return {};
  return next_placement();
}

Placement ReliableRequester::next_placement() const {
  if (!started_ || queue_.empty() || oldest_psn_.after(sent_end_) >= 0) return {};
  const SendRequest& request = queue_[oldest_.request];
  ScatterGatherList pieces;
  if (!request.is_read() || !find_memory(oldest_.request, request, pieces)) return {};
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::span<std::byte> room = pieces.from(std::size_t{oldest_.packet} * mtu);
  return {room.data(), std::min<std::size_t>(room.size() / mtu, request.packets - oldest_.packet - 1)};
}

void ReliableRequester::take_nak(const Packet& packet, Nanoseconds now) {
  const Psn psn = packet.headers.psn;
  Counters& counters = connection_.nic.counters;
  acknowledge_before(psn, now);
  if (queue_.empty() || psn != oldest_psn_) return;
  const auto value = static_cast<std::uint8_t>(packet.headers.syndrome & kSyndromeValueMask);
  if ((packet.headers.syndrome & kSyndromeKindMask) == kSyndromeRnr) {
    ++counters.received_rnr_naks;
    constexpr unsigned kForever = 7;
    if (settings_.rnr_retry != kForever) {
      if (rnr_retries_left_ == 0) return fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
      --rnr_retries_left_;
    }
    rnr_until_ = now + rnr_delay_ns(value);
    go_back(psn);
    restart_timers(now);
    connection_.nic.scheduler.timer().arm(rnr_until_);
    return;
  }
  if ((packet.headers.syndrome & kSyndromeKindMask) != kSyndromeNak) return;
  switch (static_cast<NakCode>(value)) {
    case NakCode::kSequence:
      ++counters.received_sequence_naks;
      // The peer may say the same several times before it hears the repetition. That is no reason to give up, nor to
      // repeat more than once; if the repetition is lost too, the probe finds out.
      if (asked_again_ == psn && now < asked_again_until_) return;
      asked_again_ = psn;
      asked_again_until_ = now + kRepetitionUnderway;
      note_loss();
      go_back(psn);
      probe_at_ = now + probe_after_;  // the timeout runs on: a peer that only ever refuses ends it
      connection_.nic.scheduler.timer().arm(deadline());
      return;
    case NakCode::kInvalidRequest:
      ++counters.received_invalid_request_naks;
      return fail_oldest(IBV_WC_REM_INV_REQ_ERR);
    case NakCode::kRemoteAccess:
      ++counters.received_access_naks;
      return fail_oldest(IBV_WC_REM_ACCESS_ERR);
    case NakCode::kRemoteOperation:
      ++counters.received_operation_naks;
      return fail_oldest(IBV_WC_REM_OP_ERR);
  }
}

// Once for what is on its way: the marks behind the first say the same.
void ReliableRequester::on_congestion() {
  if (!started_ || oldest_psn_ == sent_end_ || oldest_psn_.after(recovery_end_) < 0) return;
  recovery_end_ = sent_end_;
  window_.congested();
}

void ReliableRequester::note_loss() {
  if (oldest_psn_.after(recovery_end_) < 0) return;  // the same loss as before
  recovery_end_ = sent_end_;
  window_.lost();
}

void ReliableRequester::go_back(Psn psn) {
  Place place = oldest_;
  while (place.request != queue_.end() && psn.after(queue_[place.request].end()) >= 0) place = {place.request + 1, 0};
  if (place.request != queue_.end()) place.packet = static_cast<std::uint32_t>(psn.after(queue_[place.request].first));
  next_ = place;
  while (!reads_.empty() && reads_.back().after(psn) > 0) reads_.pop_back();
}

void ReliableRequester::on_timer(Nanoseconds now) {
  if (rnr_until_ != 0 && now >= rnr_until_) {
    rnr_until_ = 0;
    transmit(now);
    return;
  }
  if (now >= timeout_at_) {
    ++connection_.nic.counters.timeouts;
    if (retries_left_ == 0) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
    --retries_left_;
    window_.timed_out();
    recovery_end_ = sent_end_;
    gap_known_ = false;
    go_back(oldest_psn_);
    timeout_at_ = now + settings_.timeout;
    probe_at_ = now + probe_after_;
    transmit(now);
  } else if (now >= probe_at_) {
    probe(now);
  }
}

void ReliableRequester::probe(Nanoseconds now) {
  probe_after_ *= 2;
  probe_at_ = now + probe_after_;
  Place last = next_;
  if (last.packet > 0) {
    --last.packet;
  } else if (last.request > oldest_.request) {
    do --last.request;
    while (queue_[last.request].done);  // what is outstanding has a packet somewhere
    last.packet = queue_[last.request].packets - 1;
  }
  // A READ or atomic is not repeated from its middle without need: ask for the oldest again.
  gap_known_ = false;
  go_back(queue_[last.request].awaits_response() ? oldest_psn_ : psn_at(last));
  allow_one_ = true;
  transmit(now);
}

}  // namespace plugfest::roce
