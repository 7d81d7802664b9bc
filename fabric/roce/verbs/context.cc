// Opens and closes devices, and fills the tables of functions that the header's inline verbs call through.
#include "fabric/roce/verbs/context.h"

#include <pthread.h>

#include <cerrno>
#include <memory>

#include "fabric/roce/verbs/abi_edge.h"

namespace plugfest::roce {

Context::Context(Device& opened) : verbs_context{}, device(&opened) {
  keep_device(opened);
  sz = sizeof(verbs_context);
  query_port = query_port_into;
  query_device_ex = query_device_into;

  context.device = &opened.device;
  context.cmd_fd = -1;  // there is no kernel driver behind it
  context.async_fd = async_events.descriptor();
  context.num_comp_vectors = 1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
}

Context::~Context() {
  async_events.close();
  pthread_mutex_destroy(&context.mutex);
  release_device(*device);
}

}  // namespace plugfest::roce

using namespace plugfest::roce;

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
  return pointer_or_errno([&] { return &(new Context(device_of(device)))->context; });
}

int ibv_close_device(ibv_context* context) {
  return status_of([&] {
    delete &context_of(context);
    return 0;
  });
}

}  // extern "C"
