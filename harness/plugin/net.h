// One C++ interface, in the shape of net v12, to a net plugin of any version.
//
// An older plugin sees exactly what NCCL core's compatibility layer would have it see. Source: NCCL 2.28.9 and 2.30,
// src/plugin/net/net_v6.cc to net_v11.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "harness/abi/net_v12.h"
#include "harness/plugin/layout.h"

namespace plugfest::plugin {

using abi::Result;

/// The calls of one plugin. Each call goes straight to the plugin on the calling thread: it blocks if the plugin does,
/// crashes if the plugin does, and gives back the plugin's own result code, whatever its value.
///
/// What an older plugin does not get or cannot say is settled as in core:
/// - v6 to v8: isend and irecv above 1 GiB are kInternalError without a call; the mark 0x1 in `*request` of irecv is
///   cleared. v6, v7: reg_mr of 2 GiB and more likewise.
/// - v6 to v10: only the first init reaches the plugin; finalize takes one off the count. Calls use the function table
///   as it stood when that init returned. v6 to v9: contexts stay as they are; v10: the context holds the
///   communicator's configuration, which connect passes on.
/// - Handles of the profiler, device handles and contexts that a version has no argument for are dropped.
///
/// A slot that is mandatory and null is a jump to address zero, as in core. An optional slot that is null or absent is
/// kInternalError; ask has() first, as core does.
///
/// Thread safety: init and finalize take one lock, as in core; everything else is as thread-safe as the plugin.
class Net {
 public:
  virtual ~Net() = default;
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  /// 6 to 12.
  virtual int api() const = 0;
  /// The first member of the plugin's structure as it stands now, which may be null before init or ever.
  virtual const char* name() const = 0;
  /// The plugin's own structure, live; `layout().net_size` bytes.
  virtual const void* table() const = 0;
  /// True when the version has the slot and the plugin filled it (v6 to v10: when init returned).
  virtual bool has(Slot slot) const = 0;
  const ApiLayout& layout() const { return api_layout(api()); }

  virtual Result init(void** context, std::uint64_t comm_id, abi::v12::CommConfig* config, abi::Logger logger,
                      abi::ProfilerCallback profiler) = 0;
  virtual Result devices(int* count) = 0;

  /// The plugin's getProperties on the caller's storage: `layout().properties_size` bytes, aligned to 8.
  virtual Result get_raw_properties(int device, void* storage) = 0;
  /// Raw properties in the newest shape, with what core adds. More members in `vProps` than a version has room for are
  /// not copied, though core would; `ndevs` is kept as it is.
  virtual abi::v12::Properties complete_properties(int device, const void* raw) const = 0;
  /// Both of the above. On an error `*properties` is left as it was. Fields that the plugin left out hold 0x5A bytes.
  Result get_properties(int device, abi::v12::Properties* properties);

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
  /// v6 to v8: what the plugin wrote into its array of sizes is found in `sizes`; 64 buffers at most, as in core.
  virtual Result irecv(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                       void** phandles, void** request) = 0;
  virtual Result iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) = 0;
  virtual Result test(void* request, int* done, int* sizes) = 0;

  virtual Result close_send(void* send_comm) = 0;
  virtual Result close_recv(void* recv_comm) = 0;
  virtual Result close_listen(void* listen_comm) = 0;

  virtual Result get_device_mr(void* comm, void* mhandle, void** device_mhandle) = 0;
  virtual Result irecv_consumed(void* recv_comm, int n, void* request) = 0;
  virtual Result make_vdevice(int* device, abi::v12::VDevice* members) = 0;
  virtual Result finalize(void* context) = 0;
  virtual Result set_net_attr(void* context, abi::v12::NetAttr* attr) = 0;

 protected:
  Net() = default;
};

/// An adapter over `table`, a structure of that version which must outlive it; nothing is called or copied yet but the
/// pointers. Errors: `api` outside of kOldestApi..kNewestApi is a programming error (assert).
std::unique_ptr<Net> adapt(int api, void* table);

}  // namespace plugfest::plugin
