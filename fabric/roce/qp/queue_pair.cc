#include "fabric/roce/qp/queue_pair.h"

#include <cerrno>
#include <utility>

#include "fabric/roce/qp/loss_recovery.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

constexpr std::uint32_t kMaxRequests = 1 << 14;
constexpr std::uint32_t kMaxInlineBytes = 1024;
constexpr std::uint32_t kMinInlineBytes = 64;
constexpr unsigned kMaxReadsInFlight = 128;

[[noreturn]] void fail(int error) { throw_errno("create a queue pair", error); }

// Grants at least one of each, because some programs request 0.
ibv_qp_cap granted(const QueuePairSettings& settings) {
  ibv_qp_cap cap = settings.capabilities;
  if (cap.max_send_wr > kMaxRequests || cap.max_recv_wr > kMaxRequests || cap.max_send_sge > kMaxSegments ||
      cap.max_recv_sge > kMaxSegments || cap.max_inline_data > kMaxInlineBytes)
    fail(EINVAL);
  if (settings.send_queue == nullptr || settings.receive_queue == nullptr) fail(EINVAL);
  cap.max_send_wr = std::max(1u, cap.max_send_wr);
  cap.max_send_sge = std::max(1u, cap.max_send_sge);
  cap.max_inline_data = std::max(kMinInlineBytes, cap.max_inline_data);
  if (settings.shared_receives != nullptr) {
    cap.max_recv_wr = cap.max_recv_sge = 0;
  } else {
    cap.max_recv_wr = std::max(1u, cap.max_recv_wr);
    cap.max_recv_sge = std::max(1u, cap.max_recv_sge);
  }
  return cap;
}

QueuePairSettings with_granted(QueuePairSettings settings) {
  transport_of(settings.type);  // throws for an unsupported type
  settings.capabilities = granted(settings);
  return settings;
}

Requester::Settings requester_settings(const ibv_qp_attr& attributes) {
  return {Psn(attributes.sq_psn), acknowledgement_timeout(attributes.timeout), attributes.retry_cnt,
          attributes.rnr_retry, attributes.max_rd_atomic};
}

}  // namespace

QueuePair::QueuePair(const NicContext& nic, const ProtectionDomain& domain, const QueuePairSettings& settings)
    : nic_(nic),
      settings_(with_granted(settings)),
      connection_{.nic = nic_,
                  .queue_pair = *this,
                  .domain = domain,
                  .transport = transport_of(settings.type),
                  .extended_domain = settings.extended_domain},
      own_receives_(settings.shared_receives != nullptr
                        ? nullptr
                        : std::make_unique<ReceiveQueue>(settings_.capabilities.max_recv_wr,
                                                         settings_.capabilities.max_recv_sge)),
      receives_(own_receives_ ? *own_receives_ : *settings.shared_receives),
      requester_(make_requester(connection_, settings_)),
      responder_(make_responder(connection_, *settings_.receive_queue, receives_)) {
  if (nic_.lock.in_child()) fail(EIO);
  const std::lock_guard lock(nic_.lock);
  nic_.operations.open();
  connection_.number = nic_.queue_pairs.add(*this, nic_.ports.slot().number());
}

QueuePair::~QueuePair() {
  if (nic_.lock.in_child()) return;
  {
    const std::lock_guard lock(nic_.lock);
    if (accepts_packets()) responder_->respond();
    nic_.queue_pairs.remove(number());
    nic_.scheduler.unschedule(*this);
    nic_.memory.unbind_all(number());
    // A process that keeps the device open may be killed next.
    nic_.control_files.write_capture();
  }
  remove_completions();
}

void QueuePair::remove_completions() {
  settings_.send_queue->remove_completions(number());
  settings_.receive_queue->remove_completions(number());
}

int QueuePair::validate(const ibv_qp_attr& attributes, int mask, ibv_qp_state from, ibv_qp_state to) const {
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) return EINVAL;
  if (!transition_is_allowed(settings_.type, from, to, mask)) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > nic_.ports.largest_path_mtu()))
    return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attributes.max_rd_atomic > kMaxReadsInFlight) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attributes.max_dest_rd_atomic > kMaxReadsInFlight) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attributes.min_rnr_timer > 31) return EINVAL;
  if ((mask & IBV_QP_TIMEOUT) != 0 && attributes.timeout > 31) return EINVAL;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && attributes.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && attributes.rnr_retry > 7) return EINVAL;
  return 0;
}

bool QueuePair::accepts_packets() const {
  const ibv_qp_state current = state();
  return current == IBV_QPS_RTR || current == IBV_QPS_RTS || current == IBV_QPS_SQD || current == IBV_QPS_SQE;
}

int QueuePair::set_path(const ibv_ah_attr& attributes) {
  const std::optional<Destination> destination = destination_of(attributes, nic_.ports);
  if (!destination) return EINVAL;
  connection_.path = path_to(*destination, nic_.ports, connection_.number);
  // Only reliable queue pairs react to congestion marks, so only their packets are ECN-capable.
  std::uint8_t& traffic_class = connection_.path.traffic_class;
  if (nic_.ports.ecn() && is_reliable(connection_.transport)) traffic_class = ecn_capable(traffic_class);
  return 0;
}

