#include "plugins/mesh/transfer/comm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxComms = 65536;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;

// Lanes are checked this often. If the work of a lane made no progress since the last check, its link is checked.
constexpr std::int64_t kLinkCheckMs = 10;
// If the TCP connection to the peer is lost, but lanes work, they are checked this often by pings.
constexpr std::int64_t kPingMs = 1000;
// With more notices in flight than this, a lane gets only those that are necessary.
constexpr std::uint32_t kOptionalNotices = 8;

// No destructor runs for the table: the library may be unloaded, or the process may end, while comms are open.
constinit std::atomic<Comm*> g_comms[kMaxComms] = {};
constinit std::mutex g_comms_mutex;
constinit std::size_t g_next_index = 0;
constinit std::size_t g_open = 0;
constinit std::uint8_t g_serial = 0;

std::vector<std::shared_ptr<const Device>> devices_of(const std::vector<LaneStart>& starts) {
  std::vector<std::shared_ptr<const Device>> devices;
  for (const LaneStart& start : starts) devices.push_back(start.device);
  return devices;
}

// A GPU may read a buffer while the message arrives. This function therefore copies as a NIC does: no aligned word of 8
// bytes is visible in part, and the last word of an aligned line of 128 bytes is not visible before its other bytes.
void copy_in_order(std::byte* target, std::span<const std::byte> source) {
  constexpr std::size_t kLine = 128, kWord = 8;
  const auto copy = [&](std::size_t count) {
    std::memcpy(target, source.data(), count);
    std::atomic_thread_fence(std::memory_order_release);
    target += count;
    source = source.subspan(count);
  };
  while (!source.empty()) {
    const auto address = reinterpret_cast<std::uintptr_t>(target);
    if (address % kLine == 0 && source.size() >= kLine) {
      copy(kLine - kWord);  // a constant size, so the call is inlined
      copy(kWord);
      continue;
    }
    const std::size_t in_word = address % kWord, rest_of_line = kLine - address % kLine;
    const std::size_t next = in_word != 0 ? kWord - in_word : rest_of_line > kWord ? rest_of_line - kWord : kWord;
    copy(std::min(next, source.size()));
  }
}

// Whether traffic may continue on another lane after this error: the path failed, not the transfer.
bool is_of_path(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_FATAL_ERR ||
         status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_GENERAL_ERR;
}

}  // namespace

std::size_t piece_bytes(std::span<const Endpoint> ones, std::span<const Endpoint> others) {
  std::size_t bytes = kMaxPiece;
  for (const auto& side : {ones, others}) {
    for (const Endpoint& endpoint : side)
      if (endpoint.max_message_bytes != 0) bytes = std::min<std::size_t>(bytes, endpoint.max_message_bytes);
  }
  return std::max(bytes / kPage, std::size_t{1}) * kPage;
}

Comm::Comm(const std::vector<LaneStart>& starts, const LaneNeeds& needs, std::size_t requests, std::size_t parts)
    : events_(requests, parts),
      // Memory that is only sent may be read-only.
      registrations_(devices_of(starts), needs.remote_write ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) {
  lanes_.reserve(starts.size());
  for (const LaneStart& start : starts) lanes_.emplace_back(start, needs);
  const std::lock_guard lock(g_comms_mutex);
  if (g_open == kMaxComms)
    throw Failure(Result::kSystemError, "more than " + std::to_string(kMaxComms) + " comms in one process");
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
  lanes_.clear();  // released before the registrations
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
  fail(Result::kInternalError, "the plugin was unloaded");
  lanes_.clear();
  flushes_.close();
  registrations_.close();
  peer_ = PeerMonitor();
}

void Comm::start(std::span<const Endpoint> remotes, const Transport& transport) {
  if (remotes.size() != lanes_.size()) {
    throw Failure(Result::kRemoteError, "the peer answered with " + std::to_string(remotes.size()) + " lanes, not " +
                                            std::to_string(lanes_.size()) + ": use the same plugin on all ranks");
  }
  piece_bytes_ = piece_bytes(endpoints(), remotes);
  events_.set_callback(transport.profiler);
  for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].connect(remotes[i], transport);
}

std::vector<Endpoint> Comm::endpoints() const {
  std::vector<Endpoint> all;
  for (const Lane& lane : lanes_) all.push_back(lane.endpoint());
  return all;
}

Result Comm::check() {
  if (!broken()) poll();
  return broken() ? report() : Result::kSuccess;
}

std::vector<LaneStart> Comm::links() const {
  std::vector<LaneStart> links;
  for (const Lane& lane : lanes_) {
    if (lane.relayed())
      throw Failure(Result::kInvalidUsage, "relays connect " + peer_text() + ", and they carry no one-sided transfers");
    links.push_back({lane.shared_device(), lane.endpoint().gid});
  }
  return links;
}

Registration* Comm::add_memory(const MemoryToRegister& memory) {
  if (memory.of_gpu) flushes_.prepare(lanes_);
  return registrations_.add(memory);
}

