// Works out from all active faults how each interface shall be, and changes what differs.
#include "harness/faults/injector.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "fabric/roce/faults/file.h"

namespace plugfest::faults {
namespace {

/// One end of a link.
struct End {
  const topology::Interface* here = nullptr;
  bool peer_is_switch = false;
};

End find(const topology::Graph& graph, const Interface& interface) {
  const topology::LinkEnd* const end = graph.find_link_end(interface.node, interface.name);
  if (end == nullptr) return {};
  return {&graph.interface(*end), graph.opposite(*end).node == topology::LinkEnd::Node::kSwitch};
}

}  // namespace

Injector::~Injector() {
  while (!active_.empty()) {
    try {
      end(active_.begin()->first);
    } catch (const std::exception&) {
      // The fabric goes with its owner.
    }
  }
}

std::uint64_t Injector::begin(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  if (fault.kind == Kind::kKill) {
    processes_.kill(fault.host);
    return 0;
  }
  const std::uint64_t id = next_id_++;
  active_.emplace(id, fault);
  try {
    settle(fault);
  } catch (...) {
    active_.erase(id);
    try {
      settle(fault);
    } catch (const std::exception&) {
      // What kept it from being made keeps it from being mended.
    }
    throw;
  }
  return id;
}

void Injector::end(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  const Fault fault = std::move(found->second);
  active_.erase(found);
  settle(fault);
}

Injector::Condition Injector::whole(const Interface& interface) const {
  const End end = find(fabric_.graph(), interface);
  if (end.here == nullptr) return {};
  return {.up = true, .mtu_bytes = end.here->mtu_bytes, .address = end.here->address};
}

Injector::Condition Injector::wanted(const Interface& interface) const {
  Condition condition = whole(interface);
  for (const auto& [id, fault] : active_) {
    const auto& places = fault.interfaces;
    if (std::find(places.begin(), places.end(), interface) == places.end()) continue;
    if (fault.kind == Kind::kDown) condition.up = false;
    if (fault.kind == Kind::kMtu) condition.mtu_bytes = std::min(condition.mtu_bytes, fault.mtu_bytes);
    if (fault.kind == Kind::kAddress) condition.address = fault.address;
    if (fault.kind == Kind::kPackets) condition.packets.push_back(plan_for(fault, interface));
  }
  return condition;
}

roce::FaultPlan Injector::plan_for(const Fault& fault, const Interface& interface) const {
  roce::FaultPlan plan;
  plan.drop = fault.packets.loss;
  plan.duplicate = fault.packets.duplicate;
  plan.reorder = fault.packets.reorder;
  plan.corrupt = fault.packets.corrupt;
  plan.delay = Nanoseconds{fault.packets.delay_us} * 1000;
  // The NIC at the other end makes the faults of what it sends; a switch has none.
  const bool alone = find(fabric_.graph(), interface).peer_is_switch;
  plan.direction = fault.both_ways && alone ? roce::Direction::kBoth : roce::Direction::kOut;
  // NICs that decide alike about the n-th packet would make a pattern of their own.
  plan.seed = fault.packets.seed + std::hash<std::string>()(interface.node + "." + interface.name);
  return plan;
}

void Injector::settle(const Interface& interface) {
  const Condition want = wanted(interface);
  const auto found = conditions_.find(interface);
  Condition now = found == conditions_.end() ? whole(interface) : found->second;
  if (cleanup_ && now != want) cleanup_->broken(interface, now.address);
  // What was changed is remembered even where the next change fails.
  const auto changed = [&](auto Condition::*part) {
    now.*part = want.*part;
    conditions_[interface] = now;
  };
  if (now.mtu_bytes != want.mtu_bytes) {
    fabric_.set_interface_mtu(interface.node, interface.name, want.mtu_bytes);
    changed(&Condition::mtu_bytes);
  }
  if (now.address != want.address) {
    fabric_.change_address(interface.node, interface.name, now.address, want.address);
    changed(&Condition::address);
    if (cleanup_) cleanup_->broken(interface, now.address);
  }
  if (now.up != want.up) {
    fabric_.set_interface_up(interface.node, interface.name, want.up);
    changed(&Condition::up);
  }
  if (now.packets != want.packets) {
    const std::string folder = fmt::format("/sys/class/infiniband/roce_{}", interface.name);
    fabric_.call(interface.node, [&] { roce::set_device_faults(folder, want.packets); });
    changed(&Condition::packets);
  }
  if (now != whole(interface)) return;
  conditions_.erase(interface);
  if (cleanup_) cleanup_->whole(interface);
}

void Injector::settle_host(const std::string& host) {
  const bool frozen = std::any_of(active_.begin(), active_.end(), [&](const auto& each) {
    return each.second.kind == Kind::kFreeze && each.second.host == host;
  });
  processes_.freeze(host, frozen);
}

void Injector::settle(const Fault& fault) {
  if (fault.kind == Kind::kFreeze) return settle_host(fault.host);
  for (const Interface& interface : fault.interfaces) settle(interface);
}

ActiveFault::~ActiveFault() {
  try {
    end();
  } catch (const std::exception&) {
    // The injector's own end tries once more.
  }
}

void ActiveFault::end() {
  if (injector_ != nullptr) std::exchange(injector_, nullptr)->end(id_);
}

}  // namespace plugfest::faults
