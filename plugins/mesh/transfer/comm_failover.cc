// How a comm handles failures: passes the work of a failed lane to others, or ends because the peer is lost.
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"
#include "plugins/mesh/transfer/comm.h"

namespace mesh {
namespace {

// Lanes are checked this often. If the work of a lane made no progress since the last check, its link is checked.
constexpr std::int64_t kLinkCheckMs = 10;

// Whether traffic may continue on another lane after this error: the path failed, not the transfer.
bool is_of_path(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_FATAL_ERR ||
         status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_GENERAL_ERR;
}

}  // namespace

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

}  // namespace mesh