void Comm::remove_memory(Registration* registration) {
  if ((registrations_.is_shared(registration) || copies()) && uses(*registration)) {
    // Another thread may transfer on this comm. That thread notices it at its next call, or before it copies.
    interrupted_.store(true);
    while (copying_.load() == registration) std::this_thread::yield();
    for (Lane& lane : lanes_) {
      // A stream asks `registrations_` at each write of the peer.
      if (!lane.relayed()) lane.queue_pair().stop();
    }
  }
  registrations_.remove(registration);
}

void Comm::fail_by_interruption() {
  fail(Result::kInternalError, "memory was deregistered while a transfer with " + peer_text() + " used it");
}

bool Comm::copy_to(const Registration* memory, std::byte* target, std::span<const std::byte> source) {
  // All threads see these two steps, and the same two in remove_memory, in one order. So this thread sees the
  // interruption, or the other thread sees the copy and waits for its end.
  copying_.store(memory);
  const bool allowed = !interrupted_.load();
  if (allowed) copy_in_order(target, source);
  copying_.store(nullptr, std::memory_order_release);
  return allowed;
}

void Comm::monitor(PeerLink link, const ConnectionKey& key) {
  Stream* stream = lanes_.front().queue_pair().stream();
  if (stream == nullptr) return peer_.start(std::move(link), key);
  auto [socket, received] = link.release();
  stream->start(
      std::move(socket), std::move(received),
      [this](std::uint64_t address, std::uint64_t bytes, std::uint32_t key, const std::function<void()>& use) {
        return registrations_.use_remotely(address, bytes, key, use);
      });
  peer_.start(*stream);
}

std::size_t Comm::lanes_up() const {
  return static_cast<std::size_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.up(); }));
}

std::size_t Comm::first_lane_up() const {
  std::size_t index = 0;
  while (!lanes_[index].up()) ++index;
  return index;
}

bool Comm::switching() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.up() && !lane.settled(); });
}

std::string Comm::peer_text() const {
  if (lanes_.empty()) return "the peer";
  const auto up = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.up(); });
  const Lane& lane = up != lanes_.end() ? *up : lanes_.front();
  return "the peer at " + to_string(lane.peer()) + " (through " + lane.way() + ")";
}

void Comm::fail(Result code, const std::string& why) {
  if (!error_) error_.emplace(code, why);
}

Result Comm::report() {
  if (!std::exchange(reported_, true)) MESH_WARN("%s", error_->what());
  return error_->code();
}

void Comm::poll() {
  int count = 0;
  for (Lane& lane : lanes_)
    if (lane.up()) count += poll_lane(lane);
  if (count == 0) check_peer();
}

int Comm::poll_lane(Lane& lane) {
  std::array<ibv_wc, 16> completions;
  const int count = lane.queue_pair().poll(completions);
  if (count == 0) return 0;
  if (count < 0) fail(Result::kSystemError, "cannot poll the completions of " + lane.device().name());
  const ibv_wc* bad = nullptr;
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) {
      if (bad == nullptr) bad = &completion;
    } else if ((completion.opcode & IBV_WC_RECV) != 0) {
      lane.receives().use();
      if (completion.opcode == IBV_WC_RECV && (completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
        take_notice(Notice::decode(ntohl(completion.imm_data)));
      } else {
        lane.count_received();
        on_received(lane, completion);
      }
    } else {
      if (WorkQueue::is_notice(completion.wr_id)) --lane.notices_in_flight;
      while (const Work* work = lane.work().take_done(completion.wr_id)) on_done(*work);
    }
  }
  if (bad != nullptr) on_error(lane, *bad);
  if (const int error = lane.up() ? lane.receives().post_used(lane.queue_pair()) : 0)
    fail(Result::kSystemError, "cannot post receives to " + lane.device().name() + ": " + error_text(error));
  return count;
}