int QueuePair::set_attributes(const ibv_qp_attr& given, int mask) {
  ibv_qp_attr& kept = attributes_;
  if ((mask & IBV_QP_AV) != 0) {
    const int error = set_path(given.ah_attr);
    if (error != 0) return error;
    kept.ah_attr = given.ah_attr;
  }
  if ((mask & IBV_QP_PKEY_INDEX) != 0) kept.pkey_index = given.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) kept.port_num = given.port_num;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) kept.qp_access_flags = connection_.access = given.qp_access_flags;
  if ((mask & IBV_QP_QKEY) != 0) kept.qkey = connection_.q_key = given.qkey;
  if ((mask & IBV_QP_PATH_MTU) != 0) {
    kept.path_mtu = given.path_mtu;
    connection_.path_mtu_bytes = 128u << given.path_mtu;
  }
  if ((mask & IBV_QP_DEST_QPN) != 0) kept.dest_qp_num = connection_.remote_number = given.dest_qp_num & 0xffffffu;
  if ((mask & IBV_QP_RQ_PSN) != 0) kept.rq_psn = given.rq_psn;
  if ((mask & IBV_QP_SQ_PSN) != 0) kept.sq_psn = given.sq_psn;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) kept.max_dest_rd_atomic = given.max_dest_rd_atomic;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) kept.max_rd_atomic = given.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) {
    kept.min_rnr_timer = given.min_rnr_timer;
    responder_->set_rnr_timer(given.min_rnr_timer);
  }
  if ((mask & IBV_QP_TIMEOUT) != 0) kept.timeout = given.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) kept.retry_cnt = given.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) kept.rnr_retry = given.rnr_retry;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) kept.en_sqd_async_notify = given.en_sqd_async_notify;
  return 0;
}

int QueuePair::modify(const ibv_qp_attr& given, int mask) {
  if (nic_.lock.in_child()) return EIO;
  const std::lock_guard lock(nic_.lock);
  const ibv_qp_state from = state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? given.qp_state : from;
  int error = validate(given, mask, from, to);
  if (error == 0) error = set_attributes(given, mask);
  if (error != 0) return error;
  // Programs end a queue pair as soon as they have received their last message, so delayed acknowledgements are sent
  // now.
  if ((to == IBV_QPS_ERR || to == IBV_QPS_RESET) && accepts_packets()) responder_->respond();
  if (to == IBV_QPS_ERR) {
    enter_error();
    return 0;
  }
  if (to == IBV_QPS_RESET) {
    to_reset();
    return 0;
  }
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && settings_.type == IBV_QPT_UD) {
    attributes_.path_mtu = nic_.ports.largest_path_mtu();
    connection_.path_mtu_bytes = 128u << attributes_.path_mtu;
    nic_.ports.open_all();
  }
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
    responder_->start({Psn(attributes_.rq_psn), attributes_.max_dest_rd_atomic, attributes_.min_rnr_timer});
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) requester_->start(requester_settings(attributes_));
  state_.store(to, std::memory_order_release);
  if (from == IBV_QPS_RTS && to == IBV_QPS_SQD) {
    requester_->pause();
    if (attributes_.en_sqd_async_notify != 0) requester_->announce_when_drained();
  }
  if (from == IBV_QPS_SQD && to == IBV_QPS_SQD) {
    requester_->set_limits(requester_settings(attributes_), now_ns());
    responder_->set_reads_in_flight(attributes_.max_dest_rd_atomic);
  }
  if (from == IBV_QPS_SQD && to == IBV_QPS_RTS) requester_->resume(now_ns());
  return 0;
}

void QueuePair::to_reset() {
  state_.store(IBV_QPS_RESET, std::memory_order_release);
  requester_->reset();
  responder_->reset(shares_receives());
  remove_completions();  // like hardware drivers: a program does not expect completions of requests before a reset
  nic_.scheduler.unschedule(*this);
  communication_established_ = notification_due_ = acknowledgement_delayed_ = false;
  attributes_ = {};
  connection_.access = 0;
}

