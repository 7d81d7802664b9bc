#include "harness/faults/fault_cleanup.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "fabric/roce/faults/file.h"

namespace plugfest::faults {
namespace {

/// Goes on to the next step where one fails, and returns the first failure.
template <typename... Steps>
std::exception_ptr in_turn(const Steps&... steps) {
  std::exception_ptr first;
  const auto take = [&](const auto& step) {
    try {
      step();
    } catch (const std::exception&) {
      if (!first) first = std::current_exception();
    }
  };
  (take(steps), ...);
  return first;
}

}  // namespace

void restore_interface(netns::Fabric& fabric, const Interface& interface, const topology::Interface& as_planned,
                       topology::Ipv4Address address_now) {
  const std::exception_ptr failure =
      in_turn([&] { fabric.set_interface_mtu(interface.node, interface.name, as_planned.mtu_bytes); },
              [&] {
                if (address_now != as_planned.address)
                  fabric.change_address(interface.node, interface.name, address_now, as_planned.address);
              },
              [&] { fabric.set_interface_up(interface.node, interface.name, true); },
              [&] {
                const std::string folder = fmt::format("/sys/class/infiniband/roce_{}", interface.name);
                if (interface.of_host) fabric.call(interface.node, [&] { roce::set_device_faults(folder, {}); });
              });
  if (failure) std::rethrow_exception(failure);
}

FaultCleanup::FaultCleanup(netns::Fabric& fabric) : fabric_(fabric) {
  const topology::Graph& graph = fabric.graph();
  for (const topology::Host& host : graph.hosts) {
    for (const topology::Interface& each : host.interfaces) interfaces_[{host.name, each.name, true}] = &each;
  }
  for (const topology::Switch& one : graph.switches) {
    for (const topology::Interface& each : one.interfaces) interfaces_[{one.name, each.name, false}] = &each;
  }
  bytes_ = interfaces_.size() * sizeof(Note) + 1;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory for notes of faults");
  auto* next = static_cast<Note*>(memory_);
  for (const auto& [interface, as_planned] : interfaces_) notes_[interface] = new (next++) Note{};
  afterwards_ = std::make_unique<netns::ExitCleanup>([this] { mend(); });
}

FaultCleanup::~FaultCleanup() {
  afterwards_.reset();
  munmap(memory_, bytes_);
}

void FaultCleanup::broken(const Interface& interface, topology::Ipv4Address address) {
  const auto note = notes_.find(interface);
  if (note == notes_.end()) return;
  note->second->address = address.value;
  note->second->broken = true;
}

void FaultCleanup::whole(const Interface& interface) {
  if (const auto note = notes_.find(interface); note != notes_.end()) note->second->broken = false;
}

void FaultCleanup::mend() const {
  for (const auto& [interface, note] : notes_) {
    if (!note->broken) continue;
    try {
      restore_interface(fabric_, interface, *interfaces_.at(interface), {note->address});
    } catch (const std::exception&) {
      // Nobody is left to be told.
    }
  }
}

}  // namespace plugfest::faults
