// The functions that the code of kernels calls. Source: harness/kernels/include/plugfest_kernel.h.
#include "harness/kernels/include/plugfest_kernel.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "harness/kernels/run/block.h"
#include "harness/kernels/run/fault.h"
#include "harness/kernels/run/grid.h"

using namespace plugfest::kernels;

namespace {

Block& current(const char* caller) {
  Block* const block = Block::current();
  if (block == nullptr)
    end_with_fault(fmt::format("{}: called outside a kernel; is a __device__ function called by the host?", caller));
  return *block;
}

}  // namespace

extern "C" {

const Index* plugfest_kernel_thread_index() { return &current("threadIdx").running().index; }
const Index* plugfest_kernel_block_index() { return &current("blockIdx").index(); }
const Index* plugfest_kernel_block_size() { return &current("blockDim").grid().launch().block; }
const Index* plugfest_kernel_grid_size() { return &current("gridDim").grid().launch().grid; }
void* plugfest_kernel_dynamic_shared() { return current("shared memory").dynamic_shared(); }
unsigned plugfest_kernel_lane() { return current("laneid").running().lane(); }

void plugfest_kernel_barrier(unsigned barrier, unsigned threads, Place place) {
  current("a barrier").barrier(barrier, threads, place);
}

std::uint32_t plugfest_kernel_exchange(std::uint32_t mask, std::uint64_t value, std::uint64_t* all, Place place) {
  return current("a function of warps").exchange(mask, value, all, place);
}

void plugfest_kernel_loaded(const volatile void* address, std::size_t bytes, std::uint64_t value) {
  // The host uses cuda::atomic too.
  if (Block* const block = Block::current(); block != nullptr) block->loaded(address, bytes, value);
}

const Expected* plugfest_kernel_expect(const Expected* expected) {
  return current("a wait for other ranks").expect(expected);
}

bool plugfest_kernel_is_weak = Settings::is_weak();

// The host runs the same code.
void plugfest_kernel_before_store(void* address, std::size_t bytes) {
  if (StoreBuffer* const stores = Block::current_stores(); stores != nullptr) stores->before_store(address, bytes);
}

void plugfest_kernel_before_load(const volatile void* address, std::size_t bytes) {
  if (StoreBuffer* const stores = Block::current_stores(); stores != nullptr)
    stores->before_load(const_cast<const void*>(address), bytes);
}

// Clang calls the C library for copies of more than a few words, and --wrap of the linker makes that these functions.
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  plugfest_kernel_before_load(to, bytes);
  plugfest_kernel_before_load(from, bytes);
  return std::memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  plugfest_kernel_before_load(to, bytes);
  plugfest_kernel_before_load(from, bytes);
  return std::memmove(to, from, bytes);
}
void* __wrap_memset(void* memory, int value, std::size_t bytes) {
  plugfest_kernel_before_load(memory, bytes);
  return std::memset(memory, value, bytes);
}

void plugfest_kernel_release() {
  if (StoreBuffer* const stores = Block::current_stores(); stores != nullptr) stores->release();
}

void plugfest_kernel_post(std::uint64_t* word, std::uint64_t value) {
  HeldPuts* const puts = Block::current_puts();
  if (puts == nullptr) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return;
  }
  const Expected* const room = Block::current()->running().expected;
  const HeldPuts::Queue queue = room == nullptr ? HeldPuts::Queue() : HeldPuts::Queue(room->context, room->number);
  puts->hold(queue, word, value, std::chrono::steady_clock::now());
}

void plugfest_kernel_yield() { current("a yield").yield(); }

void plugfest_kernel_fault(const char* reason, Place place) { current(reason).fault(reason, place); }
}