void Comm::on_error(Lane& lane, const ibv_wc& completion) {
  if (broken() || draining_ || !lane.up()) return;
  // A peer that closed the connection does not answer, and its silence is not a failure of the network.
  peer_.read();
  if (peer_.left() && !only_link_lost()) return end_by_peer();
  const std::string status = ibv_wc_status_str(completion.status);
  if (is_of_path(completion.status) && take_down(lane, status)) return;
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

// Stops a lane and tells the peer what this side received on it. Returns false if it is the only lane.
bool Comm::take_down(Lane& lane, const std::string& why) {
  if (lanes_up() < 2) return false;
  lane.stop();
  while (poll_lane(lane) > 0) {
  }
  ++counters_.failovers;
  for (Lane& other_lane : lanes_)
    if (other_lane.up()) post_notice(other_lane, {static_cast<std::uint8_t>(index_of(lane)), lane.received()});
  MESH_WARN("%s failed (%s); its traffic continues through %s", lane.text().c_str(), why.c_str(),
            lanes_[first_lane_up()].text().c_str());
  switch_over(lane);
  return true;
}

void Comm::post_notice(Lane& lane, const Notice& content) {
  ibv_send_wr notice = {};
  notice.wr_id = lane.work().notice_id();
  notice.opcode = IBV_WR_SEND_WITH_IMM;
  notice.send_flags = IBV_SEND_SIGNALED;
  notice.imm_data = htonl(content.encode());
  // Errors are ignored: then the lane has also failed, and its completions report that.
  if (lane.queue_pair().post_send(&notice) == 0) ++lane.notices_in_flight;
}

void Comm::tell_idle(std::uint32_t groups) {
  for (Lane& lane : lanes_)
    if (lane.up() && lane.notices_in_flight < kOptionalNotices) post_notice(lane, {Notice::kIdle, groups});
}

bool Comm::tell_eager(std::uint32_t value) {
  Lane& lane = lanes_.front();
  if (!lane.up() || lane.notices_in_flight >= kOptionalNotices) return false;
  post_notice(lane, {Notice::kEager, value});
  return true;
}

void Comm::take_notice(const Notice& notice) {
  if (notice.kind == Notice::kPing || draining_) return;
  if (notice.kind == Notice::kIdle) return on_idle(notice.count);
  if (notice.kind == Notice::kEager) return on_eager(notice.count);
  if (notice.kind >= lanes_.size())
    return fail(Result::kRemoteError, peer_text() + " sent an invalid notice: use the same plugin on all ranks");
  Lane& lane = lanes_[notice.kind];
  if (lane.closed()) return;  // notices are sent on each lane
  lane.peer_stopped(notice.count);
  if (!lane.up()) return switch_over(lane);
  if (!take_down(lane, "the peer stopped it") && !broken())
    fail(Result::kRemoteError, "no link to " + peer_text() + " works any more: check that host and its cables");
}

// Passes on the work of a stopped lane, once the peer has also stopped it: then none of its packets can arrive.
void Comm::switch_over(Lane& lane) {
  if (!lane.closed() || lane.up() || lane.settled() || broken()) return;
  std::uint32_t received = (lane.peer_received() - lane.work().acknowledged()) & kCountMask;
  if (received > lane.work().in_flight())
    return fail(Result::kRemoteError, peer_text() + " received more than was sent: use the same plugin on all ranks");
  const std::uint64_t before = counters_.repeated;
  const std::int64_t pause = lane.work().in_flight() > 0 ? coarse_now_ms() - lane.work().quiet_since_ms() : 0;
  while (const Work* work = lane.work().take_oldest()) {
    if (!work->counted) continue;
    if (received > 0) {
      --received;
      on_done(*work);
    } else {
      ++counters_.repeated;
      on_lost(index_of(lane), *work);
    }
  }
  lane.settle();
  counters_.pause_ms += pause;
  MESH_INFO("%s: repeated %llu transfers after a pause of %lld ms", lane.text().c_str(),
            static_cast<unsigned long long>(counters_.repeated - before), static_cast<long long>(pause));
  on_switched();
}

// The TCP connection uses the path of one lane. If that path fails, the paths of other lanes may work.
bool Comm::only_link_lost() const { return peer_.unreachable() && lanes_.size() > 1; }

void Comm::check_peer() {
  if (broken() || draining_) return;
  const std::int64_t now = coarse_now_ms();
  if (peer_.poll(now)) {
    if (!only_link_lost()) return end_by_peer();
    if (now - pinged_ms_ >= kPingMs) {
      pinged_ms_ = now;
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (lanes_[i].up() && lanes_[i].work().in_flight() == 0) post_notice(lanes_[i], {Notice::kPing});
    }
  }
  if (lanes_.size() > 1) check_links(now);
}

// A NIC retransmits for seconds before it gives up. A link that is down is found earlier.
void Comm::check_links(std::int64_t now_ms) {
  if (now_ms - links_checked_ms_ < kLinkCheckMs) return;
  links_checked_ms_ = now_ms;
  for (Lane& lane : lanes_) {
    lane.work().check_progress(now_ms);
    if (lane.up() && lane.work().quiet_since_ms() != now_ms && !lane.device().port_is_active())
      take_down(lane, "its link is down");
  }
}

void Comm::drain() {
  draining_ = true;
  for (Lane& lane : lanes_) {
    if (lane.up()) lane.stop();
    while (poll_lane(lane) > 0) {
    }
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
  if (lanes_.empty()) return;
  drain();  // first, so that the count is final
  MESH_INFO(
      "closed the connection to %s: %llu messages, %llu bytes; %u links failed, %llu transfers repeated, %lld ms "
      "paused",
      peer_text().c_str(), static_cast<unsigned long long>(counters_.messages),
      static_cast<unsigned long long>(counters_.bytes), counters_.failovers,
      static_cast<unsigned long long>(counters_.repeated), static_cast<long long>(counters_.pause_ms));
  peer_.send_close(messages_received());
}

}  // namespace mesh
