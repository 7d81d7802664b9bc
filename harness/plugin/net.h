// One C++ interface to net plugins of any version, modeled on net v12.
//
// An older plugin gets exactly the calls of NCCL's compatibility layer. Source: NCCL 2.28.9 and 2.30,
// src/plugin/net/net_v6.cc to net_v11.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "harness/abi/net.h"
#include "harness/plugin/layout.h"

namespace plugfest::plugin {

using abi::Result;

/// The functions of one plugin. Each call runs the plugin on the calling thread, blocks or crashes if the plugin does,
/// and returns the plugin's unchanged result code.
///
/// Differences of older versions are handled as in NCCL:
/// - v6 to v8: isend and irecv of more than 1 GiB return kInternalError and do not call the plugin; irecv replaces the
///   mark 0x1 in `*request` by NULL. v6, v7: reg_mr of 2 GiB and more also returns kInternalError.
/// - v6 to v10: only the first init calls the plugin; finalize decrements a count. Calls use a copy of the function
///   table that is made when that init has returned. v6 to v9: init leaves `*context` unchanged. v10: the context holds
///   the communicator's configuration, which connect passes to the plugin.
/// - Profiler handles, device handles and contexts are not passed to versions that have no argument for them.
///
/// Calling a mandatory slot that is null jumps to address zero, as in NCCL. An optional slot that is null or absent
/// returns kInternalError; NCCL checks has() first.
///
/// Thread safety: init and finalize take one lock, as in NCCL; the other functions are as thread-safe as the plugin.
class Net {
 public:
  virtual ~Net() = default;
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  /// 6 to 12.
  virtual int api() const = 0;
  /// The first member of the plugin's structure; null if the plugin has not set it.
  virtual const char* name() const = 0;
  /// The plugin's own structure, not a copy; `layout().table_size` bytes.
  virtual const void* table() const = 0;
  /// True when the version has the slot and the plugin has set it (v6 to v10: before init returned).
  virtual bool has(Slot slot) const = 0;
  const ApiLayout& layout() const { return api_layout(api()); }

  virtual Result init(void** context, std::uint64_t comm_id, abi::newest::CommConfig* config, abi::Logger logger,
                      abi::ProfilerCallback profiler) = 0;
  virtual Result devices(int* count) = 0;

  /// The plugin's getProperties on the caller's storage: `layout().properties_size` bytes, aligned to 8.
  virtual Result get_raw_properties(int device, void* storage) = 0;
  /// Converts raw properties to v12 with NCCL's defaults. Copies all entries of `vProps.devs` that the version has, and
  /// `ndevs` unchanged.
  virtual abi::newest::Properties complete_properties(int device, const void* raw) const = 0;
  /// Calls both of the above. On an error `*properties` is unchanged. Fields that the plugin does not set hold 0x5A
  /// bytes.
  Result get_properties(int device, abi::newest::Properties* properties);

  virtual Result listen(void* context, int device, void* handle, void** listen_comm) = 0;
  virtual Result connect(void* context, int device, void* handle, void** send_comm,
                         abi::DeviceHandle** device_handle) = 0;
  virtual Result accept(void* listen_comm, void** recv_comm, abi::DeviceHandle** device_handle) = 0;

  virtual Result reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) = 0;
  virtual Result reg_mr_dmabuf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                               void** mhandle) = 0;
  virtual Result dereg_mr(void* comm, void* mhandle) = 0;

  virtual Result isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle,
                       void** request) = 0;
  /// v6 to v8: copies the plugin's changes of its array of sizes into `sizes`; at most 64 buffers, as in NCCL.
  virtual Result irecv(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                       void** phandles, void** request) = 0;
  virtual Result iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) = 0;
  virtual Result test(void* request, int* done, int* sizes) = 0;

  virtual Result close_send(void* send_comm) = 0;
  virtual Result close_recv(void* recv_comm) = 0;
  virtual Result close_listen(void* listen_comm) = 0;

  virtual Result get_device_mr(void* comm, void* mhandle, void** device_mhandle) = 0;
  virtual Result irecv_consumed(void* recv_comm, int n, void* request) = 0;
  virtual Result make_vdevice(int* device, abi::newest::VDevice* members) = 0;
  virtual Result finalize(void* context) = 0;
  virtual Result set_net_attr(void* context, abi::newest::NetAttr* attr) = 0;

 protected:
  Net() = default;
};

/// An adapter for `table`, a structure of version `api`, which must outlive the adapter. Calls nothing. Errors:
/// std::logic_error for an `api` outside kOldestApi..kNewestApi.
std::unique_ptr<Net> adapt(int api, void* table);

}  // namespace plugfest::plugin
