#include "fabric/sharp_coll/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fabric/sharp_coll/failure.h"

namespace plugfest::sharp_coll {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A specification whose members are all garbage, as callers leave those that a collective does not use.
template <typename Spec>
Spec garbage() {
  Spec spec;
  std::memset(static_cast<void*>(&spec), 0xa5, sizeof(spec));
  return spec;
}

void set(sharp_coll_data_desc& buffer, void* memory, std::size_t bytes) {
  buffer.type = SHARP_DATA_BUFFER;
  buffer.mem_type = SHARP_MEM_TYPE_HOST;
  buffer.buffer.ptr = memory;
  buffer.buffer.length = bytes;
}

sharp_coll_reduce_spec reduce_spec(void* send, std::size_t send_bytes, void* receive, std::size_t receive_bytes,
                                   std::size_t elements, sharp_datatype dtype = SHARP_DTYPE_INT) {
  auto spec = garbage<sharp_coll_reduce_spec>();
  set(spec.sbuf_desc, send, send_bytes);
  set(spec.rbuf_desc, receive, receive_bytes);
  spec.dtype = dtype;
  spec.op = SHARP_OP_SUM;
  spec.length = elements;
  return spec;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return std::to_string(failure.code()) + " " + failure.what();
  }
  return "no error";
}

class Transfers : public ::testing::Test {
 protected:
  std::byte* send() { return memory_.data(); }
  std::byte* receive() { return memory_.data() + 512; }
  std::vector<std::byte> memory_ = std::vector<std::byte>(1024);
};

TEST_F(Transfers, AllreduceMovesTheWholeVectorAndReadsNoOtherMember) {
  const Transfer transfer = allreduce_of(reduce_spec(send(), 28, receive(), 28, 7));
  EXPECT_EQ(transfer.bytes, 28u);
  EXPECT_EQ(transfer.element_bytes, 4u);
  EXPECT_EQ(transfer.source.data, send());
  EXPECT_EQ(transfer.source.end, 28u);
  EXPECT_EQ(transfer.destination.data, receive());
  EXPECT_EQ(transfer.destination.end, 28u);
}

TEST_F(Transfers, OnlyTheRootOfAReduceStoresTheResult) {
  auto spec = reduce_spec(send(), 28, receive(), 28, 7);
  spec.root = 1;
  EXPECT_EQ(reduce_of(spec, {1, 3}).destination.end, 28u);
  spec.rbuf_desc = garbage<sharp_coll_data_desc>();
  EXPECT_TRUE(reduce_of(spec, {0, 3}).destination.empty());
}

TEST_F(Transfers, ReduceScatterStoresTheOwnBlockInsideTheWindow) {
  // Blocks of 16 bytes; the data window is [8, 40): the end of block 0, block 1, the beginning of block 2.
  auto spec = reduce_spec(send(), 32, receive(), 16, 8);
  spec.offset = 8;
  const auto part = [&](int rank) {
    const Part<std::byte> own = reduce_scatter_of(spec, {rank, 4}).destination;
    return std::to_string(own.begin) + "-" + std::to_string(own.end);
  };
  EXPECT_EQ(part(0), "0-8");
  EXPECT_EQ(part(1), "8-24");
  EXPECT_EQ(part(2), "24-32");
  EXPECT_TRUE(reduce_scatter_of(spec, {3, 4}).destination.empty());
  EXPECT_EQ(reduce_scatter_of(spec, {2, 4}).destination.data, receive());
}

TEST_F(Transfers, UccReducesAndGathersAllBlocks) {
  // Its length is one block, and its send buffer has the size of all blocks.
  auto scatter = reduce_spec(send(), 48, receive(), 16, 4);
  scatter.offset = 0;
  const Transfer scattered = reduce_scatter_of(scatter, {2, 3});
  EXPECT_EQ(scattered.bytes, 48u);
  EXPECT_EQ(scattered.destination.begin, 32u);
  EXPECT_EQ(scattered.destination.end, 48u);

  // It does not set size.
  auto gather = garbage<sharp_coll_gather_spec>();
  gather.sbuf_desc.type = gather.rbuf_desc.type = SHARP_DATA_BUFFER;
  gather.sbuf_desc.buffer = {send(), 16, nullptr};
  gather.rbuf_desc.buffer = {receive(), 48, nullptr};
  gather.dtype = SHARP_DTYPE_INT8;
  gather.offset = 0;
  const Transfer gathered = allgather_of(gather, {2, 3});
  EXPECT_EQ(gathered.bytes, 48u);
  EXPECT_EQ(gathered.source.begin, 32u);
}

TEST_F(Transfers, ARankOutsideTheWindowPassesNoMemory) {
  auto scatter = reduce_spec(send(), 16, nullptr, 16, 4);
  scatter.offset = 0;
  EXPECT_TRUE(reduce_scatter_of(scatter, {1, 2}).destination.empty());
  EXPECT_THAT(error_of([&] {
                reduce_scatter_of(scatter, {0, 2});
              }),
              "-10 reduce-scatter: rbuf is null, but the call uses 16 bytes of it");

  auto gather = garbage<sharp_coll_gather_spec>();
  gather.sbuf_desc.type = gather.rbuf_desc.type = SHARP_DATA_BUFFER;
  gather.sbuf_desc.buffer = {nullptr, 16, nullptr};
  gather.rbuf_desc.buffer = {receive(), 16, nullptr};
  gather.dtype = SHARP_DTYPE_INT8;
  gather.size = 16;
  gather.offset = 16;
  EXPECT_TRUE(allgather_of(gather, {0, 2}).source.empty());
  EXPECT_THAT(error_of([&] { allgather_of(gather, {1, 2}); }), StartsWith("-10 allgather: sbuf is null"));
}

