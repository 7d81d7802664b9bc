#include "harness/plugin/net.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "harness/abi/downgrade.h"

namespace plugfest::plugin {
namespace {

namespace newest = abi::newest;

constexpr unsigned char kPoison = 0x5A;
constexpr std::size_t kMaxBuffers = abi::kMaxReceiveBuffers;

template <int kApi>
struct Version;
#define PLUGFEST_VERSION(api)                   \
  template <>                                   \
  struct Version<api> {                         \
    using Net = abi::v##api::Net;               \
    using Properties = abi::v##api::Properties; \
  };
PLUGFEST_NET_VERSIONS(PLUGFEST_VERSION)
#undef PLUGFEST_VERSION

// The int sizes that irecv passes up to v8. They are valid during the call and poisoned after it, so that a plugin
// that keeps the pointer reads wrong sizes.
thread_local std::array<int, kMaxBuffers> narrowed_sizes;

template <int kApi>
class Adapter final : public Net {
  using Table = typename Version<kApi>::Net;
  using Properties = typename Version<kApi>::Properties;
  static constexpr bool kCountsInit = kApi <= 10;

 public:
  explicit Adapter(Table* table) : live_(table) {
    if constexpr (kCountsInit) copy_ = *table;
  }

  int api() const override { return kApi; }
  const char* name() const override { return live_->name; }
  const void* table() const override { return live_; }

  bool has(Slot slot) const override {
    for (const SlotLayout& entry : layout().slots) {
      if (entry.slot != slot) continue;
      void (*function)() = nullptr;
      std::memcpy(&function, reinterpret_cast<const char*>(calls()) + entry.offset, sizeof function);
      return function != nullptr;
    }
    return false;
  }

  Result init(void** context, std::uint64_t comm_id, newest::CommConfig* config, abi::Logger logger,
              abi::ProfilerCallback profiler) override {
    const std::scoped_lock lock(life_cycle_);
    if constexpr (!kCountsInit) {
      return live_->init(context, comm_id, config, logger, profiler);
    } else {
      if (init_count_ == 0) {
        const Result result = first_init(logger, profiler);
        if (result != Result::kSuccess) {
          if constexpr (kApi == 10) *context = nullptr;
          return result;
        }
        copy_ = *live_;
      }
      ++init_count_;
      if constexpr (kApi == 10) *context = new newest::CommConfig(*config);
      return Result::kSuccess;
    }
  }

  Result finalize(void* context) override {
    const std::scoped_lock lock(life_cycle_);
    if constexpr (kCountsInit) {
      --init_count_;
      if constexpr (kApi == 10) delete static_cast<newest::CommConfig*>(context);
      return Result::kSuccess;
    } else {
      return live_->finalize(context);
    }
  }

  Result devices(int* count) override { return calls()->devices(count); }

  Result get_raw_properties(int device, void* storage) override {
    return calls()->getProperties(device, static_cast<Properties*>(storage));
  }

  newest::Properties complete_properties(int device, const void* raw) const override {
    Properties from;
    std::memcpy(&from, raw, sizeof from);
    // What older versions lack has NCCL's values.
    newest::Properties to{};
    to.netDeviceType = abi::kDeviceHost;
    to.netDeviceVersion = abi::kDeviceInvalidVersion;
    to.maxP2pBytes = abi::kMaxShimP2pBytes;
    to.maxCollBytes = abi::kMaxShimCollBytes;
    to.maxMultiRequestSize = 1;
    to.railId = to.planeId = abi::kIdUndefined;
    abi::copy_properties(to, from);
    if constexpr (requires { from.vProps; }) {
      to.vProps.ndevs = from.vProps.ndevs;
      std::memcpy(to.vProps.devs, from.vProps.devs, sizeof from.vProps.devs);
    } else {
      to.vProps.ndevs = 1;
      to.vProps.devs[0] = device;
    }
    return to;
  }

  Result listen(void* context, int device, void* handle, void** listen_comm) override {
    if constexpr (kApi >= 11)
      return live_->listen(context, device, handle, listen_comm);
    else
      return copy_.listen(device, handle, listen_comm);
  }

  Result connect(void* context, int device, void* handle, void** send_comm,
                 abi::DeviceHandle** device_handle) override {
    if constexpr (kApi >= 11)
      return live_->connect(context, device, handle, send_comm, device_handle);
    else if constexpr (kApi == 10)
      return copy_.connect(device, static_cast<newest::CommConfig*>(context), handle, send_comm, device_handle);
    else if constexpr (kApi >= 7)
      return copy_.connect(device, handle, send_comm, device_handle);
    else
      return copy_.connect(device, handle, send_comm);
  }

  Result accept(void* listen_comm, void** recv_comm, abi::DeviceHandle** device_handle) override {
    if constexpr (kApi >= 7)
      return calls()->accept(listen_comm, recv_comm, device_handle);
    else
      return copy_.accept(listen_comm, recv_comm);
  }

  Result reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) override {
    if constexpr (kApi >= 8) {
      return calls()->regMr(comm, data, size, type, mhandle);
    } else {
      if (size >= std::size_t{1} << 31) return Result::kInternalError;
      return copy_.regMr(comm, data, static_cast<int>(size), type, mhandle);
    }
  }

  Result reg_mr_dmabuf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                       void** mhandle) override {
    return optional(calls()->regMrDmaBuf, comm, data, size, type, offset, fd, mhandle);
  }

