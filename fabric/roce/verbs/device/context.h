// An opened device.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fabric/roce/nic.h"
#include "fabric/roce/verbs/abi/event_queue.h"
#include "fabric/roce/verbs/device/device.h"
#include "fabric/roce/verbs/device/port_watch.h"

namespace plugfest::roce::verbs {

/// What `ibv_context` pointers of this library point into. The base is ABI: programs call through its function
/// pointers.
///
/// It lives until it is closed and the last object made from it is gone: a program may close a device and leave objects
/// behind, whose callbacks must find it.
struct Context : verbs_context {
  explicit Context(Device& opened);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Ends events; wakes threads that wait for one.
  void close();

  void hold() { ++holds_; }
  void release() {
    if (--holds_ == 0) delete this;
  }

  Device& device;
  std::shared_ptr<Nic> nic;
  EventQueue<ibv_async_event> events;

 private:
  ~Context();

  std::optional<PortWatch> port_watch_;
  std::atomic<int> holds_ = 1;
};

/// Keeps a context for the lifetime of an object made from it.
class ContextHold {
 public:
  explicit ContextHold(Context& context) : context_(context) { context_.hold(); }
  ~ContextHold() { context_.release(); }
  ContextHold(const ContextHold&) = delete;
  ContextHold& operator=(const ContextHold&) = delete;
  Context& operator*() const { return context_; }
  Context* operator->() const { return &context_; }

 private:
  Context& context_;
};

inline Context& context_of(ibv_context* context) {
  // As verbs_get_ctx() finds the base: `context` is its last member.
  auto* base = reinterpret_cast<char*>(context) - offsetof(verbs_context, context);
  return *static_cast<Context*>(reinterpret_cast<verbs_context*>(base));
}

/// Device attributes as ibv_query_device gives them.
ibv_device_attr device_attributes(const Context& context);

/// Bodies of ibv_query_port and ibv_query_device_ex for a struct of `size` bytes, as large as the program's headers
/// know it. Return 0 or an errno value.
int query_port_into(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attributes, std::size_t size) noexcept;
int query_device_into(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                      std::size_t size) noexcept;

}  // namespace plugfest::roce::verbs
