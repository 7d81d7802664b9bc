// The table of comms, closing, and failure.
#include "plugins/mesh/transfer/comm.h"

#include <algorithm>
#include <atomic>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxComms = 65536;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;

// No destructor runs for the table: the library may be unloaded, or the process may end, while comms are open.
constinit std::atomic<Comm*> g_comms[kMaxComms] = {};
constinit std::mutex g_comms_mutex;
constinit std::size_t g_next_index = 0;
constinit std::size_t g_open = 0;
constinit std::uint8_t g_serial = 0;

}  // namespace

std::size_t piece_bytes(const Endpoint& one, const Endpoint& other) {
  std::size_t bytes = kMaxPiece;
  for (const Endpoint* each : {&one, &other}) {
    if (each->max_message_bytes != 0) bytes = std::min<std::size_t>(bytes, each->max_message_bytes);
  }
  return std::max(bytes / kPage, std::size_t{1}) * kPage;
}

Comm::Comm(std::shared_ptr<const Device> device, const Address& local, QueuePair::Depth depth, bool remote_write,
           std::size_t announcement_bytes)
    : device_(std::move(device)),
      queue_pair_(std::make_unique<QueuePair>(device_, local, depth, remote_write)),
      announcements_(std::make_unique<StagingMemory>(device_, announcement_bytes)),
      // Memory that is only sent may be read-only.
      registrations_(device_, remote_write ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) {
  const std::lock_guard lock(g_comms_mutex);
  if (g_open == kMaxComms) {
    throw Failure(Result::kSystemError, "more than " + std::to_string(kMaxComms) + " comms in one process");
  }
  while (g_comms[g_next_index % kMaxComms] != nullptr) ++g_next_index;
  index_ = static_cast<std::uint16_t>(g_next_index++ % kMaxComms);
  serial_ = ++g_serial;
  g_comms[index_] = this;
  ++g_open;
}

Comm::~Comm() {
  {
    const std::lock_guard lock(g_comms_mutex);
    if (g_comms[index_] == this) {
      g_comms[index_] = nullptr;
      --g_open;
    }
  }
  queue_pair_.reset();  // before the registrations
}

Comm* Comm::of(const RequestId& id) {
  Comm* comm = g_comms[id.comm].load(std::memory_order_acquire);
  return comm != nullptr && comm->serial_ == id.comm_serial ? comm : nullptr;
}

void Comm::abandon_all() {
  const std::lock_guard lock(g_comms_mutex);
  for (std::size_t i = 0; i < kMaxComms && g_open > 0; ++i) {
    Comm* comm = g_comms[i].exchange(nullptr);
    if (comm == nullptr) continue;
    comm->abandon();
    --g_open;
  }
}

void Comm::abandon() {
  const std::lock_guard lock(mutex_);
  fail(Result::kInternalError, "the plugin was unloaded");
  queue_pair_.reset();
  announcements_.reset();
  registrations_.close();
  device_.reset();
  peer_ = PeerMonitor();
}

void Comm::connect_to(const Endpoint& remote, const Transport& transport) {
  remote_ = remote;
  queue_pair_->connect(remote, transport);
}

void Comm::monitor(PeerLink link) {
  const std::lock_guard lock(mutex_);
  peer_.start(std::move(link));
}

std::string Comm::peer_text() const {
  return "the peer at " + to_string(remote_.gid) + " (through " + device_->name() + ")";
}

void Comm::fail(Result code, const std::string& why) {
  if (!broken()) error_.emplace(code, why);
}

Result Comm::report() {
  if (!std::exchange(reported_, true)) MESH_WARN("%s", error_->what());
  return error_->code();
}

void Comm::fail_by(const ibv_wc& completion) {
  if (broken() || draining_) return;
  // A peer that closed the connection does not answer either, and that is not a failure of the network.
  peer_.read();
  if (peer_.left()) return end_by_peer();
  const std::string status = ibv_wc_status_str(completion.status);
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      return fail(Result::kRemoteError,
                  peer_text() +
                      " does not answer: its process died or the link is down; check that host and its cable "
                      "(NCCL_MESH_TIMEOUT and NCCL_MESH_RETRY_CNT set the time limit)");
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return fail(Result::kRemoteError,
                  peer_text() + " refused a transfer (" + status +
                      "): its memory was deregistered before the transfer was done, or it failed; check its log");
    default:
      return fail(Result::kSystemError, "a transfer with " + peer_text() + " failed: " + status + ", vendor error " +
                                            std::to_string(completion.vendor_err) +
                                            "; the usual cause is memory that was deregistered too early");
  }
}

void Comm::check_peer() {
  if (!broken() && peer_.poll()) end_by_peer();
}

void Comm::drain() {
  draining_ = true;
  queue_pair_->stop();
  while (poll() > 0) {
  }
  draining_ = false;
}

void Comm::end_by_peer() {
  drain();
  settle(peer_.messages_received_by_peer());
  if (peer_.messages_received_by_peer()) {
    fail(Result::kRemoteError, peer_text() + " closed the connection while this side still used it");
  } else {
    fail(Result::kRemoteError, peer_text() + " disconnected (" + peer_.reason() +
                                   "): its process died or its host is unreachable; check its log");
  }
}

void Comm::close() {
  const std::lock_guard lock(mutex_);
  if (!queue_pair_) return;
  drain();  // first, so that the count is final
  peer_.say_goodbye(messages_received());
}

}  // namespace mesh
