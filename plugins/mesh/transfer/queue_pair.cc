#include "plugins/mesh/transfer/queue_pair.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {

namespace {

constexpr std::int64_t kGraceMs = 20;

}  // namespace

void PeerMonitor::read() {
  if (left_) return;
  if (stream_ != nullptr) {
    left_ = stream_->ended();
    messages_received_ = stream_->received_by_peer();
    if (left_) left_at_ms_ = coarse_now_ms();
    return;
  }
  try {
    while (const std::optional<Message> message = link_.receive()) {
      left_ = true;
      const auto* close = std::get_if<Close>(&*message);
      if (close != nullptr && close->of_listener != key_.is_listener && is_proven(*close, key_.secret, key_.nonce))
        messages_received_ = close->messages_received;
      else
        break;
    }
    if (link_.ended()) left_ = true;
  } catch (const Failure&) {
    left_ = true;  // a malformed message
  }
  if (left_) left_at_ms_ = coarse_now_ms();
}

bool PeerMonitor::poll(std::int64_t now_ms) {
  if (now_ms == polled_at_ms_) return false;
  polled_at_ms_ = now_ms;
  if (left_) return now_ms - left_at_ms_ >= kGraceMs;
  read();
  return false;
}

void PeerMonitor::send_close(std::uint64_t messages_received) {
  if (stream_ != nullptr) return stream_->send_close(messages_received);
  const Close close = {.messages_received = messages_received, .of_listener = key_.is_listener};
  link_.send(with_proof(close, key_.secret, key_.nonce));
  link_.finish();
}

namespace {

constexpr std::uint32_t kMask24 = 0xffffff;
constexpr int kRnrRetryUnlimited = 7;
constexpr int kRnrTimer = 12;  // 0.64 ms
constexpr std::uint8_t kHopLimit = 255;

std::uint32_t random_packet_sequence() {
  const Nonce bytes = make_nonce();
  std::uint32_t value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value & kMask24;
}

}  // namespace

StagingMemory::StagingMemory(std::shared_ptr<const Device> device, std::size_t bytes, int access)
    : device_(std::move(device)), bytes_(bytes) {
  // Whole pages, since libibverbs hides registered pages from forked children.
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw system_failure("allocate memory");
  region_ = ibv_reg_mr(device_->protection_domain(), pages, bytes, access);
  if (region_ == nullptr) {
    const int error = errno;
    munmap(pages, bytes);
    throw system_failure("register memory with " + device_->name() + " (is `ulimit -l` too low?)", error);
  }
  data_ = static_cast<std::byte*>(pages);
}

StagingMemory::~StagingMemory() {
  ibv_dereg_mr(region_);
  munmap(data_, bytes_);
}

QueuePair::QueuePair(std::shared_ptr<const Device> device, const Address& local, Depth depth, int remote_access)
    : device_(std::move(device)), reads_(depth.reads) {
  if (local == kRelayed) {
    stream_ = std::make_unique<Stream>();
    const std::vector<DeviceAddress> addresses = device_->gids().addresses();
    if (!addresses.empty()) endpoint_.gid = addresses.front().network.address;  // only for messages
    endpoint_.mtu = static_cast<std::uint8_t>(device_->mtu());
    inline_bytes_ = depth.inline_bytes;
    return;
  }
  gid_index_ = device_->gids().index_of(local);
  endpoint_.gid = local;
  endpoint_.packet_sequence = random_packet_sequence();
  endpoint_.max_message_bytes = device_->max_message_bytes();
  endpoint_.mtu = static_cast<std::uint8_t>(device_->mtu());
  create(depth);
  endpoint_.queue_pair = queue_pair_->qp_num;

  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = device_->port();
  attributes.qp_access_flags = static_cast<unsigned>(remote_access);
  const int error =
      ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    release();
    throw system_failure("initialize a queue pair of " + device_->name(), error);
  }
}

QueuePair::~QueuePair() { release(); }

void QueuePair::create(Depth depth) {
  completions_ = ibv_create_cq(device_->context(), static_cast<int>(depth.send + depth.receive), nullptr, nullptr, 0);
  if (completions_ == nullptr) throw system_failure("create a completion queue of " + device_->name());

  ibv_qp_init_attr wanted = {};
  wanted.send_cq = completions_;
  wanted.recv_cq = completions_;
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 0;
  wanted.cap.max_send_wr = depth.send;
  wanted.cap.max_recv_wr = depth.receive;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = depth.inline_bytes;
  queue_pair_ = ibv_create_qp(device_->protection_domain(), &wanted);
  if (queue_pair_ == nullptr && depth.inline_bytes > 0) {
    wanted.cap.max_inline_data = 0;
    queue_pair_ = ibv_create_qp(device_->protection_domain(), &wanted);
  }
  if (queue_pair_ == nullptr) {
    const int error = errno;
    release();
    throw system_failure("create a queue pair of " + device_->name(), error);
  }
  inline_bytes_ = wanted.cap.max_inline_data;
  ibv_device_attr limits = {};
  if (reads_ > 1 && ibv_query_device(device_->context(), &limits) == 0)
    reads_ = static_cast<std::uint8_t>(
        std::clamp(std::min(limits.max_qp_rd_atom, limits.max_qp_init_rd_atom), 1, int{reads_}));
}

void QueuePair::release() {
  if (queue_pair_ != nullptr) ibv_destroy_qp(std::exchange(queue_pair_, nullptr));
  if (completions_ != nullptr) ibv_destroy_cq(std::exchange(completions_, nullptr));
}

void QueuePair::connect(const Endpoint& remote, const Transport& transport) {
  if (stream_) return;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(endpoint_.mtu, remote.mtu));
  attributes.dest_qp_num = remote.queue_pair;
  attributes.rq_psn = remote.packet_sequence;
  attributes.max_dest_rd_atomic = reads_;
  attributes.min_rnr_timer = kRnrTimer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = device_->port();
  std::memcpy(attributes.ah_attr.grh.dgid.raw, remote.gid.bytes.data(), 16);
  attributes.ah_attr.grh.sgid_index = gid_index_;
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  attributes.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(transport.traffic_class);
  int error = ibv_modify_qp(queue_pair_, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  const std::string what =
      "connect a queue pair of " + device_->name() + " (" + to_string(endpoint_.gid) + ") to " + to_string(remote.gid);
  if (error != 0) throw system_failure(what, error);

  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = endpoint_.packet_sequence;
  attributes.timeout = static_cast<std::uint8_t>(transport.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(transport.retry_count);
  attributes.rnr_retry = kRnrRetryUnlimited;
  attributes.max_rd_atomic = reads_;
  error = ibv_modify_qp(
      queue_pair_, &attributes,
      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) throw system_failure(what, error);
}

void QueuePair::stop() {
  if (stream_) return stream_->stop();
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
}

}  // namespace mesh
