#include "plugins/sharp/ring.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sharp {
namespace {

namespace net = mesh::net;

// Other ranks may start seconds later, so a long wait leaves the processor to them.
constexpr int kPollsBeforeSleep = 2000;
constexpr std::chrono::microseconds kSleep{100};

constexpr int kTag = 1;
constexpr int kProbeTag = 2;

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Ring::Ring(Place place, int device, void* listener, const void* next_handle, std::chrono::seconds limit,
           abi::Logger logger)
    : place_(place),
      device_(device),
      limit_(limit),
      deadline_(std::chrono::steady_clock::now() + limit),
      listener_(listener) {
  std::memcpy(next_handle_.data(), next_handle, next_handle_.size());
  if (const Result result = net::init(&context_, 0, nullptr, logger, nullptr); result != Result::kSuccess) {
    close();
    throw Failure(result, "connect: the net part does not start: see its line above");
  }
}

void Ring::close() {
  for (const auto& [direction, close_comm] :
       {std::pair(&receive_, &net::close_recv), std::pair(&send_, &net::close_send)}) {
    if (direction->memory != nullptr) net::dereg_mr(direction->comm, direction->memory);
    if (direction->comm != nullptr) close_comm(direction->comm);
    direction->comm = direction->memory = nullptr;
  }
  if (listener_ != nullptr) net::close_listen(std::exchange(listener_, nullptr));
  if (context_ != nullptr) net::finalize(std::exchange(context_, nullptr));
}

void Ring::broadcast(void* data, std::size_t bytes, int root) {
  if (place_.rank != root) exchange(nullptr, data, bytes);
  if (next() != root) exchange(data, nullptr, bytes);
}

// Each rank passes on the block that it received last.
void Ring::all_gather(const void* own, void* all, std::size_t bytes) {
  if (bytes == 0) return;  // the pointers may be null
  auto* const blocks = static_cast<std::byte*>(all);
  const auto ranks = static_cast<std::size_t>(place_.ranks);
  auto block = static_cast<std::size_t>(place_.rank);
  std::memmove(blocks + block * bytes, own, bytes);
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t following = (block + ranks - 1) % ranks;
    exchange(blocks + block * bytes, blocks + following * bytes, bytes);
    block = following;
  }
}

void Ring::barrier() {
  const std::byte own = {};
  std::vector<std::byte> all(static_cast<std::size_t>(place_.ranks));
  all_gather(&own, all.data(), 1);
}

// Sends to the next rank and receives from the previous one at the same time. A null pointer leaves out its direction.
void Ring::exchange(const void* to_next, void* from_previous, std::size_t bytes) {
  if (place_.ranks == 1) return;
  for (std::size_t at = 0; at < bytes; at += send_.message.size()) {
    const std::size_t part = std::min(bytes - at, send_.message.size());
    if (to_next != nullptr) std::memcpy(send_.message.data(), static_cast<const std::byte*>(to_next) + at, part);
    exchange_message(to_next != nullptr, from_previous != nullptr);
    if (from_previous != nullptr)
      std::memcpy(static_cast<std::byte*>(from_previous) + at, receive_.message.data(), part);
  }
}

// Also connects the directions that it uses.
void Ring::exchange_message(bool sends, bool receives) {
  if (context_ == nullptr) throw Failure(Result::kInternalError, "connect: the ring of the ranks is closed");
  void* sending = nullptr;
  void* receiving = nullptr;
  for (int polls = 0; sends || receives; ++polls) {
    if (sends) sends = !advance_send(sending);
    if (receives) receives = !advance_receive(receiving);
    if (!sends && !receives) return;
    if (!sends) probe_next();
    check_time(sends);
    if (polls < kPollsBeforeSleep)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kSleep);
  }
}

// Messages are larger than NCCL_MESH_EAGER permits, so isend gives no request before the next rank receives. Until then
// each call finds out whether that rank still exists.
bool Ring::advance_send(void*& request) {
  const std::size_t bytes = send_.message.size();
  if (send_.comm == nullptr) {
    check(net::connect(context_, device_, next_handle_.data(), &send_.comm, nullptr), next());
    if (send_.comm == nullptr) return false;
    check(net::reg_mr(send_.comm, send_.message.data(), bytes, abi::kPointerHost, &send_.memory), next());
  }
  if (request == nullptr)
    check(net::isend(send_.comm, send_.message.data(), bytes, kTag, send_.memory, nullptr, &request), next());
  return request != nullptr && is_done(request, next());
}

