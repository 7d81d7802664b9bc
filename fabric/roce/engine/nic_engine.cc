// Receives packets, finds their queue pairs, runs timers.
#include "fabric/roce/engine/nic_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "fabric/roce/engine/random.h"
#include "fabric/roce/qp/queue_pair_engine.h"
#include "fabric/system/processor.h"

namespace plugfest::roce {

namespace {

// Batches taken in one go, before answers go out: about a quarter of the largest window, so that the peer never waits.
constexpr int kBatchesPerRound = 4;
// Packets that another process forwards are looked for this often while the program polls.
constexpr Nanoseconds kForwardedInterval = 20'000;

// The kernel puts packets of one sender together, also when they are for different processes.
std::size_t bytes_for_first_process(const ReceivedBatch& batch) {
  std::size_t end = batch.segment_bytes;
  for (; end + kBthBytes <= batch.length; end += batch.segment_bytes)
    if (slot_of(destination_of(batch.bytes + end)) != slot_of(destination_of(batch.bytes))) return end;
  return batch.length;
}

}  // namespace

NicEngine::NicEngine(NicSettings settings)
    : publisher_(settings.device_folder, mutex_, scheduler_.wakeup()),
      counters_(publisher_.counters()),
      arrivals_(
          counters_, settings.device,
          [this](auto&&... packet) { receive_packet(std::forward<decltype(packet)>(packet)...); },
          [this](Nanoseconds time) { scheduler_.timer().arm(time); }),
      departures_(counters_, settings.device, [this](Nanoseconds time) { scheduler_.timer().arm(time); }),
      batch_(counters_, departures_),
      control_files_({.name = settings.device,
                      .folder = settings.device_folder,
                      .change_counter = publisher_.slot(),
                      .departures = departures_,
                      .arrivals = arrivals_},
                     settings.faults),
      ports_({.addresses = std::move(settings.addresses),
              .interface_index = settings.interface_index,
              .mtu_bytes = settings.mtu_bytes,
              .rate_mbps = settings.rate_mbps,
              .ecn = settings.ecn},
             scheduler_.wakeup()),
      fork_guard_(*this) {}

NicEngine::~NicEngine() {
  if (in_child()) return;
  if (service_) service_->stop();
  finish();
}

void NicEngine::finish() {
  // What is on a wire arrives, also when its sender is gone.
  for (;;) {
    Nanoseconds due = 0;
    {
      const std::lock_guard lock(mutex_);
      scheduler_.release_delayed_acknowledgements();
      scheduler_.run(now_ns());
      departures_.send_due(now_ns());
      due = departures_.due();
    }
    if (due == kNever) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(due - now_ns()));
  }
  collect();
  publisher_.publish_finally();
}

void NicEngine::exiting() {
  // Whoever holds the lock may be the one that a signal interrupted, and whose handler ends the process.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (mutex_.try_lock()) {
      mutex_.unlock();
      return finish();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void NicEngine::publish_if_due() {
  if (now_ns() < publisher_.deadline()) return;
  collect();
  publisher_.publish();
}

void NicEngine::collect() {
  const std::lock_guard lock(mutex_);
  control_files_.write_capture();
  count_buffer_drops();
}

void NicEngine::open() {
  if (service_) return;
  receive_buffer_ = std::make_unique<std::byte[]>(UdpPort::kReceiveBytes);
  ports_.open();
  service_ = std::make_unique<ServiceThread>(*this, scheduler_.wakeup());
}

void NicEngine::become_child() {
  in_child_.store(true);
  ports_.close_in_child();
  publisher_.slot().close_in_child();
  control_files_.close_in_child();
  scheduler_.wakeup().close_in_child();
  if (service_) service_->detach_in_child();
}

std::uint32_t NicEngine::add(QueuePairEngine& queue_pair) {
  open();
  constexpr int kAttempts = 1 << 20;
  constexpr std::uint32_t kReservedNumbers = 2;  // 0 and 1 belong to management
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint32_t number = static_cast<std::uint32_t>(ports_.slot().number()) << 16 | (random_number() & 0xffff);
    if (number < kReservedNumbers) continue;
    if (queue_pairs_.try_emplace(number, &queue_pair).second) return number;
  }
  throw std::system_error(ENOMEM, std::generic_category(), "queue pair numbers");
}

void NicEngine::remove(QueuePairEngine& queue_pair) {
  queue_pairs_.erase(queue_pair.number());
  scheduler_.unschedule(queue_pair);
}

void NicEngine::set_addresses(std::vector<Address> in_gid_order) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  ports_.set_addresses(std::move(in_gid_order));
}

void NicEngine::set_mtu(int mtu_bytes) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  ports_.set_mtu(mtu_bytes);
}

bool NicEngine::list_descriptors(std::vector<int>& readable, std::vector<int>& writable) {
  const std::unique_lock lock = try_lock_soon();
  if (!lock.owns_lock()) return false;
  publisher_.check(now_ns(), control_files_.capture_pending());
  ports_.list_descriptors(readable, writable);
  return true;
}

Counters NicEngine::counters_now() {
  if (in_child()) return {};
  const std::lock_guard lock(mutex_);
  count_buffer_drops();
  return publisher_.slot().own();
}

void NicEngine::count_buffer_drops() { counters_.buffer_drops += ports_.new_buffer_drops(); }

void NicEngine::poll() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !service_) return;
  progress();
  calls_.fetch_add(1, std::memory_order_relaxed);
}

bool NicEngine::busy() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock.owns_lock();
}

