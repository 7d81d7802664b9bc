#include "harness/faults/injector.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <new>
#include <set>

#include "fabric/roce/counters/page.h"
#include "fabric/system/file.h"
#include "fabric/system/number.h"

namespace plugfest::faults {
namespace {

// Runs all steps, even after a failure. Returns the first failure.
template <typename... Steps>
std::exception_ptr run_all(const Steps&... steps) {
  std::exception_ptr first;
  const auto run = [&](const auto& step) {
    try {
      step();
    } catch (const std::exception&) {
      if (!first) first = std::current_exception();
    }
  };
  (run(steps), ...);
  return first;
}

// An interface and the kind of its peer.
struct InterfaceInfo {
  const topology::Interface* interface = nullptr;
  bool peer_is_switch = false;
};

// A path in the interface's host.
std::string device_folder(const Interface& interface) { return "/sys/class/infiniband/roce_" + interface.name; }

InterfaceInfo find(const topology::Graph& graph, const Interface& interface) {
  const topology::LinkEnd* const end = graph.find_link_end(interface.node, interface.name);
  if (end == nullptr) return {};
  return {&graph.interface(*end), graph.opposite(*end).node == topology::LinkEnd::Node::kSwitch};
}

// Restores the topology's MTU, address and link state of an interface, and removes its packet faults. `addresses`:
// those that it may have. Errors: std::runtime_error for the first failed step, after all steps have been tried.
void restore_interface(netns::Fabric& fabric, const Interface& interface, const topology::Interface& original,
                       const std::set<topology::Ipv4Address>& addresses) {
  const std::exception_ptr failure =
      run_all([&] { fabric.set_interface_mtu(interface.node, interface.name, original.mtu_bytes); },
              [&] {
                for (const topology::Ipv4Address address : addresses)
                  if (address != original.address)
                    fabric.change_address(interface.node, interface.name, address, original.address);
              },
              [&] { fabric.set_interface_up(interface.node, interface.name, true); },
              [&] {
                if (!interface.of_host) return;
                fabric.call(interface.node, [&] { roce::set_device_faults(device_folder(interface), {}); });
              });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

FaultCleanup::FaultCleanup(netns::Fabric& fabric) : fabric_(fabric) {
  const topology::Graph& graph = fabric.graph();
  for (const topology::Host& host : graph.hosts)
    for (const topology::Interface& interface : host.interfaces)
      interfaces_[{host.name, interface.name, true}] = &interface;
  for (const topology::Switch& one : graph.switches)
    for (const topology::Interface& interface : one.interfaces)
      interfaces_[{one.name, interface.name, false}] = &interface;
  bytes_ = interfaces_.size() * sizeof(Note) + 1;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw_errno("map shared memory for faults");
  auto* next = static_cast<Note*>(memory_);
  for (const auto& [interface, original] : interfaces_) notes_[interface] = new (next++) Note{};
  exit_cleanup_ = std::make_unique<netns::ExitCleanup>([this] { restore_all(); });
}

FaultCleanup::~FaultCleanup() {
  exit_cleanup_.reset();
  munmap(memory_, bytes_);
}

void FaultCleanup::record_change(const Interface& interface, topology::Ipv4Address from, topology::Ipv4Address to) {
  const auto note = notes_.find(interface);
  if (note == notes_.end()) return;
  note->second->addresses[0] = from.value;
  note->second->addresses[1] = to.value;
  note->second->changed = true;
}

void FaultCleanup::record_restoration(const Interface& interface) {
  if (const auto note = notes_.find(interface); note != notes_.end()) note->second->changed = false;
}

void FaultCleanup::restore_all() const {
  for (const auto& [interface, note] : notes_) {
    if (!note->changed) continue;
    try {
      restore_interface(fabric_, interface, *interfaces_.at(interface), {{note->addresses[0]}, {note->addresses[1]}});
    } catch (const std::exception&) {
      // This process has no way to report an error.
    }
  }
}

Injector::~Injector() {
  while (!active_.empty()) {
    try {
      end(active_.begin()->first);
    } catch (const std::exception&) {
      // The owner of the fabric removes it.
    }
  }
}

std::uint64_t Injector::begin(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  if (fault.kind == Kind::kKill) {
    ranks_.kill(fault.host);
    return 0;
  }
  const std::uint64_t id = next_id_++;
  active_.emplace(id, fault);
  try {
    update(fault);
  } catch (...) {
    active_.erase(id);
    try {
      update(fault);
    } catch (const std::exception&) {
      // The cause of the first failure also prevents the removal.
    }
    throw;
  }
  return id;
}

std::uint64_t Injector::packets(const std::vector<Interface>& interfaces) {
  std::uint64_t sum = 0;
  for (const Interface& interface : interfaces) {
    if (!interface.of_host) continue;
    fabric_.call(interface.node, [&] {
      const roce::Counters counters = roce::read_counter_page(device_folder(interface)).value_or(roce::Counters());
      sum += counters.sent_packets + counters.received_packets + counters.fault_drops;
    });
  }
  return sum;
}

std::vector<std::pair<std::string_view, std::uint64_t>> Injector::trouble_counters(const Interface& interface) {
  roce::Counters now;
  fabric_.call(interface.node, [&] { now = roce::read_counter_page(device_folder(interface)).value_or(now); });
  return {{"unknown_queue_pairs", now.unknown_queue_pairs},
          {"icrc_errors", now.icrc_errors},
          {"malformed_packets", now.malformed_packets},
          {"unexpected_packets", now.unexpected_packets},
          {"retransmitted_packets", now.retransmitted_packets},
          {"timeouts", now.timeouts},
          {"duplicate_requests", now.duplicate_requests},
          {"out_of_sequence", now.out_of_sequence},
          {"sent_rnr_naks", now.sent_rnr_naks},
          {"received_rnr_naks", now.received_rnr_naks},
          {"sent_access_naks", now.sent_access_naks},
          {"sent_invalid_request_naks", now.sent_invalid_request_naks},
          {"sent_operation_naks", now.sent_operation_naks},
          {"retries_exceeded", now.retries_exceeded},
          {"rnr_retries_exceeded", now.rnr_retries_exceeded},
          {"dropped_messages", now.dropped_messages},
          {"buffer_drops", now.buffer_drops}};
}

void Injector::end(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  const Fault fault = std::move(found->second);
  active_.erase(found);
  update(fault);
}

Injector::InterfaceState Injector::original_state(const Interface& interface) const {
  const InterfaceInfo info = find(fabric_.graph(), interface);
  if (info.interface == nullptr) return {};
  return {.up = true, .mtu_bytes = info.interface->mtu_bytes, .address = info.interface->address};
}

Injector::InterfaceState Injector::target_state(const Interface& interface) const {
  InterfaceState state = original_state(interface);
  for (const auto& [id, fault] : active_) {
    const auto& targets = fault.interfaces;
    if (std::find(targets.begin(), targets.end(), interface) == targets.end()) continue;
    if (fault.kind == Kind::kDown) state.up = false;
    if (fault.kind == Kind::kMtu) state.mtu_bytes = std::min(state.mtu_bytes, fault.mtu_bytes);
    if (fault.kind == Kind::kAddress) state.address = fault.address;
    if (fault.kind == Kind::kPackets) state.packets.push_back(plan_for(fault, interface));
  }
  return state;
}

roce::FaultPlan Injector::plan_for(const Fault& fault, const Interface& interface) const {
  roce::FaultPlan plan;
  plan.loss = fault.packets.loss;
  plan.duplicate = fault.packets.duplicate;
  plan.reorder = fault.packets.reorder;
  plan.corrupt = fault.packets.corrupt;
  plan.delay = Nanoseconds{fault.packets.delay_us} * 1000;
  // The NIC of a peer host injects the faults of the other direction; a switch has no NIC.
  const bool peer_is_switch = find(fabric_.graph(), interface).peer_is_switch;
  plan.direction = fault.both_ways && peer_is_switch ? roce::Direction::kBoth : roce::Direction::kOut;
  // A different seed for each NIC, so that their decisions are independent.
  plan.seed = fault.packets.seed + hash_of(interface.node + "." + interface.name);
  return plan;
}

void Injector::update(const Interface& interface) {
  const InterfaceState target = target_state(interface);
  const auto found = states_.find(interface);
  InterfaceState current = found == states_.end() ? original_state(interface) : found->second;
  if (cleanup_ && current != target) cleanup_->record_change(interface, current.address, target.address);
  // Records each completed change, so that a later failure does not lose it.
  const auto changed = [&](auto InterfaceState::*member) {
    current.*member = target.*member;
    states_[interface] = current;
  };
  if (current.mtu_bytes != target.mtu_bytes) {
    fabric_.set_interface_mtu(interface.node, interface.name, target.mtu_bytes);
    changed(&InterfaceState::mtu_bytes);
  }
  if (current.address != target.address) {
    fabric_.change_address(interface.node, interface.name, current.address, target.address);
    changed(&InterfaceState::address);
  }
  if (current.up != target.up) {
    fabric_.set_interface_up(interface.node, interface.name, target.up);
    changed(&InterfaceState::up);
  }
  if (current.packets != target.packets) {
    fabric_.call(interface.node, [&] { roce::set_device_faults(device_folder(interface), target.packets); });
    changed(&InterfaceState::packets);
  }
  if (current != original_state(interface)) return;
  states_.erase(interface);
  if (cleanup_) cleanup_->record_restoration(interface);
}

void Injector::update_host(const std::string& host) {
  const bool frozen = std::any_of(active_.begin(), active_.end(), [&](const auto& entry) {
    return entry.second.kind == Kind::kFreeze && entry.second.host == host;
  });
  ranks_.freeze(host, frozen);
}

void Injector::update(const Fault& fault) {
  if (fault.kind == Kind::kFreeze) return update_host(fault.host);
  for (const Interface& interface : fault.interfaces) update(interface);
}

ActiveFault::~ActiveFault() {
  try {
    end();
  } catch (const std::exception&) {
    // The destructor of the injector tries again.
  }
}

void ActiveFault::end() {
  if (injector_ != nullptr) std::exchange(injector_, nullptr)->end(id_);
}

}  // namespace plugfest::faults
