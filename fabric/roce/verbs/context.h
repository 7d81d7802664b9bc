// An opened device.
#pragma once

#include <infiniband/verbs.h>

#include "fabric/roce/verbs/device.h"
#include "fabric/roce/verbs/event_queue.h"

namespace plugfest::roce {

/// What `ibv_context` pointers of this library point into. The base is ABI: programs call through its function
/// pointers.
struct Context : verbs_context {
  explicit Context(Device& opened);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device* device;
  EventQueue<ibv_async_event> async_events;
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

}  // namespace plugfest::roce
