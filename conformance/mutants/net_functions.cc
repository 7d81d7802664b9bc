#include "conformance/mutants/net_functions.h"

#include <array>

#include "harness/plugin/net.h"

namespace plugfest::mutants {

Net forward_to(plugin::Net& plugin) {
  plugin::Net* const good = &plugin;
  return {
      .init =
          [good](Init call) { return good->init(call.context, call.comm_id, call.config, call.logger, call.profiler); },
      .devices = [good](int* count) { return good->devices(count); },
      .get_properties = [good](GetProperties call) { return good->get_properties(call.device, call.properties); },
      .listen = [good](Listen call) { return good->listen(call.context, call.device, call.handle, call.comm); },
      .connect =
          [good](Connect call) { return good->connect(call.context, call.device, call.handle, call.comm, nullptr); },
      .accept = [good](Accept call) { return good->accept(call.listener, call.comm, nullptr); },
      .reg_mr =
          [good](Register call) { return good->reg_mr(call.comm, call.data, call.size, call.type, call.mhandle); },
      .dereg_mr = [good](Deregister call) { return good->dereg_mr(call.comm, call.mhandle); },
      .isend =
          [good](Send call) {
            return good->isend(call.comm, call.data, call.size, call.tag, call.mhandle, call.base_phandle,
                               call.request);
          },
      .irecv =
          [good](Receive call) {
            std::array<void*, abi::kMaxReceiveBuffers> no_profiler{};
            return good->irecv(call.comm, call.n, call.data, call.sizes, call.tags, call.mhandles,
                               call.base_phandles == nullptr ? no_profiler.data() : call.base_phandles, call.request);
          },
      .iflush =
          [good](Flush call) {
            return good->iflush(call.comm, call.n, call.data, call.sizes, call.mhandles, call.request);
          },
      .test = [good](Test call) { return good->test(call.request, call.done, call.sizes); },
      .close_send = [good](void* comm) { return good->close_send(comm); },
      .close_recv = [good](void* comm) { return good->close_recv(comm); },
      .close_listen = [good](void* comm) { return good->close_listen(comm); },
      .irecv_consumed =
          [good](Consumed call) {
            return good->has(plugin::Slot::kIrecvConsumed) ? good->irecv_consumed(call.comm, call.n, call.request)
                                                           : Result::kSuccess;
          },
      .finalize = [good](void* context) { return good->finalize(context); },
      .make_vdevice = [good](int* device,
                             abi::newest::VDevice* members) { return good->make_vdevice(device, members); },
  };
}

}  // namespace plugfest::mutants
