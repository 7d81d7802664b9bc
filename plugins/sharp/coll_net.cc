// Checks arguments and turns exceptions into result codes and log lines.
#include "plugins/sharp/coll_net.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "plugins/mesh/net.h"
#include "plugins/mesh/settings.h"
#include "plugins/sharp/collective.h"
#include "plugins/sharp/ring.h"

namespace sharp::coll_net {
namespace {

namespace net = mesh::net;

constexpr int kDefaultSeconds = 60;
constexpr int kMaxSeconds = 86400;

constinit std::atomic<abi::Logger> g_logger = nullptr;
constinit std::atomic<int> g_connect_seconds = kDefaultSeconds;

/// NCCL's listenComm. connect gets no device and no context, so they are kept here.
struct Listener {
  int device = 0;
  void* net_listener = nullptr;  ///< null after connect
};

void log_line(int level, const char* text) {
  const abi::Logger logger = g_logger;
  if (logger == nullptr) return;
  const unsigned long subsystems = level == abi::kLogWarn ? ~0ul : abi::kLogInit | abi::kLogNet;
  logger(level, subsystems, __FILE_NAME__, __LINE__, "COLLNET/sharp: %s", text);
}
void warn(const std::string& text) { log_line(abi::kLogWarn, text.c_str()); }

// Runs `body` and catches its exceptions.
template <typename Body>
Result guarded(const Body& body) noexcept {
  try {
    try {
      body();
      return Result::kSuccess;
    } catch (const Failure& failure) {
      warn(failure.what());
      return failure.code();
    } catch (const std::exception& error) {
      warn(std::string("unexpected error: ") + error.what());
    }
  } catch (...) {
    log_line(abi::kLogWarn, "unexpected error without a text (or no memory for its text)");
  }
  return Result::kSystemError;
}

[[noreturn]] void invalid(const std::string& text) { throw Failure(Result::kInvalidArgument, text); }

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) invalid(std::string(what) + " is NULL");
}

// The net part has logged the cause of an error.
void check_net(Result result, const char* function) {
  if (result != Result::kSuccess)
    throw Failure(result, std::string(function) + ": the net part failed: see its line above");
}

// Errors: Failure for an invalid value.
int connect_seconds() {
  const char* const name = "NCCL_SHARP_CONNECT_TIMEOUT";
  return mesh::number_in(std::getenv(name), name, 1, kMaxSeconds, "a number of seconds").value_or(kDefaultSeconds);
}

// The NIC of a device as libsharp_coll names it. It uses one NIC, the first one of a virtual device.
std::string sharp_device(int device) {
  net::Properties properties = {};
  check_net(net::get_properties(device, &properties), "connect");
  check_net(net::get_properties(properties.vProps.devs[0], &properties), "connect");
  return std::string(properties.name) + ":" + std::to_string(properties.port);
}

// NCCL's kind of memory for libsharp_coll, if the device takes it.
sharp_data_memory_type memory_type(int type) {
  if (type == abi::kPointerHost) return SHARP_MEM_TYPE_HOST;
  net::Properties properties = {};
  check_net(net::get_properties(0, &properties), "regMr");
  if (type != abi::kPointerCuda || (properties.ptrSupport & abi::kPointerCuda) == 0)
    invalid("regMr: memory type " + std::to_string(type) + " is not supported: only those that ptrSupport names are");
  return SHARP_MEM_TYPE_CUDA;
}

// The only part of NCCL's list.
const Part& only(const Part* parts, int count, const char* function) {
  if (count != 1) invalid(std::string(function) + ": " + std::to_string(count) + " parts: expected 1, as NCCL gives");
  require(parts, function);
  return *parts;
}

const Memory* memory_of(void* handle) { return static_cast<const Memory*>(handle); }

// Calls `start(collective)`, which returns a request, or null if NCCL must call again later.
template <typename Start>
Result post(void* coll_comm, void** request, const char* function, const Start& start) noexcept {
  return guarded([&] {
    if (request == nullptr) invalid(std::string(function) + ": request is NULL");
    *request = nullptr;  // it may contain a stale pointer
    if (coll_comm == nullptr) invalid(std::string(function) + ": collComm is NULL");
    *request = start(*static_cast<Collective*>(coll_comm));
  });
}

void start(void** context, std::uint64_t communicator, abi::Logger logger) {
  require(context, "init: ctx");
  *context = nullptr;
  g_connect_seconds = connect_seconds();
  check_net(net::init(context, communicator, nullptr, logger, nullptr), "init");
}

}  // namespace

Result init(void** context, std::uint64_t communicator, abi::Logger logger) noexcept {
  g_logger = logger;
  return guarded([&] { start(context, communicator, logger); });
}

// The net part's function of this name would replace the profiler that NCCL has given it.
Result init_for_good(abi::Logger logger) noexcept {
  static constinit std::mutex mutex;
  static void* context = nullptr;
  return guarded([&] {
    const std::lock_guard lock(mutex);
    g_logger = logger;
    if (context == nullptr) start(&context, 0, logger);
  });
}

Result listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  return guarded([&] {
    require(listen_comm, "listen: listenComm");
    *listen_comm = nullptr;
    auto listener = std::make_unique<Listener>(Listener{.device = device});
    check_net(net::listen(context, device, handle, &listener->net_listener), "listen");
    *listen_comm = listener.release();
  });
}

