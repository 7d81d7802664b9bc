#include "conformance/mutants/net_functions.h"

#include <array>

#include "harness/plugin/net.h"

namespace plugfest::mutants {

std::function<Result(int device, Properties* properties)> one_buffer_per_receive(const Net& good) {
  return [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result == Result::kSuccess) properties->maxRecvs = 1;
    return result;
  };
}

Net forward_to(plugin::Net& plugin) {
  plugin::Net* const good = &plugin;
  return {
      .init = [good](void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
                     abi::ProfilerCallback profiler) { return good->init(context, comm_id, config, logger, profiler); },
      .devices = [good](int* count) { return good->devices(count); },
      .get_properties = [good](int device, Properties* properties) { return good->get_properties(device, properties); },
      .listen = [good](void* context, int device, void* handle,
                       void** comm) { return good->listen(context, device, handle, comm); },
      .connect = [good](void* context, int device, void* handle,
                        void** comm) { return good->connect(context, device, handle, comm, nullptr); },
      .accept = [good](void* listen_comm, void** comm) { return good->accept(listen_comm, comm, nullptr); },
      .reg_mr = [good](void* comm, void* data, std::size_t size, int type,
                       void** mhandle) { return good->reg_mr(comm, data, size, type, mhandle); },
      .dereg_mr = [good](void* comm, void* mhandle) { return good->dereg_mr(comm, mhandle); },
      .isend = [good](void* comm, void* data, std::size_t size, int tag, void* mhandle,
                      void** request) { return good->isend(comm, data, size, tag, mhandle, nullptr, request); },
      .irecv =
          [good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
            std::array<void*, abi::kMaxReceiveBuffers> no_profiler{};
            return good->irecv(comm, n, data, sizes, tags, mhandles, no_profiler.data(), request);
          },
      .iflush = [good](void* comm, int n, void** data, int* sizes, void** mhandles,
                       void** request) { return good->iflush(comm, n, data, sizes, mhandles, request); },
      .test = [good](void* request, int* done, int* sizes) { return good->test(request, done, sizes); },
      .close_send = [good](void* comm) { return good->close_send(comm); },
      .close_recv = [good](void* comm) { return good->close_recv(comm); },
      .close_listen = [good](void* comm) { return good->close_listen(comm); },
      .irecv_consumed =
          [good](void* comm, int n, void* request) {
            return good->has(plugin::Slot::kIrecvConsumed) ? good->irecv_consumed(comm, n, request) : Result::kSuccess;
          },
      .finalize = [good](void* context) { return good->finalize(context); },
  };
}

}  // namespace plugfest::mutants