void QueuePair::enter_error() {
  if (state() == IBV_QPS_ERR || state() == IBV_QPS_RESET) {
    state_.store(IBV_QPS_ERR, std::memory_order_release);
    return;
  }
  state_.store(IBV_QPS_ERR, std::memory_order_release);
  requester_->flush();
  responder_->flush(shares_receives());
  nic_.scheduler.unschedule(*this);
  acknowledgement_delayed_ = false;
  if (settings_.shared_receives != nullptr) announce(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void QueuePair::enter_send_error() {
  state_.store(IBV_QPS_SQE, std::memory_order_release);
  requester_->flush();
}

void QueuePair::query(ibv_qp_attr& attributes) const {
  if (nic_.lock.in_child()) {
    attributes = {};
    return;
  }
  const std::lock_guard lock(nic_.lock);
  attributes = attributes_;
  attributes.qp_state = attributes.cur_qp_state = state();
  attributes.cap = settings_.capabilities;
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.sq_draining = requester_->draining();
  if (accepts_packets() && settings_.type != IBV_QPT_UD) attributes.rq_psn = responder_->expected().value();
  if (accepts_packets() && state() != IBV_QPS_RTR) attributes.sq_psn = requester_->next_psn().value();
}

int QueuePair::post_send(ibv_send_wr* list, ibv_send_wr** bad, bool all_or_none) {
  if (nic_.lock.in_child()) {
    *bad = list;
    return EIO;
  }
  const std::unique_lock lock = nic_.lock.lock_to_post();
  nic_.control_files.follow_announced();
  const ibv_qp_state current = state();
  if (current == IBV_QPS_RESET || current == IBV_QPS_INIT || current == IBV_QPS_RTR ||
      settings_.type == IBV_QPT_XRC_RECV) {
    *bad = list;
    return EINVAL;
  }
  const std::uint64_t first = requester_->posted();
  int error = 0;
  for (; list != nullptr && error == 0; list = list->next) {
    error = requester_->post(*list);
    if (error != 0) {
      *bad = list;
      if (all_or_none) requester_->withdraw(first);
      break;
    }
  }
  if (current == IBV_QPS_ERR || current == IBV_QPS_SQE)
    requester_->flush();
  else if (requester_->may_defer())
    nic_.scheduler.schedule(*this);
  else
    requester_->transmit(now_ns());
  return error;
}

int QueuePair::post_receive(ibv_recv_wr* list, ibv_recv_wr** bad) {
  if (nic_.lock.in_child() || shares_receives() || state() == IBV_QPS_RESET) {
    *bad = list;
    return nic_.lock.in_child() ? EIO : EINVAL;
  }
  const int error = receives_.post(list, bad);
  if (state() == IBV_QPS_ERR) {  // checked after posting: the state may have changed meanwhile
    const std::lock_guard lock(nic_.lock);
    if (state() == IBV_QPS_ERR) responder_->flush(false);
  }
  return error;
}

bool QueuePair::accepts(const Headers& headers, const Arrival& arrival) const {
  const bool from_peer =
      connection_.transport == Transport::kDatagram || arrival.source.address == connection_.path.remote;
  const bool right_kind = headers.transport == connection_.transport || headers.transport == Transport::kNotification;
  const bool has_responder = settings_.type != IBV_QPT_XRC_SEND || !traits_of(headers.operation).request;
  return accepts_packets() && from_peer && right_kind && has_responder;
}

Placement QueuePair::placement_for(const Headers& headers, const Arrival& arrival) const {
  return accepts(headers, arrival) ? requester_->placement_for(headers) : Placement{};
}

void QueuePair::receive(const Packet& packet, const Arrival& arrival, Nanoseconds now) {
  if (!accepts(packet.headers, arrival)) {
    ++nic_.counters.unexpected_packets;
    return;
  }
  if (packet.headers.transport == Transport::kNotification) {
    ++nic_.counters.handled_notifications;
    requester_->on_congestion();
    return;
  }
  nic_.scheduler.schedule(*this);
  if (is_marked(arrival.traffic_class)) on_mark(packet.headers, now);
  if (!traits_of(packet.headers.operation).request) {
    requester_->receive(packet, now);
    return;
  }
  if (!communication_established_ && connection_.transport != Transport::kDatagram) {
    communication_established_ = true;
    if (state() == IBV_QPS_RTR) announce(IBV_EVENT_COMM_EST);
  }
  responder_->receive(packet, arrival);
}

void QueuePair::on_mark(const Headers& headers, Nanoseconds now) {
  constexpr Nanoseconds kNotificationInterval = 50'000;       // as in DCQCN
  if (connection_.transport == Transport::kDatagram) return;  // a datagram has no connection to notify
  ++nic_.counters.marked_packets;
  // The requester of a READ controls how much of the response is in flight.
  if (traits_of(headers.operation).response) requester_->on_congestion();
  if (now < next_notification_) return;
  next_notification_ = now + kNotificationInterval;
  notification_due_ = true;
}

void QueuePair::send_notification() {
  notification_due_ = false;
  Headers headers;
  headers.transport = Transport::kNotification;
  headers.operation = Operation::kCongestionNotification;
  headers.destination = connection_.remote_number;
  PacketBatch& batch = nic_.batch;
  if (batch.add(connection_.path, headers, {}, 0) && batch.flush()) ++nic_.counters.sent_notifications;
}

void QueuePair::send_pending(Nanoseconds now) {
  if (notification_due_) send_notification();
  // A program that polls may be about to post a reply, which can carry the acknowledgement. So an acknowledgement alone
  // is delayed once.
  const bool delayed = std::exchange(acknowledgement_delayed_, false);
  if (!delayed && !settings_.receive_queue->events_requested() && responder_->acknowledgement_may_wait()) {
    acknowledgement_delayed_ = true;
    nic_.scheduler.delay_acknowledgement(*this, now);
  } else {
    responder_->respond();
    if (state() == IBV_QPS_ERR) return;
  }
  requester_->transmit(now);
}

}  // namespace plugfest::roce
