// Structures that NCCL 2.28.9 passes to its kernels. The names are this project's, the offsets are NCCL's.
// Source: src/include/device.h of that release, and the debugging information of NVIDIA's libnccl.so.2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/nccl/device/pipe.h"

namespace plugfest::nccl::device::v2_28 {

/// The version that ncclGetVersion() returns.
inline constexpr int kVersion = 22809;

struct ConnInfo {
  std::byte* buffers[3];  ///< by protocol
  void* registrations[3];
  std::uint64_t* tail;
  std::uint64_t* head;
  int flags;
  int shared;
  int step_bytes;
  void** pointer_exchange;
  std::uint64_t* argument_exchange;
  StepInfo* steps;
  std::uint64_t step;
  std::uint64_t last_cleaning;
  std::byte net_device[32];
};
static_assert(sizeof(ConnInfo) == 152 && offsetof(ConnInfo, step_bytes) == 72 && offsetof(ConnInfo, steps) == 96 &&
              offsetof(ConnInfo, step) == 104 && sizeof(StepInfo) == 24);

struct Peer {
  ConnInfo send[2];  ///< 0: collectives; 1: sends and receives, and sends of CollNet
  ConnInfo receive[2];
};
static_assert(sizeof(Peer) == 608);

struct TreeNode {
  int depth;
  int up;
  int down[3];
};

struct Channel {
  Peer** peers;  ///< of the ranks, then of CollNet's switches
  int ring_previous, ring_next;
  int* ring_ranks;
  int ring_index;
  int padding;
  TreeNode tree;
  TreeNode chain;  ///< of CollNet, among the ranks of a host
  std::byte other[272];
  std::uint32_t* work_fifo_done;
  alignas(16) std::uint64_t work_counter;
};
static_assert(sizeof(Channel) == 368 && offsetof(Channel, ring_ranks) == 16 && offsetof(Channel, tree) == 32 &&
              offsetof(Channel, chain) == 52 && offsetof(Channel, work_counter) == 352);

struct ProfilerEvents {
  struct {
    std::uint64_t counter;
    std::uint64_t timestamp_ns;
  } events[64];
};
static_assert(sizeof(ProfilerEvents) == 1024);

struct Communicator {
  int rank, ranks;
  int node, nodes;
  int buffer_bytes[3];  ///< by protocol
  int p2p_chunk_bytes;
  int all_nvlink;
  int* dense_to_user_rank;
  volatile std::uint32_t* abort_flag;
  Channel* channels;
  int* rank_to_local_rank;
  ProfilerEvents* work_started;
  ProfilerEvents* work_completed;
};
static_assert(sizeof(Communicator) == 88 && offsetof(Communicator, abort_flag) == 48);

struct CommunicatorAndChannels {
  Communicator communicator;
  alignas(16) Channel channels[64];
};
static_assert(offsetof(CommunicatorAndChannels, channels) == 96 && sizeof(CommunicatorAndChannels) == 23648);

struct KernelArguments {
  Communicator* communicator;
  std::uint64_t channel_mask;
  std::uint8_t storage;  ///< 0: the work follows the batches; else it is in `work`
  std::uint32_t work_mask;
  std::byte* work;
};
static_assert(sizeof(KernelArguments) == 32 && offsetof(KernelArguments, work) == 24);

struct Batch {
  std::uint32_t next_jump : 14, next_extends : 1, work_type : 2, function : 15;
  std::uint32_t offset_base;
  std::uint64_t offset_bits;
};
static_assert(sizeof(Batch) == 16);

/// Batch::work_type.
enum WorkType : std::uint32_t { kSendRecvWork, kCollectiveWork, kRegisteredWork };

struct alignas(16) CollectiveWork {
  std::uint32_t channel_low : 8, channel_high : 8, warps : 8;
  std::uint32_t argument_is_pointer : 1, registered : 1, net_registered : 1, one_node : 1, direct : 2,
      one_rank_per_node : 1, profiled : 1;
  std::uint32_t root;
  std::byte* output;
  const std::byte* input;
  std::uintptr_t input_offset, output_offset;
  std::uintptr_t* remote_inputs;
  std::uintptr_t* remote_outputs;
  union {
    struct {
      /// Elements on the first, on each of the middle, and on the last channel.
      std::uint64_t low, middle, high;
      /// Their chunks, in grains.
      std::uint64_t grains_low : 21, grains_middle : 21, grains_high : 21;
    } parts;
    /// CollNet.
    struct {
      std::uint64_t count;  ///< elements on all channels
      std::uint32_t chunk;  ///< elements
    } turns;
  };
  std::uint64_t argument;
};
static_assert(sizeof(CollectiveWork) == 96 && offsetof(CollectiveWork, parts) == 56 &&
              offsetof(CollectiveWork, argument) == 88);

struct alignas(16) SendRecvWork {
  std::byte* send;
  std::byte* receive;
  std::uint64_t send_bytes, receive_bytes;
  int send_rank, receive_rank;
  std::uint8_t channels, channel_base;
  std::uint8_t send_channels, receive_channels;
  std::uint8_t send_chunk, receive_chunk;  ///< encoded, see chunk_bytes()
  std::uint8_t send_lines : 1, receive_lines : 1, send_net_registered : 1, receive_net_registered : 1,
      send_registered : 1, receive_registered : 1, profiled : 1;
};
static_assert(sizeof(SendRecvWork) == 48 && offsetof(SendRecvWork, send_chunk) == 44);

}  // namespace plugfest::nccl::device::v2_28
