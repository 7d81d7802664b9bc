#include "fabric/sharp_coll/transfer.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

#include "fabric/reduction/operation.h"
#include "fabric/sharp_coll/failure.h"

namespace plugfest::sharp_coll {
namespace {

// The aggregation nodes number types and operators as SHARP does.
static_assert(static_cast<int>(reduction::DataType::kSigned8) == SHARP_DTYPE_INT8 &&
              reduction::kDataTypes == SHARP_DTYPE_NULL);
static_assert(static_cast<int>(reduction::Operator::kXor) == SHARP_OP_BXOR && reduction::kOperators == SHARP_OP_MAXLOC);

// Returns 0 if `dtype` is not a type of elements.
std::size_t element_bytes(sharp_datatype dtype) {
  const auto number = static_cast<unsigned>(dtype);
  return number < reduction::kDataTypes ? reduction::element_bytes(static_cast<reduction::DataType>(number)) : 0;
}

[[noreturn]] void invalid(const std::string& text) { throw Failure(SHARP_COLL_EINVAL, text); }

std::size_t product(std::size_t a, std::size_t b, const char* collective, const char* what) {
  std::size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > PTRDIFF_MAX)
    invalid(std::string(collective) + ": " + what + ": " + std::to_string(a) + " times " + std::to_string(b) +
            " bytes exceed the address space");
  return result;
}

// Whether the CPU can read an address. Emulated device memory is ordinary memory; memory of a real GPU is not mapped.
bool is_accessible(const void* address) {
  char byte = 0;
  const iovec local = {&byte, 1};
  const iovec remote = {const_cast<void*>(address), 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1) return true;
  return errno == EPERM || errno == ENOSYS;  // a sandbox forbids the call: nothing is known
}

// The memory of a buffer of which a call uses `bytes` bytes. `has_memory_type`: the caller has set mem_type.
std::byte* memory_of(const sharp_coll_data_desc& buffer, std::size_t bytes, const char* collective, const char* name,
                     bool has_memory_type = true) {
  const auto where = [&] { return std::string(collective) + ": " + name; };
  if (buffer.type != SHARP_DATA_BUFFER)
    throw Failure(SHARP_COLL_ENOT_SUPP, where() + ": type " + std::to_string(buffer.type) +
                                            ": only SHARP_DATA_BUFFER is supported: copy the data to one buffer");
  if (bytes == 0) return nullptr;
  if (buffer.buffer.ptr == nullptr)
    invalid(where() + " is null, but the call uses " + std::to_string(bytes) + " bytes of it");
  if (!has_memory_type || buffer.mem_type != SHARP_MEM_TYPE_HOST) {
    const bool may_be_accessible = !has_memory_type || buffer.mem_type == SHARP_MEM_TYPE_CUDA;
    if (!may_be_accessible || !is_accessible(buffer.buffer.ptr))
      throw Failure(SHARP_COLL_ENOT_SUPP,
                    where() + ": memory type " + std::to_string(buffer.mem_type) +
                        ": the CPU cannot access this memory: use host memory or the device memory of `plugfest nccl`");
  }
  return static_cast<std::byte*>(buffer.buffer.ptr);
}

void check_length(const sharp_coll_data_desc& buffer, std::size_t bytes, const char* collective, const char* name) {
  if (buffer.type == SHARP_DATA_BUFFER && buffer.buffer.length < bytes)
    invalid(std::string(collective) + ": " + name + " has " + std::to_string(buffer.buffer.length) +
            " bytes, but the call uses " + std::to_string(bytes));
}

void check_root(int root, Place place, const char* collective) {
  if (root < 0 || root >= place.size)
    invalid(std::string(collective) + ": root " + std::to_string(root) + ": expected a rank from 0 to " +
            std::to_string(place.size - 1));
}

// Sets type, operator and length.
Transfer reduction_of(const sharp_coll_reduce_spec& spec, const char* collective) {
  Transfer transfer;
  transfer.dtype = spec.dtype;
  transfer.op = spec.op;
  transfer.element_bytes = element_bytes(spec.dtype);
  // MAXLOC and MINLOC, which nodes do not support, have numbers above the operators of the nodes.
  if (transfer.element_bytes == 0 || static_cast<unsigned>(spec.op) >= reduction::kOperators ||
      !reduction::is_supported(static_cast<reduction::DataType>(spec.dtype), static_cast<reduction::Operator>(spec.op)))
    throw Failure(SHARP_COLL_ENOT_SUPP, std::string(collective) + ": type " + std::to_string(spec.dtype) +
                                            ", operator " + std::to_string(spec.op) +
                                            ": not supported: see sharp_coll_caps_query()");
  transfer.bytes = product(spec.length, transfer.element_bytes, collective, "length");
  return transfer;
}

// The part of the own block of `block` bytes inside the data window [offset, offset + bytes), relative to the data
// window.
template <typename Byte>
Part<Byte> own_part(std::size_t block, std::size_t offset, std::size_t bytes, Place place) {
  const std::size_t block_begin = block * static_cast<std::size_t>(place.rank);
  const std::size_t begin = std::max(block_begin, offset);
  const std::size_t end = std::min(block_begin + block, offset + bytes);
  if (begin >= end) return {};
  return {nullptr, begin - offset, end - offset};
}

void check_data_window(std::size_t block, std::size_t offset, std::size_t bytes, Place place, const char* collective) {
  const std::size_t all = product(block, static_cast<std::size_t>(place.size), collective, "blocks of all ranks");
  if (offset > all || bytes > all - offset)
    invalid(std::string(collective) + ": offset " + std::to_string(offset) + " and " + std::to_string(bytes) +
            " bytes exceed the " + std::to_string(place.size) + " blocks of " + std::to_string(block) + " bytes");
}

}  // namespace

