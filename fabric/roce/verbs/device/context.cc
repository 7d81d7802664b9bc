#include "fabric/roce/verbs/device/context.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"
#include "fabric/roce/verbs/device/interface.h"

namespace plugfest::roce::verbs {

Context::Context(Device& opened)
    : verbs_context{},
      device(opened),
      nic(acquire_nic(opened)),
      command_file_(open("/dev/null", O_RDWR | O_CLOEXEC)) {  // there is no kernel driver
  if (!command_file_) fail(errno);
  sz = sizeof(verbs_context);
  query_port = query_port_into;
  query_device_ex = query_device_into;
  modify_cq = modify_moderation;
  query_rt_values = query_clock;
  create_cq_ex = create_extended_cq;
  create_qp_ex = create_extended_qp;
  create_srq_ex = create_extended_srq;
  open_xrcd = open_extended_domain;
  close_xrcd = close_extended_domain;
  get_srq_num = number_of_srq;
  install_polling(context.ops);
  install_posting(context.ops);
  install_memory_windows(context.ops);

  context.device = &opened.device;
  context.cmd_fd = command_file_.get();
  context.async_fd = events.descriptor();
  context.num_comp_vectors = 1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);

  const auto on_change = [this](const Interface& interface) { update_port(device, *nic, interface, true); };
  port_watch_.emplace(opened.interface.index, on_change, [this](ibv_event_type type) {
    events.add({{.port_num = kPortNumber}, type});
  });
  acquire_device(opened);
}

void Context::close() {
  port_watch_.reset();
  events.close();
}

Context::~Context() {
  pthread_mutex_destroy(&context.mutex);
  release_device(device);
}

extern "C" {

ibv_context* ibv_open_device(ibv_device* device) {
  return pointer_or_errno([&] { return &(new Context(device_of(device)))->context; });
}

int ibv_close_device(ibv_context* context) {
  return status_of([&] {
    Context& closing = context_of(context);
    closing.close();
    closing.release();
    return 0;
  });
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
