// Connections: the table they are found in, their registrations, the end of the peer.
#include "plugins/mesh/transfer/comm.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxComms = 65536;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;
// After the peer's farewell: time for the NIC to hand over what arrived before.
constexpr std::int64_t kGraceMs = 20;

// All of it needs no destruction: the library may be unloaded, or the process end, with comms open.
constinit std::atomic<Comm*> g_comms[kMaxComms] = {};
constinit std::mutex g_comms_mutex;
constinit std::size_t g_next_index = 0;
constinit std::size_t g_open = 0;
constinit std::uint8_t g_serial = 0;

std::int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void release(Registration* registration) {
  if (registration->region != nullptr) ibv_dereg_mr(registration->region);
  delete registration;
}

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
      // What is only sent may lie in memory that cannot be written.
      memory_access_(remote_write ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) {
  const std::lock_guard lock(g_comms_mutex);
  if (g_open == kMaxComms) {
    throw Failure(Result::kSystemError, "more than " + std::to_string(kMaxComms) + " connections in one process");
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
  queue_pair_.reset();
  for (Registration* each : registrations_) release(each);
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
  const std::scoped_lock lock(mutex_, registrations_mutex_);
  fail(Result::kInternalError, "the plugin was unloaded");
  queue_pair_.reset();
  announcements_.reset();
  for (Registration* each : registrations_) release(each);
  registrations_.clear();
  device_.reset();
  link_ = PeerLink();
}

Registration* Comm::add_memory(void* data, std::size_t bytes) {
  auto registration = std::make_unique<Registration>();
  registration->begin = reinterpret_cast<std::uintptr_t>(data);
  registration->size = bytes;
  {
    const std::lock_guard lock(registrations_mutex_);
    registration->device = device_;
  }
  if (!registration->device) throw Failure(Result::kInternalError, "memory is registered on a closed connection");
  if (bytes > 0) {
    registration->region = ibv_reg_mr(registration->device->protection_domain(), data, bytes, memory_access_);
    if (registration->region == nullptr) {
      throw system_failure("register " + std::to_string(bytes) + " bytes of memory with " +
                           registration->device->name() + " (is it mapped, is `ulimit -l` high enough?)");
    }
  }
  const std::lock_guard lock(registrations_mutex_);
  registrations_.insert(registration.get());
  return registration.release();
}

void Comm::remove_memory(Registration* registration) {
  {
    const std::lock_guard lock(registrations_mutex_);
    if (registrations_.erase(registration) == 0) {
      throw Failure(Result::kInvalidArgument, "deregMr got a handle that regMr of this connection did not give");
    }
  }
  release(registration);
}

void Comm::connect_to(const Endpoint& remote, const Transport& transport) {
  remote_ = remote;
  queue_pair_->connect(remote, transport);
}

void Comm::watch(PeerLink link) {
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

std::string Comm::peer_text() const {
  return "the peer at " + to_string(remote_.gid) + " (over " + device_->name() + ")";
}

void Comm::fail(Result code, const std::string& why) {
  if (broken()) return;
  error_ = code;
  error_text_ = why;
}

Result Comm::report() {
  if (!std::exchange(reported_, true)) MESH_WARN("%s", error_text_.c_str());
  return error_;
}

void Comm::fail_by(const ibv_wc& completion) {
  if (broken() || concluding_) return;
  // A peer that has left answers no more either: then it is not a failure of the network.
  read_link();
  if (peer_gone_) return conclude();
  const std::string status = ibv_wc_status_str(completion.status);
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      return fail(Result::kRemoteError, peer_text() +
                                            " does not answer: it died or the link is cut; look at that host and its "
                                            "cable (NCCL_MESH_TIMEOUT sets the patience)");
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return fail(Result::kRemoteError,
                  peer_text() + " refused a transfer (" + status +
                      "): its memory was deregistered before the transfer was done, or it failed; "
                      "look at its log");
    default:
      return fail(Result::kSystemError, "a transfer with " + peer_text() + " failed: " + status + ", vendor error " +
                                            std::to_string(completion.vendor_err) +
                                            "; memory deregistered too early is the usual reason");
  }
}

void Comm::watch_peer() {
  const std::int64_t now = now_ms();
  if (now == watched_at_ms_ || broken()) return;
  watched_at_ms_ = now;
  if (!peer_gone_) {
    read_link();
  } else if (now - gone_at_ms_ >= kGraceMs) {
    conclude();
  }
}

void Comm::read_link() {
  if (peer_gone_) return;
  try {
    while (const std::optional<Message> message = link_.receive()) {
      const auto* goodbye = std::get_if<Goodbye>(&*message);
      if (goodbye == nullptr) throw Failure(Result::kRemoteError, "the peer sent a message that has no place here");
      peer_received_ = goodbye->messages_received;
      peer_gone_ = true;
    }
    if (link_.ended()) peer_gone_ = true;
  } catch (const Failure&) {
    peer_gone_ = true;
  }
  if (peer_gone_) gone_at_ms_ = now_ms();
}

void Comm::conclude() {
  concluding_ = true;
  queue_pair_->stop();
  while (poll() > 0) {
  }
  settle(peer_received_);
  concluding_ = false;
  if (peer_received_) {
    fail(Result::kRemoteError, peer_text() + " closed the connection while this side still used it");
  } else {
    fail(Result::kRemoteError, peer_text() + " is gone (" + (link_.ended() ? link_.end_reason() : "it sent nonsense") +
                                   "): its process died or its host is cut off; look at its log");
  }
}

void Comm::close() {
  const std::lock_guard lock(mutex_);
  if (!queue_pair_) return;
  // Stopped first, so that the count is final.
  concluding_ = true;
  queue_pair_->stop();
  while (poll() > 0) {
  }
  link_.send(Goodbye{messages_received()});
  link_.finish();
}

}  // namespace mesh