TEST_F(Transfers, AllgatherIsABitwiseOrOfBytes) {
  auto spec = garbage<sharp_coll_gather_spec>();
  spec.sbuf_desc.type = spec.rbuf_desc.type = SHARP_DATA_BUFFER;
  spec.sbuf_desc.buffer = {send(), 16, nullptr};
  spec.rbuf_desc.buffer = {receive(), 24, nullptr};
  spec.dtype = SHARP_DTYPE_INT8;
  spec.size = 24;
  spec.offset = 20;
  const Transfer transfer = allgather_of(spec, {1, 3});
  EXPECT_EQ(transfer.op, SHARP_OP_BOR);
  EXPECT_EQ(transfer.dtype, SHARP_DTYPE_UINT8);
  EXPECT_EQ(transfer.bytes, 24u);
  EXPECT_EQ(transfer.source.data, send());
  EXPECT_EQ(transfer.source.begin, 0u);
  EXPECT_EQ(transfer.source.end, 12u);
  EXPECT_EQ(transfer.destination.end, 24u);
}

TEST_F(Transfers, TheRootOfABroadcastOnlySends) {
  auto spec = garbage<sharp_coll_bcast_spec>();
  set(spec.buf_desc, send(), 100);
  spec.root = 2;
  spec.size = 100;
  EXPECT_EQ(bcast_of(spec, {2, 3}).source.end, 100u);
  EXPECT_TRUE(bcast_of(spec, {2, 3}).destination.empty());
  EXPECT_TRUE(bcast_of(spec, {0, 3}).source.empty());
  EXPECT_EQ(bcast_of(spec, {0, 3}).destination.end, 100u);
}

TEST_F(Transfers, ZeroElementsNeedNoMemory) {
  EXPECT_EQ(allreduce_of(reduce_spec(nullptr, 0, nullptr, 0, 0)).bytes, 0u);
}

TEST_F(Transfers, ResultsOverwriteTheSourceOnlyAtOtherPlacesOfTheVector) {
  EXPECT_FALSE(allreduce_of(reduce_spec(send(), 28, receive(), 28, 7)).overwrites_source());
  EXPECT_FALSE(allreduce_of(reduce_spec(send(), 28, send(), 28, 7)).overwrites_source());
  EXPECT_TRUE(allreduce_of(reduce_spec(send(), 28, send() + 4, 28, 7)).overwrites_source());
  auto scatter = reduce_spec(send(), 64, send() + 16, 16, 16);
  scatter.offset = 0;
  EXPECT_FALSE(reduce_scatter_of(scatter, {1, 4}).overwrites_source());
  EXPECT_TRUE(reduce_scatter_of(scatter, {2, 4}).overwrites_source());
}

TEST_F(Transfers, ErrorsNameTheCollectiveAndTheArgument) {
  const auto allreduce = [&](sharp_coll_reduce_spec spec) { return error_of([&] { allreduce_of(spec); }); };
  EXPECT_EQ(allreduce(reduce_spec(send(), 27, receive(), 28, 7)),
            "-10 allreduce: sbuf has 27 bytes, but the call uses 28");
  EXPECT_EQ(allreduce(reduce_spec(send(), 28, receive(), 28, SIZE_MAX / 2)),
            "-10 allreduce: length: 9223372036854775807 times 4 bytes exceed the address space");
  EXPECT_EQ(allreduce(reduce_spec(send(), 28, receive(), 28, 7, SHARP_DTYPE_NULL)),
            "-2 allreduce: type 12, operator 2: not supported: see sharp_coll_caps_query()");
  auto spec = reduce_spec(send(), 28, receive(), 28, 7);
  spec.op = SHARP_OP_MAXLOC;
  EXPECT_THAT(allreduce(spec), StartsWith("-2 allreduce: type 1, operator 10: not supported"));
  spec = reduce_spec(send(), 28, receive(), 28, 7, SHARP_DTYPE_FLOAT);
  spec.op = SHARP_OP_BAND;
  EXPECT_THAT(allreduce(spec), StartsWith("-2 allreduce: type 4, operator 5: not supported"));
  spec = reduce_spec(send(), 28, receive(), 28, 7);
  spec.sbuf_desc.type = SHARP_DATA_IOV;
  EXPECT_THAT(allreduce(spec), StartsWith("-2 allreduce: sbuf: type 1: only SHARP_DATA_BUFFER"));
  spec = reduce_spec(send(), 28, receive(), 28, 7);
  spec.root = 3;
  EXPECT_EQ(error_of([&] { reduce_of(spec, {0, 3}); }), "-10 reduce: root 3: expected a rank from 0 to 2");
  spec.offset = 16;
  EXPECT_EQ(error_of([&] {
              reduce_scatter_of(spec, {0, 1});
            }),
            "-10 reduce-scatter: offset 16 and 28 bytes exceed the 1 blocks of 28 bytes");
  spec.offset = 2;
  EXPECT_THAT(error_of([&] { reduce_scatter_of(spec, {0, 2}); }), HasSubstr("expected multiples of the element's 4"));
}

TEST_F(Transfers, DeviceMemoryMustBeAccessibleByTheCpu) {
  auto spec = reduce_spec(send(), 28, receive(), 28, 7);
  spec.sbuf_desc.mem_type = SHARP_MEM_TYPE_CUDA;
  EXPECT_EQ(allreduce_of(spec).source.data, send());
  void* const forbidden = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(forbidden, MAP_FAILED);
  spec.sbuf_desc.buffer.ptr = forbidden;
  EXPECT_THAT(error_of([&] { allreduce_of(spec); }),
              StartsWith("-2 allreduce: sbuf: memory type 1: the CPU cannot access this memory"));
  munmap(forbidden, 4096);
}

}  // namespace
}  // namespace plugfest::sharp_coll