Result connect(void** handles, int ranks, int rank, void* listen_comm, void** coll_comm) noexcept {
  return guarded([&] {
    require(coll_comm, "connect: collComm");
    *coll_comm = nullptr;
    require(handles, "connect: handles");
    require(listen_comm, "connect: listenComm");
    if (ranks < 1 || rank < 0 || rank >= ranks)
      invalid("connect: rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " does not exist");
    auto& listener = *static_cast<Listener*>(listen_comm);
    if (listener.net_listener == nullptr) invalid("connect: listenComm was already used by an earlier connect");
    const void* const next_handle = handles[(rank + 1) % ranks];
    require(next_handle, "connect: the handle of the next rank");
    auto ring =
        std::make_unique<Ring>(Ring::Place{rank, ranks}, listener.device, std::exchange(listener.net_listener, nullptr),
                               next_handle, std::chrono::seconds(g_connect_seconds), g_logger);
    const std::string device = sharp_device(listener.device);
    *coll_comm = new Collective(device, std::move(ring));
    log_line(abi::kLogInfo,
             ("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " reduces through " + device).c_str());
  });
}

// After a failed connect, NCCL does not call this function: only a few bytes remain then.
Result close_listen(void* listen_comm) noexcept {
  return guarded([&] {
    const std::unique_ptr<Listener> listener(static_cast<Listener*>(listen_comm));
    if (listener && listener->net_listener != nullptr)
      check_net(net::close_listen(listener->net_listener), "closeListen");
  });
}

Result close_coll(void* coll_comm) noexcept {
  return guarded([&] { delete static_cast<Collective*>(coll_comm); });
}

Result reduce_support(int type, int op, int* supported) noexcept {
  return guarded([&] {
    require(supported, "reduceSupport: supported");
    *supported = static_cast<int>(is_supported(type, op));
  });
}

Result reg_mr(void* coll_comm, void* data, std::size_t size, int type, void** memory) noexcept {
  return guarded([&] {
    require(memory, "regMr: mhandle");
    *memory = nullptr;
    require(coll_comm, "regMr: collComm");
    *memory = static_cast<Collective*>(coll_comm)->add_memory(data, size, memory_type(type), nullptr);
  });
}

Result reg_mr_dma_buf(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int descriptor,
                      void** memory) noexcept {
  return guarded([&] {
    require(memory, "regMrDmaBuf: mhandle");
    *memory = nullptr;
    require(coll_comm, "regMrDmaBuf: collComm");
    if (descriptor < 0) invalid("regMrDmaBuf: the descriptor is negative");
    const sharp_coll_reg_params dma_buf = {
        .field_mask = SHARP_COLL_REG_FIELD_DMABUF_FD | SHARP_COLL_REG_FIELD_DMABUF_OFFSET,
        .dmabuf_fd = descriptor,
        .dmabuf_offset = offset};
    *memory = static_cast<Collective*>(coll_comm)->add_memory(data, size, memory_type(type), &dma_buf);
  });
}

Result dereg_mr(void* coll_comm, void* memory) noexcept {
  return guarded([&] {
    require(coll_comm, "deregMr: collComm");
    if (memory != nullptr) static_cast<Collective*>(coll_comm)->remove_memory(memory);
  });
}

Result iallreduce(void* coll_comm, void* send, void* receive, std::size_t count, int type, int op, void* send_memory,
                  void* receive_memory, void** request) noexcept {
  return post(coll_comm, request, "iallreduce", [&](Collective& collective) {
    return collective.allreduce({send, 0, memory_of(send_memory)}, {receive, 0, memory_of(receive_memory)}, count, type,
                                op);
  });
}

Result iallgather(void* coll_comm, void* send, int part_count, Part* receive_parts, std::size_t bytes_per_rank,
                  std::size_t window_offset, std::size_t window_bytes, void* send_memory, void** request) noexcept {
  return post(coll_comm, request, "iallgather", [&](Collective& collective) {
    const Part& part = only(receive_parts, part_count, "iallgather: recvParts");
    return collective.allgather({send, 0, memory_of(send_memory)}, {part.address, part.size, memory_of(part.mhandle)},
                                {bytes_per_rank, window_offset, window_bytes});
  });
}

Result ireducescatter(void* coll_comm, int part_count, Part* send_parts, void* receive, std::size_t bytes_per_rank,
                      std::size_t window_offset, std::size_t window_bytes, int type, int op, void* receive_memory,
                      void** request) noexcept {
  return post(coll_comm, request, "ireducescatter", [&](Collective& collective) {
    const Part& part = only(send_parts, part_count, "ireducescatter: sendParts");
    return collective.reduce_scatter({part.address, part.size, memory_of(part.mhandle)},
                                     {receive, 0, memory_of(receive_memory)},
                                     {bytes_per_rank, window_offset, window_bytes}, type, op);
  });
}

// A complete collective has its result in memory. No request means that the flush is done.
Result iflush(void* /*coll_comm*/, void* /*data*/, int /*size*/, void* /*memory*/, void** request) noexcept {
  return guarded([&] {
    require(request, "iflush: request");
    *request = nullptr;
  });
}

Result test(void* request, int* done, int* size) noexcept {
  return guarded([&] {
    require(done, "test: done");
    *done = 0;
    require(request, "test: request");
    auto& posted = *static_cast<Request*>(request);
    if (!posted.owner->test(posted)) return;
    *done = 1;
    if (size != nullptr) *size = static_cast<int>(std::min<std::size_t>(posted.bytes, INT_MAX));
  });
}

}  // namespace sharp::coll_net