// Until the previous rank has connected, its failure cannot be seen here. It reaches this rank through the others: each
// rank finds that the next one has closed its ring. After the previous rank has connected, no probe is needed, because
// receiving from it reports its failure. A probe could then fail wrongly, because the next rank may have succeeded and
// closed its ring. No rank receives the message of the probe, so isend gives no request, or an error.
void Ring::probe_next() {
  if (send_.comm == nullptr || receive_.comm != nullptr) return;
  void* request = nullptr;
  check(net::isend(send_.comm, send_.message.data(), send_.message.size(), kProbeTag, send_.memory, nullptr, &request),
        next());
}

bool Ring::advance_receive(void*& request) {
  std::size_t bytes = receive_.message.size();
  if (receive_.comm == nullptr) {
    check(net::accept(listener_, &receive_.comm, nullptr), previous());
    if (receive_.comm == nullptr) return false;
    check(net::reg_mr(receive_.comm, receive_.message.data(), bytes, abi::kPointerHost, &receive_.memory), previous());
  }
  if (request == nullptr) {
    void* data = receive_.message.data();
    int tag = kTag;
    check(net::irecv(receive_.comm, 1, &data, &bytes, &tag, &receive_.memory, nullptr, &request), previous());
  }
  return request != nullptr && is_done(request, previous());
}

bool Ring::is_done(void* request, int neighbor) const {
  int done = 0;
  check(net::test(request, &done, nullptr), neighbor);
  return done != 0;
}

void Ring::check(Result result, int neighbor) const {
  if (result == Result::kSuccess) return;
  throw Failure(result, "connect: " + rank_text(place_.rank) + " has no connection to " + rank_text(neighbor) + " of " +
                            std::to_string(place_.ranks) +
                            ": see the line of the net part above, and the log of that rank");
}

void Ring::check_time(bool waits_for_next) const {
  if (std::chrono::steady_clock::now() < deadline_) return;
  throw Failure(Result::kRemoteError,
                "connect: no answer from " + rank_text(waits_for_next ? next() : previous()) + " of " +
                    std::to_string(place_.ranks) + " after " + std::to_string(limit_.count()) +
                    " s: it did not call connect, or is blocked: see its log, or set NCCL_SHARP_CONNECT_TIMEOUT");
}

// Runs a collective for libsharp_coll, whose code no exception may cross.
template <typename Body>
int Ring::status_of(const Body& body) noexcept {
  try {
    body();
    return 0;
  } catch (const Failure& error) {
    if (!failure_) failure_ = error;
  } catch (const std::exception& error) {
    if (!failure_) failure_.emplace(Result::kSystemError, error.what());
  }
  close();  // the neighbors need not wait for libsharp_coll to give up
  return -1;
}

sharp_coll_out_of_band_colls Ring::collectives() {
  return {.bcast =
              [](void* context, void* data, int bytes, int root) {
                auto& ring = *static_cast<Ring*>(context);
                return ring.status_of([&] { ring.broadcast(data, static_cast<std::size_t>(bytes), root); });
              },
          .barrier =
              [](void* context) {
                auto& ring = *static_cast<Ring*>(context);
                return ring.status_of([&] { ring.barrier(); });
              },
          // Only the root has memory for the result.
          .gather =
              [](void* context, int root, void* own, void* all, int bytes) {
                auto& ring = *static_cast<Ring*>(context);
                return ring.status_of([&] {
                  const auto size = static_cast<std::size_t>(bytes);
                  std::vector<std::byte> unused;
                  if (ring.place_.rank != root) unused.resize(size * static_cast<std::size_t>(ring.place_.ranks));
                  ring.all_gather(own, ring.place_.rank == root ? all : unused.data(), size);
                });
              }};
}

}  // namespace sharp