std::unique_lock<std::mutex> NicEngine::try_lock_soon() {
  constexpr int kAttempts = 300;
  std::unique_lock lock(mutex_, std::defer_lock);
  for (int i = 0; i < kAttempts && !lock.try_lock(); ++i)
    for (int pause = 0; pause < 4; ++pause) spin_pause();
  return lock;
}

std::unique_lock<std::mutex> NicEngine::lock_to_post() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock = try_lock_soon();
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

NicEngine::Served NicEngine::serve() {
  const std::unique_lock lock = try_lock_soon();
  if (!lock.owns_lock()) return Served::kBusy;
  forwarded_checked_ = 0;
  return progress() ? Served::kPackets : Served::kNothing;
}

bool NicEngine::progress() {
  const Nanoseconds now = now_ns();
  bool received = false;
  control_files_.follow(now);
  scheduler_.release_delayed_acknowledgements();
  for (const auto& port : ports_.ports()) {
    for (int i = 0; i < kBatchesPerRound && receive_next(*port, now); ++i) received = true;
  }
  if (now - forwarded_checked_ >= kForwardedInterval) {
    forwarded_checked_ = now;
    receive_forwarded(now);
  }
  if (now >= arrivals_.due()) arrivals_.take_due(now);
  if (now >= departures_.due()) departures_.send_due(now);
  scheduler_.run(now);
  if (scheduler_.timer().due(now)) run_timers(now);
  if (scheduler_.any_blocked() && ports_.unblock_senders()) scheduler_.run_blocked(now_ns());
  if (publisher_.check_due(now)) publisher_.check(now, control_files_.capture_pending());
  return received;
}

void NicEngine::receive_forwarded(Nanoseconds now) {
  ReceivedBatch batch;
  for (int i = 0; i < kBatchesPerRound && ports_.slot().receive(receive_buffer_.get(), batch); ++i) {
    forwarded_checked_ = 0;  // where one comes, more will
    for (const auto& port : ports_.ports()) {
      if (port->address() != batch.arrival.destination) continue;
      if (batch.segment_bytes > 0) {
        receive_batch(*port, batch, now);
      } else if (PortMap::Claim claim; batch.length == sizeof(claim)) {
        std::memcpy(&claim, batch.bytes, sizeof(claim));
        port->learn(claim);
      }
    }
  }
}

void NicEngine::answer_probe(const UdpPort& port, std::span<const std::byte> packet) {
  const std::optional<PortMap::Probe> probe = PortMap::read(packet);
  if (!probe) return;
  const PortMap::Claim claim = {probe->nonce, ports_.slot().number(), probe->number};
  // Like a forwarded batch, but of no packets.
  ports_.slot().forward(probe->asker, {.bytes = reinterpret_cast<const std::byte*>(&claim),
                                       .length = sizeof(claim),
                                       .segment_bytes = 0,
                                       .arrival = {.source = {}, .destination = port.address()}});
}

void NicEngine::receive_batch(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now, std::size_t first_index) {
  if (batch.segment_bytes < kBthBytes + kIcrcBytes || batch.segment_bytes > kMaxPacketBytes) {
    ++counters_.received_packets;
    ++counters_.malformed_packets;
    return;
  }
  if (const std::size_t length = bytes_for_first_process(batch); length < batch.length) {
    ReceivedBatch part = batch;
    part.length = length;
    receive_batch(port, part, now, first_index);
    part.bytes += length;
    part.length = batch.length - length;
    return receive_batch(port, part, now, first_index + length / batch.segment_bytes);
  }
  const std::uint8_t owner = slot_of(destination_of(batch.bytes));
  // The damaged number of a queue pair is nobody's: here the packet is counted and dropped.
  const std::span first(batch.bytes, std::min(batch.segment_bytes, batch.length));
  if (owner == PortMap::kProbeSlot) return answer_probe(port, first);
  if (owner != ports_.slot().number() && icrc_is_right(first, first_index, batch.arrival)) {
    const bool forwarded = ports_.slot().forward(owner, batch);
    ++(forwarded ? counters_.forwarded_packets : counters_.forward_drops);
    if (forwarded) port.ask_whose(ports_.slot().number(), now);
    return;
  }
  if (arrivals_.meddle()) return arrivals_.take(batch, now);
  receive_packets(batch, first_index, now);
}

void NicEngine::receive_packet(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival,
                               Nanoseconds now) {
  ++counters_.received_packets;
  counters_.received_bytes += bytes.size();
  // First of all: what the headers of a damaged packet say means nothing.
  if (!icrc_is_right(bytes, index, arrival)) {
    ++counters_.icrc_errors;
    return;
  }
  const std::optional<Packet> packet = decode(bytes);
  if (!packet) {
    ++counters_.malformed_packets;
    return;
  }
  const auto found = queue_pairs_.find(packet->headers.destination);
  if (found == queue_pairs_.end()) {
    ++counters_.unknown_queue_pairs;
    return;
  }
  const OperationTraits& traits = traits_of(packet->headers.operation);
  if (traits.send || traits.write || traits.response) long_message_ = !traits.last;
  found->second->receive(*packet, arrival, now);
}

void NicEngine::run_timers(Nanoseconds now) {
  Timer& timer = scheduler_.timer();
  timer.disarm();  // first, so that deadlines armed by on_timer() count
  timer.arm(std::min(arrivals_.due(), departures_.due()));
  for (const auto& [number, queue_pair] : queue_pairs_) {
    if (now >= queue_pair->deadline()) queue_pair->on_timer(now);
    timer.arm(queue_pair->deadline());
  }
}

}  // namespace plugfest::roce
