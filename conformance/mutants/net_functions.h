// The functions of a plugin, replaceable one by one: a mutation replaces some, the others call the base plugin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "harness/abi/net.h"

namespace plugfest::plugin {
class Net;
}

namespace plugfest::mutants {

using abi::Result;
using Properties = abi::newest::Properties;

/// The functions of net v12 that mutations replace. Thread safety: as a plugin's, any thread.
struct Net {
  std::function<Result(void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
                       abi::ProfilerCallback profiler)>
      init;
  std::function<Result(int* count)> devices;
  std::function<Result(int device, Properties* properties)> get_properties;
  std::function<Result(void* context, int device, void* handle, void** listen_comm)> listen;
  std::function<Result(void* context, int device, void* handle, void** send_comm)> connect;
  std::function<Result(void* listen_comm, void** recv_comm)> accept;
  std::function<Result(void* comm, void* data, std::size_t size, int type, void** mhandle)> reg_mr;
  std::function<Result(void* comm, void* mhandle)> dereg_mr;
  std::function<Result(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** request)> isend;
  std::function<Result(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                       void** request)>
      irecv;
  std::function<Result(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request)> iflush;
  std::function<Result(void* request, int* done, int* sizes)> test;
  std::function<Result(void* send_comm)> close_send;
  std::function<Result(void* recv_comm)> close_recv;
  std::function<Result(void* listen_comm)> close_listen;
  std::function<Result(void* recv_comm, int n, void* request)> irecv_consumed;
  std::function<Result(void* context)> finalize;

  /// Called before each connect and accept with its devHandle argument.
  std::function<void(abi::DeviceHandle** device_handle)> before_device_handle = [](abi::DeviceHandle**) {};
  /// The exported table of net v12.
  abi::newest::Net* table = nullptr;
};

/// get_properties of `good` with maxRecvs 1.
std::function<Result(int device, Properties* properties)> one_buffer_per_receive(const Net& good);

/// Functions that call `plugin`, which must outlive them.
Net forward_to(plugin::Net& plugin);

}  // namespace plugfest::mutants