  Result dereg_mr(void* comm, void* mhandle) override { return calls()->deregMr(comm, mhandle); }

  Result isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle,
               void** request) override {
    if constexpr (kApi >= 10) {
      return calls()->isend(send_comm, data, size, tag, mhandle, phandle, request);
    } else if constexpr (kApi == 9) {
      return copy_.isend(send_comm, data, size, tag, mhandle, request);
    } else {
      if (size > abi::kMaxShimP2pBytes) return Result::kInternalError;
      return copy_.isend(send_comm, data, static_cast<int>(size), tag, mhandle, request);
    }
  }

  Result irecv(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request) override {
    if constexpr (kApi >= 10)
      return calls()->irecv(recv_comm, n, data, sizes, tags, mhandles, phandles, request);
    else if constexpr (kApi == 9)
      return copy_.irecv(recv_comm, n, data, sizes, tags, mhandles, request);
    else
      return irecv_narrowed(recv_comm, n, data, sizes, tags, mhandles, request);
  }

  Result iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) override {
    return calls()->iflush(recv_comm, n, data, sizes, mhandles, request);
  }

  Result test(void* request, int* done, int* sizes) override { return calls()->test(request, done, sizes); }
  Result close_send(void* send_comm) override { return calls()->closeSend(send_comm); }
  Result close_recv(void* recv_comm) override { return calls()->closeRecv(recv_comm); }
  Result close_listen(void* listen_comm) override { return calls()->closeListen(listen_comm); }

  Result get_device_mr(void* comm, void* mhandle, void** device_mhandle) override {
    if constexpr (kApi >= 7) return optional(calls()->getDeviceMr, comm, mhandle, device_mhandle);
    return Result::kInternalError;
  }

  Result irecv_consumed(void* recv_comm, int n, void* request) override {
    if constexpr (kApi >= 7) return optional(calls()->irecvConsumed, recv_comm, n, request);
    return Result::kInternalError;
  }

  Result make_vdevice(int* device, newest::VDevice* members) override {
    if constexpr (kApi >= 9) {
      // The older structure is the beginning of the newer one: the array is last and shorter.
      return optional(calls()->makeVDevice, device, reinterpret_cast<decltype(Properties::vProps)*>(members));
    } else {
      return Result::kInternalError;
    }
  }

  Result set_net_attr(void* context, newest::NetAttr* attr) override {
    if constexpr (kApi >= 11) return optional(live_->setNetAttr, context, attr);
    return Result::kInternalError;
  }

 private:
  // The table for calls: for a v11 plugin its own struct, for older ones a copy, as in NCCL.
  const Table* calls() const {
    if constexpr (kCountsInit)
      return &copy_;
    else
      return live_;
  }

  template <typename... Formal, typename... Actual>
  static Result optional(Result (*function)(Formal...), Actual... arguments) {
    return function ? function(arguments...) : Result::kInternalError;
  }

  Result first_init(abi::Logger logger, abi::ProfilerCallback profiler) {
    if constexpr (kApi == 10)
      return live_->init(logger, profiler);
    else if constexpr (kApi < 10)
      return live_->init(logger);
  }

  Result irecv_narrowed(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                        void** request) {
    if constexpr (kApi <= 8) {
      if (*request == reinterpret_cast<void*>(abi::kOptionalRecvCompletion)) *request = nullptr;
      const auto count = static_cast<std::size_t>(n < 0 ? 0 : n);
      if (count > kMaxBuffers) return Result::kInternalError;
      std::array<int, kMaxBuffers>& narrow = narrowed_sizes;
      for (std::size_t i = 0; i < count; ++i) {
        if (sizes[i] > abi::kMaxShimP2pBytes) return Result::kInternalError;
        narrow[i] = static_cast<int>(sizes[i]);
      }
      const Result result = copy_.irecv(recv_comm, n, data, narrow.data(), tags, mhandles, request);
      for (std::size_t i = 0; i < count; ++i)
        if (narrow[i] != static_cast<int>(sizes[i])) sizes[i] = static_cast<std::size_t>(narrow[i]);
      narrow.fill(0x5A5A5A5A);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the stores
      return result;
    }
  }

  Table* live_;
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<kCountsInit, Table, Nothing> copy_{};
  int init_count_ = 0;
  std::mutex life_cycle_;
};

template <int kApi>
std::unique_ptr<Net> make(void* table) {
  return std::make_unique<Adapter<kApi>>(static_cast<typename Version<kApi>::Net*>(table));
}

}  // namespace

Result Net::get_properties(int device, newest::Properties* properties) {
  alignas(8) std::array<unsigned char, kMaxPropertiesSize> raw;
  raw.fill(kPoison);
  const Result result = get_raw_properties(device, raw.data());
  if (result == Result::kSuccess) *properties = complete_properties(device, raw.data());
  return result;
}

std::unique_ptr<Net> adapt(int api, void* table) {
  using Make = std::unique_ptr<Net> (*)(void*);
#define PLUGFEST_MAKER(api) make<api>,
  static constexpr Make kMakers[] = {PLUGFEST_NET_VERSIONS(PLUGFEST_MAKER)};
#undef PLUGFEST_MAKER
  if (api < kOldestApi || api > kNewestApi) throw std::logic_error(fmt::format("no net interface has version {}", api));
  return kMakers[api - kOldestApi](table);
}

}  // namespace plugfest::plugin
