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

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;

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
      // A stream asks `registrations_` each time it reads or writes memory.
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
      [this](const auto&... arguments) { return registrations_.use_locally(arguments...); },
      [this](const auto&... arguments) { return registrations_.use_remotely(arguments...); });
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
