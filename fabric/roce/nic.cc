#include "fabric/roce/nic.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "fabric/roce/qp/queue_pair.h"

namespace plugfest::roce {

Nic::Nic(NicSettings settings)
    : publisher_(settings.device_folder, lock_, scheduler_.wakeup()),
      ports_({.addresses = std::move(settings.addresses),
              .interface_index = settings.interface_index,
              .mtu_bytes = settings.mtu_bytes,
              .rate_mbps = settings.rate_mbps,
              .ecn = settings.ecn},
             scheduler_.wakeup()),
      receive_path_(publisher_.counters(), ports_, queue_pairs_, settings.device, scheduler_.timer()),
      transmit_path_(publisher_.counters(), settings.device,
                     [this](Nanoseconds time) { scheduler_.timer().arm(time); }),
      batch_(publisher_.counters(), transmit_path_),
      control_files_({.name = settings.device,
                      .folder = settings.device_folder,
                      .change_counter = publisher_.slot(),
                      .transmit_path = transmit_path_,
                      .receive_faults = receive_path_.faults()},
                     settings.faults),
      memory_(lock_),
      fork_guard_(*this) {}

Nic::~Nic() {
  if (in_child()) return;
  if (service_) service_->stop();
  finish();
  // A fork must not copy the sockets after the fork guard has been destroyed: the child would keep them open.
  const std::lock_guard lock(lock_);
  ports_.close_sockets();
}

void Nic::finish() {
  // Sends delayed packets although the sender ends, because packets on a real link would also arrive.
  for (;;) {
    Nanoseconds due = 0;
    {
      const std::lock_guard lock(lock_);
      scheduler_.release_delayed_acknowledgements();
      scheduler_.run(now_ns());
      transmit_path_.send_due(now_ns());
      due = transmit_path_.due();
    }
    if (due == kNever) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(due - now_ns()));
  }
  collect();
  publisher_.publish_finally();
}

void Nic::on_exit() {
  if (!lock_for_fork(lock_)) return;
  lock_.unlock();
  finish();
}

void Nic::publish_if_due() {
  if (now_ns() < publisher_.deadline()) return;
  collect();
  publisher_.publish();
}

void Nic::collect() {
  const std::lock_guard lock(lock_);
  control_files_.write_capture();
  publisher_.counters().buffer_drops += ports_.new_buffer_drops();
}

NicContext Nic::context() {
  return {{.memory = memory_,
           .counters = publisher_.counters(),
           .batch = batch_,
           .ports = ports_,
           .scheduler = scheduler_,
           .extended_receives = extended_receives_},
          lock_,
          *this,
          queue_pairs_,
          control_files_};
}

void Nic::open() {
  if (service_) return;
  ports_.open();
  service_ = std::make_unique<ServiceThread>(static_cast<ServiceWork&>(*this), scheduler_.wakeup());
}

void Nic::before_fork() { locked_for_fork_ = lock_for_fork(lock_); }

void Nic::after_fork_in_parent() {
  if (locked_for_fork_) lock_.unlock();
}

bool Nic::on_fork_in_child() {
  lock_.set_in_child();
  ports_.close_sockets();
  publisher_.slot().close_in_child();
  control_files_.close_in_child();
  scheduler_.wakeup().close_in_child();
  if (service_) service_->detach_in_child();
  return false;
}

void Nic::set_addresses(std::vector<Address> in_gid_order, std::uint64_t order) {
  if (in_child()) return;
  const std::lock_guard lock(lock_);
  if (order < interface_order_) return;
  interface_order_ = order;
  ports_.set_addresses(std::move(in_gid_order));
}

void Nic::set_mtu(int mtu_bytes, std::uint64_t order) {
  if (in_child()) return;
  const std::lock_guard lock(lock_);
  if (order < interface_order_) return;
  ports_.set_mtu(mtu_bytes);
}

bool Nic::list_descriptors(std::vector<int>& readable, std::vector<int>& writable) {
  const std::unique_lock lock = lock_.try_lock_briefly();
  if (!lock.owns_lock()) return false;
  publisher_.check(now_ns(), control_files_.capture_pending());
  // A socket stays blocked when the last queue pair that waited for it ends.
  if (!scheduler_.any_blocked()) ports_.unblock_senders();
  ports_.list_descriptors(readable, writable);
  return true;
}

Counters Nic::counters() {
  if (in_child()) return {};
  const std::lock_guard lock(lock_);
  publisher_.counters().buffer_drops += ports_.new_buffer_drops();
  return publisher_.slot().own();
}

void Nic::poll() {
  lock_.count_call();
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock.owns_lock() || !service_) return;
  progress();
  lock_.count_call();
}

ServiceWork::Served Nic::serve() {
  const std::unique_lock lock = lock_.try_lock_briefly();
  if (!lock.owns_lock()) return Served::kBusy;
  receive_path_.expect_forwarded();
  return progress() ? Served::kPackets : Served::kNothing;
}

bool Nic::progress() {
  const Nanoseconds now = now_ns();
  control_files_.follow(now);
  scheduler_.release_delayed_acknowledgements();
  const bool received = receive_path_.receive(now);
  if (now >= transmit_path_.due()) transmit_path_.send_due(now);
  scheduler_.run(now);
  if (scheduler_.timer().due(now)) run_timers(now);
  if (scheduler_.any_blocked() && ports_.unblock_senders()) scheduler_.run_blocked(now_ns());
  if (publisher_.check_due(now)) publisher_.check(now, control_files_.capture_pending());
  // Writes now, so that a process that is killed loses few packets of its capture.
  if (!received) control_files_.write_capture();
  return received;
}

void Nic::run_timers(Nanoseconds now) {
  Timer& timer = scheduler_.timer();
  timer.disarm();  // before on_timer(), which may arm it again
  timer.arm(std::min(receive_path_.faults().due(), transmit_path_.due()));
  scheduler_.run_timers(now);
}

}  // namespace plugfest::roce
