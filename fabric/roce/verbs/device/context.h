// Opened devices (ibv_context).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fabric/roce/nic.h"
#include "fabric/roce/verbs/abi/event_queue.h"
#include "fabric/roce/verbs/device/device.h"
#include "fabric/roce/verbs/device/port_watch.h"
#include "fabric/system/file.h"
#include "fabric/system/process_handlers.h"

namespace plugfest::roce::verbs {

/// The object behind an `ibv_context` pointer. Programs call functions through pointers in its ABI base class.
///
/// Reference-counted: a program may close a device before it destroys the objects of the device, and callbacks of these
/// objects use the context.
struct Context : verbs_context {
  explicit Context(Device& opened);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Ends the delivery of events and wakes threads that wait for one.
  void close();

  void add_reference() { ++references_; }
  void release() {
    if (--references_ == 0) delete this;
  }

  /// The entries of the GID table. Reads the addresses of the interface if any has changed since the last call.
  GidEntries gids();

  Device& device;
  std::shared_ptr<Nic> nic;
  EventQueue<ibv_async_event> events;

 private:
  ~Context();

  Descriptor command_file_;  ///< the file of cmd_fd, which programs poll and duplicate
  std::optional<PortWatch> port_watch_;
  ChangeMonitor changes_;
  ForkSafeMutex gids_mutex_;
  bool gids_are_old_ = true;  ///< an address may have changed since gids() read them
  std::atomic<int> references_ = 1;
};

/// Holds a reference to a context for the lifetime of an object of that context.
class ContextReference {
 public:
  explicit ContextReference(Context& context) : context_(context) { context_.add_reference(); }
  ~ContextReference() { context_.release(); }
  ContextReference(const ContextReference&) = delete;
  ContextReference& operator=(const ContextReference&) = delete;
  Context& operator*() const { return context_; }
  Context* operator->() const { return &context_; }

 private:
  Context& context_;
};

inline Context& context_of(ibv_context* context) {
  // Same computation as verbs_get_ctx(): ibv_context is the last member of verbs_context.
  auto* base = reinterpret_cast<char*>(context) - offsetof(verbs_context, context);
  return *static_cast<Context*>(reinterpret_cast<verbs_context*>(base));
}

/// The attributes that ibv_query_device returns.
ibv_device_attr device_attributes(const Context& context);

/// Implementations of ibv_query_port and ibv_query_device_ex. `size`: size of the struct in the program's version of
/// the headers, in bytes. Return 0 or an errno value.
int query_port_into(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attributes, std::size_t size) noexcept;
int query_device_into(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                      std::size_t size) noexcept;

/// Implementation of ibv_query_rt_values_ex: the clock of completion timestamps. Returns 0 or an errno value.
int query_clock(ibv_context* context, ibv_values_ex* values) noexcept;

/// Frequency of this clock, in kHz: a tick is a nanosecond.
inline constexpr std::uint64_t kCoreClockKhz = 1'000'000;

}  // namespace plugfest::roce::verbs
