#include "plugins/sharp/collective.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>

#include "harness/abi/coll_net.h"

namespace sharp {
namespace {

struct ElementType {
  sharp_datatype dtype;
  std::size_t bytes;
};

// By abi::DataType. SHARP has no 8-bit floating-point numbers.
constexpr ElementType kTypes[] = {
    {SHARP_DTYPE_INT8, 1},   {SHARP_DTYPE_UINT8, 1},         {SHARP_DTYPE_INT, 4},         {SHARP_DTYPE_UNSIGNED, 4},
    {SHARP_DTYPE_LONG, 8},   {SHARP_DTYPE_UNSIGNED_LONG, 8}, {SHARP_DTYPE_FLOAT_SHORT, 2}, {SHARP_DTYPE_FLOAT, 4},
    {SHARP_DTYPE_DOUBLE, 8}, {SHARP_DTYPE_BFLOAT16, 2},
};
static_assert(std::size(kTypes) == abi::kFloat8e4m3);

// By abi::ReduceOp. NCCL asks for a sum when it computes an average.
constexpr sharp_reduce_op kOperators[] = {SHARP_OP_SUM, SHARP_OP_PROD, SHARP_OP_MAX, SHARP_OP_MIN};

// Types and operators of the switches, bits as in sharp_coll_caps. All until the first connect.
constinit std::atomic<std::uint64_t> g_types = ~std::uint64_t{0};
constinit std::atomic<std::uint64_t> g_operators = ~std::uint64_t{0};

const char* advice_for(int code) {
  switch (code) {
    case SHARP_COLL_ERROR:
      return "a rank, a switch or the aggregation manager failed: see the logs of all ranks";
    case SHARP_COLL_EOOB:
      return "another rank failed: see the logs of all ranks";
    case SHARP_COLL_ESESS_INIT:
    case SHARP_COLL_EJOB_CREATE:
    case SHARP_COLL_ETREE_INFO:
    case SHARP_COLL_ENOTREE:
      return "check that the aggregation manager runs and has a tree that reaches all hosts";
    case SHARP_COLL_EQUOTA:
    case SHARP_COLL_EGROUP_ALLOC:
    case SHARP_COLL_ELOCK_FAILED:
    case SHARP_COLL_ELOCK_DENIED:
    case SHARP_COLL_ENO_RESOURCE:
      return "other jobs use the switches: wait until they end, or set NCCL_COLLNET_ENABLE=0";
    case SHARP_COLL_EDEV:
      return "check that the NIC is up and has an address";
    default:
      return "libsharp_coll says more with SHARP_COLL_LOG_LEVEL=3";
  }
}

sharp_coll_data_desc description_of(const Buffer& buffer) {
  sharp_coll_data_desc description = {};
  description.type = SHARP_DATA_BUFFER;
  description.mem_type = buffer.memory != nullptr ? buffer.memory->type : SHARP_MEM_TYPE_HOST;
  description.buffer = {buffer.data, buffer.bytes, buffer.memory != nullptr ? buffer.memory->handle : nullptr};
  return description;
}

// The specification of a reduction without buffers and length.
sharp_coll_reduce_spec reduction_of(int type, int op) {
  if (!is_supported(type, op))
    throw Failure(Result::kInvalidArgument, "type " + std::to_string(type) + ", operator " + std::to_string(op) +
                                                ": SHARP does not reduce it: ask reduceSupport first");
  sharp_coll_reduce_spec spec = {};
  spec.dtype = kTypes[type].dtype;
  spec.op = kOperators[op];
  spec.tag_dtype = SHARP_DTYPE_NULL;
  spec.aggr_mode = SHARP_AGGREGATION_NONE;
  return spec;
}

}  // namespace

bool is_supported(int type, int op) {
  if (type < 0 || type >= static_cast<int>(std::size(kTypes))) return false;
  if (op < 0 || op >= static_cast<int>(std::size(kOperators))) return false;
  return (g_types >> kTypes[type].dtype & 1) != 0 && (g_operators >> kOperators[op] & 1) != 0;
}

Collective::Collective(const std::string& device, std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {
  for (Request& request : requests_) request.owner = this;
  create(device);
  learn_limits();
  ring_->barrier();  // no rank succeeds if one has failed
  ring_->close();
}

// A rank that fails leaves by an exception, which closes its ring.
void Collective::create(const std::string& device) {
  const auto [rank, ranks] = ring_->place();
  ring_->barrier();
  std::uint64_t job = 0;
  if (rank == 0) {
    std::random_device random;
    job = std::uint64_t{random()} << 32 | random();
  }
  ring_->broadcast(&job, sizeof job, 0);

  sharp_coll_init_spec spec = {};
  spec.job_id = job;
  spec.world_rank = rank;
  spec.world_size = ranks;
  spec.config = sharp_coll_default_config;
  spec.config.ib_dev_list = device.c_str();
  // All resources are allocated while the ring exists.
  spec.config.flags |= SHARP_COLL_DISABLE_LAZY_GROUP_RESOURCE_ALLOC;
  spec.oob_colls = Ring::collectives();
  spec.oob_ctx = ring_.get();
  spec.enable_thread_support = 1;
  sharp_coll_context* context = nullptr;
  check(sharp_coll_init(&spec, &context), "sharp_coll_init");
  context_.reset(context);

  sharp_coll_comm_init_spec comm_spec = {};
  comm_spec.rank = rank;
  comm_spec.size = ranks;
  comm_spec.oob_ctx = ring_.get();
  sharp_coll_comm* comm = nullptr;
  check(sharp_coll_comm_init(context, &comm_spec, &comm), "sharp_coll_comm_init");
  comm_.reset(comm);
}

void Collective::learn_limits() const {
  sharp_coll_caps caps = {};
  check(sharp_coll_caps_query(context_.get(), &caps), "sharp_coll_caps_query");
  g_types &= caps.support_mask.dtypes;
  g_operators &= caps.support_mask.reduce_ops;
}

Collective::~Collective() {
  comm_.reset();  // first: it ends the requests
  for (const Request& request : requests_)
    if (request.handle != nullptr) sharp_coll_req_free(request.handle);
  for (const auto& [key, memory] : memory_) sharp_coll_dereg_mr(context_.get(), memory->handle);
}

void Collective::check(int code, const char* function) const {
  if (code == SHARP_COLL_SUCCESS) return;
  if (code == SHARP_COLL_EOOB && ring_->failure()) throw Failure(*ring_->failure());
  const Result result = code == SHARP_COLL_EINVAL                             ? Result::kInvalidArgument
                        : code == SHARP_COLL_ERROR || code == SHARP_COLL_EOOB ? Result::kRemoteError
                                                                              : Result::kSystemError;
  throw Failure(result, std::string(function) + ": " + sharp_coll_strerror(code) + " (" + std::to_string(code) +
                            "): " + advice_for(code));
}

Memory* Collective::add_memory(void* data, std::size_t bytes, sharp_data_memory_type type,
                               const sharp_coll_reg_params* dma_buf) {
  auto memory = std::make_unique<Memory>(Memory{.type = type});
  Memory* const added = memory.get();
  const std::lock_guard lock(mutex_);
  memory_.emplace(added, std::move(memory));
  const int code = dma_buf != nullptr ? sharp_coll_reg_mr_v2(context_.get(), data, bytes, dma_buf, &added->handle)
                                      : sharp_coll_reg_mr(context_.get(), data, bytes, &added->handle);
  if (code != SHARP_COLL_SUCCESS) memory_.erase(added);
  check(code, dma_buf != nullptr ? "sharp_coll_reg_mr_v2" : "sharp_coll_reg_mr");
  return added;
}

void Collective::remove_memory(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end())
    throw Failure(Result::kInvalidArgument, "deregMr: the mhandle is not one of regMr on this collComm");
  const std::unique_ptr<Memory> removed = std::move(found->second);
  memory_.erase(found);
  check(sharp_coll_dereg_mr(context_.get(), removed->handle), "sharp_coll_dereg_mr");
}

// Calls `post(&handle)` with a free place for the handle.
template <typename Post>
Request* Collective::post(std::size_t bytes, const char* function, const Post& post) {
  const auto place = std::find_if(requests_.begin(), requests_.end(),
                                  [](const Request& request) { return request.handle == nullptr; });
  if (place == requests_.end()) return nullptr;
  void* handle = nullptr;
  check(post(&handle), function);
  place->handle = handle;
  place->bytes = bytes;
  return &*place;
}

Request* Collective::allreduce(const Buffer& send, const Buffer& receive, std::size_t count, int type, int op) {
  sharp_coll_reduce_spec spec = reduction_of(type, op);
  const std::size_t bytes = count * kTypes[type].bytes;
  spec.sbuf_desc = description_of({send.data, bytes, send.memory});
  spec.rbuf_desc = description_of({receive.data, bytes, receive.memory});
  spec.length = count;
  return post(bytes, "sharp_coll_do_allreduce_nb",
              [&](void** handle) { return sharp_coll_do_allreduce_nb(comm_.get(), &spec, handle); });
}

Request* Collective::allgather(const Buffer& send, const Buffer& receive, const Window& window) {
  sharp_coll_gather_spec spec = {};
  spec.sbuf_desc = description_of({send.data, window.block_bytes, send.memory});
  spec.rbuf_desc = description_of(receive);
  spec.dtype = SHARP_DTYPE_INT8;
  spec.size = window.bytes;
  spec.offset = window.offset;
  return post(window.bytes, "sharp_coll_do_allgather_nb",
              [&](void** handle) { return sharp_coll_do_allgather_nb(comm_.get(), &spec, handle); });
}

Request* Collective::reduce_scatter(const Buffer& send, const Buffer& receive, const Window& window, int type, int op) {
  sharp_coll_reduce_spec spec = reduction_of(type, op);
  if (window.bytes % kTypes[type].bytes != 0)
    throw Failure(Result::kInvalidArgument, "ireducescatter: a window of " + std::to_string(window.bytes) +
                                                " bytes: expected a multiple of the element's " +
                                                std::to_string(kTypes[type].bytes));
  spec.sbuf_desc = description_of(send);
  spec.rbuf_desc = description_of({receive.data, window.block_bytes, receive.memory});
  spec.length = window.bytes / kTypes[type].bytes;
  spec.offset = window.offset;
  return post(window.bytes, "sharp_coll_do_reduce_scatter_nb",
              [&](void** handle) { return sharp_coll_do_reduce_scatter_nb(comm_.get(), &spec, handle); });
}

bool Collective::test(Request& request) {
  if (request.handle == nullptr) throw Failure(Result::kInvalidArgument, "test: the request is not outstanding");
  const int status = sharp_coll_req_test(request.handle);
  if (status == 0) return false;
  sharp_coll_req_free(std::exchange(request.handle, nullptr));
  if (status < 0) check(status, "sharp_coll_req_test");
  return true;
}

}  // namespace sharp