bool Transfer::overwrites_source() const {
  if (source.empty() || destination.empty()) return false;
  const auto source_at = reinterpret_cast<std::uintptr_t>(source.data);
  const auto destination_at = reinterpret_cast<std::uintptr_t>(destination.data);
  const bool overlap = source_at < destination_at + (destination.end - destination.begin) &&
                       destination_at < source_at + (source.end - source.begin);
  return overlap && source_at - source.begin != destination_at - destination.begin;
}

Transfer allreduce_of(const sharp_coll_reduce_spec& spec) {
  constexpr const char* kName = "allreduce";
  Transfer transfer = reduction_of(spec, kName);
  check_length(spec.sbuf_desc, transfer.bytes, kName, "sbuf");
  check_length(spec.rbuf_desc, transfer.bytes, kName, "rbuf");
  transfer.source = {memory_of(spec.sbuf_desc, transfer.bytes, kName, "sbuf"), 0, transfer.bytes};
  transfer.destination = {memory_of(spec.rbuf_desc, transfer.bytes, kName, "rbuf"), 0, transfer.bytes};
  return transfer;
}

Transfer reduce_of(const sharp_coll_reduce_spec& spec, Place place) {
  constexpr const char* kName = "reduce";
  check_root(spec.root, place, kName);
  Transfer transfer = reduction_of(spec, kName);
  check_length(spec.sbuf_desc, transfer.bytes, kName, "sbuf");
  transfer.source = {memory_of(spec.sbuf_desc, transfer.bytes, kName, "sbuf"), 0, transfer.bytes};
  if (spec.root == place.rank) {
    check_length(spec.rbuf_desc, transfer.bytes, kName, "rbuf");
    transfer.destination = {memory_of(spec.rbuf_desc, transfer.bytes, kName, "rbuf"), 0, transfer.bytes};
  }
  return transfer;
}

Transfer reduce_scatter_of(const sharp_coll_reduce_spec& spec, Place place) {
  constexpr const char* kName = "reduce-scatter";
  Transfer transfer = reduction_of(spec, kName);
  const std::size_t block = spec.rbuf_desc.buffer.length;
  // Callers set `length` to the elements of the data window (nccl-rdma-sharp-plugins) or of a block (UCC), and the size
  // of sbuf to the size of the data window.
  if (transfer.bytes == block) transfer.bytes = spec.sbuf_desc.buffer.length;
  if (transfer.bytes % transfer.element_bytes != 0)
    invalid(std::string(kName) + ": sbuf of " + std::to_string(transfer.bytes) +
            " bytes: expected a multiple of the element's " + std::to_string(transfer.element_bytes) + " bytes");
  if (block % transfer.element_bytes != 0 || spec.offset % transfer.element_bytes != 0)
    invalid(std::string(kName) + ": block of " + std::to_string(block) + " bytes, offset " +
            std::to_string(spec.offset) + ": expected multiples of the element's " +
            std::to_string(transfer.element_bytes) + " bytes");
  check_data_window(block, spec.offset, transfer.bytes, place, kName);
  check_length(spec.sbuf_desc, transfer.bytes, kName, "sbuf");
  transfer.source = {memory_of(spec.sbuf_desc, transfer.bytes, kName, "sbuf"), 0, transfer.bytes};
  transfer.destination = own_part<std::byte>(block, spec.offset, transfer.bytes, place);
  transfer.destination.data =
      memory_of(spec.rbuf_desc, transfer.destination.end - transfer.destination.begin, kName, "rbuf");
  return transfer;
}

Transfer allgather_of(const sharp_coll_gather_spec& spec, Place place) {
  constexpr const char* kName = "allgather";
  const std::size_t element = element_bytes(spec.dtype);
  if (element == 0)
    throw Failure(SHARP_COLL_ENOT_SUPP, std::string(kName) + ": type " + std::to_string(spec.dtype) +
                                            ": not supported: see sharp_coll_caps_query()");
  Transfer transfer;
  transfer.bytes = spec.rbuf_desc.buffer.length;  // UCC does not set spec.size
  const std::size_t block = spec.sbuf_desc.buffer.length;
  check_data_window(block, spec.offset, transfer.bytes, place, kName);
  transfer.source = own_part<const std::byte>(block, spec.offset, transfer.bytes, place);
  // Callers do not set mem_type.
  transfer.source.data = memory_of(spec.sbuf_desc, transfer.source.end - transfer.source.begin, kName, "sbuf", false);
  transfer.destination = {memory_of(spec.rbuf_desc, transfer.bytes, kName, "rbuf", false), 0, transfer.bytes};
  return transfer;
}

Transfer bcast_of(const sharp_coll_bcast_spec& spec, Place place) {
  constexpr const char* kName = "bcast";
  check_root(spec.root, place, kName);
  Transfer transfer;
  transfer.bytes = product(spec.size, 1, kName, "size");
  check_length(spec.buf_desc, transfer.bytes, kName, "buf");
  std::byte* const memory = memory_of(spec.buf_desc, transfer.bytes, kName, "buf");
  if (spec.root == place.rank)
    transfer.source = {memory, 0, transfer.bytes};
  else
    transfer.destination = {memory, 0, transfer.bytes};
  return transfer;
}

Transfer barrier() {
  static constexpr std::byte kZero = {};
  Transfer transfer;
  transfer.bytes = 1;
  transfer.source = {&kZero, 0, 1};
  return transfer;
}

}  // namespace plugfest::sharp_coll
