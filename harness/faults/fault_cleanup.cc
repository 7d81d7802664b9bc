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

/// Runs all steps, also after a failure. Returns the first failure.
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

}  // namespace

void restore_interface(netns::Fabric& fabric, const Interface& interface, const topology::Interface& original,
                       topology::Ipv4Address current_address) {
  const std::exception_ptr failure =
      run_all([&] { fabric.set_interface_mtu(interface.node, interface.name, original.mtu_bytes); },
              [&] {
                if (current_address != original.address)
                  fabric.change_address(interface.node, interface.name, current_address, original.address);
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
  if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "shared memory for faults");
  auto* next = static_cast<Note*>(memory_);
  for (const auto& [interface, original] : interfaces_) notes_[interface] = new (next++) Note{};
  exit_cleanup_ = std::make_unique<netns::ExitCleanup>([this] { restore_all(); });
}

FaultCleanup::~FaultCleanup() {
  exit_cleanup_.reset();
  munmap(memory_, bytes_);
}

void FaultCleanup::record_change(const Interface& interface, topology::Ipv4Address address) {
  const auto note = notes_.find(interface);
  if (note == notes_.end()) return;
  note->second->address = address.value;
  note->second->changed = true;
}

void FaultCleanup::record_restoration(const Interface& interface) {
  if (const auto note = notes_.find(interface); note != notes_.end()) note->second->changed = false;
}

void FaultCleanup::restore_all() const {
  for (const auto& [interface, note] : notes_) {
    if (!note->changed) continue;
    try {
      restore_interface(fabric_, interface, *interfaces_.at(interface), {note->address});
    } catch (const std::exception&) {
      // This process has no way to report an error.
    }
  }
}

}  // namespace plugfest::faults
