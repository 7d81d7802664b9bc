// FL, MR and TH rules about the memory and the context of a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "conformance/net/script/flow.h"

namespace plugfest::conformance {

namespace {

constexpr int kCuda = 2;  // NCCL_PTR_CUDA

// Base of rules about GPU memory. Its ranks open the CUDA driver before they load the plugin, as NCCL does.
class GpuRule : public MessageRule {
 protected:
  /// The endpoint of rank 0 or 1. Errors: `Skipped` without a GPU; `NotApplicable` if the plugin takes no GPU memory.
  Endpoint gpu_endpoint(std::size_t number) {
    Endpoint endpoint = this->endpoint(number, 1 - number, {.gpu = true});
    const control::GpuFacts gpu = endpoint.rank.gpu(true);
    if (!gpu.problem.empty()) skip(fmt::format("needs a CUDA GPU: {}", gpu.problem));
    if (!has_cuda_bit(endpoint)) not_applicable("ptrSupport has no CUDA bit: NCCL registers no GPU memory");
    if (number == 0) observe(fmt::format("GPU: {}", gpu.name));
    return endpoint;
  }
  /// A flow whose buffers are GPU memory.
  Flow gpu_flow(std::size_t slots, std::size_t slot_size) {
    const Endpoint from = gpu_endpoint(0), to = gpu_endpoint(1);
    return gpu_flow(from, to, slots, slot_size);
  }
  Flow gpu_flow(const Endpoint& from, const Endpoint& to, std::size_t slots, std::size_t slot_size) {
    return {traffic(), random(), from, to, connect(from, to), slots, slot_size, Placement::kGpu};
  }
  void flush(Flow& flow, const std::vector<Part>& parts) {
    const PointerOutcome outcome = flow.recv_comm().try_iflush(parts);
    require_success(outcome);
    if (outcome.value != 0) flow.recv_comm().request(outcome.value).wait({.done = 1, .sizes = false});
  }
};

}  // namespace

RULE_ON(GpuRule, FL_01, Must, ApiRange::all(),  //
        .title = "iflush makes received data visible to the GPU",
        .text = "When iflush stores NULL, or its request is done, the GPU reads what the receive delivered.",
        .source = "transport/net.cc: second phase of recvProxyProgress",
        .why = "If iflush completes too early, the GPU reads old bytes, and no error is reported.",
        .check =
            "Receives messages of 1 byte to 64 KiB into GPU memory. After each flush, the GPU's copy of the memory "
            "must hold the message.",
        .blind = "Writes that reach the GPU between the flush and the copy, and kernels that run in between.",
        .gpu = true) {
  const std::size_t sizes[] = {1, 8, 4095, 65536, 3000, 512, 65535, 17};
  Flow flow = gpu_flow(std::size(sizes), 65536);
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    flow.receive(i, sizes[i]);
    flow.send(i, sizes[i]);
    traffic().finish();
    flush(flow, {{flow.target(i, sizes[i]), 0}});
    flow.check(i);
  }
}

RULE_ON(GpuRule, FL_03, Must, ApiRange::all(),  //
        .title = "iflush accepts groups with empty messages",
        .text = "iflush gets the sizes of all buffers of a group, of which some may be 0.",
        .source = "transport/net.cc: second phase of recvProxyProgress",
        .why = "An error ends the communicator; a flush of the wrong buffer leaves old bytes.",
        .check =
            "Receives groups into GPU memory in which the first, the last or every second message is empty, and "
            "flushes all parts of each group.",
        .blind = "Writes that reach the GPU between the flush and the copy.", .gpu = true) {
  Flow flow = gpu_flow(64, 3000);
  const std::size_t width = std::min<std::size_t>(widest_group(), 4);
  const std::vector<int> tags = tags_from(0, width);
  for (std::size_t round = 0; round < 3; ++round) {
    const auto is_empty = [&](std::size_t i) { return round == 0 ? i == 0 : round == 1 ? i + 1 == width : i % 2 == 0; };
    const std::size_t first = round * width;
    flow.receive_group(first, tags);
    std::vector<Part> parts;
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t size = is_empty(i) ? 0 : Flow::kWhole;
      flow.send(first + i, size, tags[i]);
      parts.push_back({flow.target(first + i, size), tags[i]});
    }
    traffic().finish();
    flush(flow, parts);
    flow.check();
  }
}

RULE_ON(
    GpuRule, FL_05, Must, ApiRange::all(),  //
    .title = "iflush does not change data",
    .text = "The memory of a receive holds the same bytes before and after iflush.",
    .source = "transport/net_ib.cc reads one word by RDMA",
    .why = "A flush that writes corrupts the message that it should make visible.",
    .check =
        "Receives a message into the middle of GPU memory, and flushes it twice. Between the flushes, no byte of the "
        "memory may change.",
    .blind = "Writes that restore the old bytes.", .gpu = true) {
  Flow flow = gpu_flow(3, 3000);
  flow.receive(1);
  flow.send(1);
  traffic().finish();
  flush(flow, {{flow.target(1), 0}});
  const std::vector<std::byte> before = flow.receiver().read(flow.to().memory);
  flush(flow, {{flow.target(1), 0}});
  const std::vector<std::byte> after = flow.receiver().read(flow.to().memory);
  const auto changed = std::mismatch(before.begin(), before.end(), after.begin()).first;
  expect(changed == before.end(), [&] {
    return fmt::format("iflush changed byte {} of the registered memory; the message has bytes 3000 to 5999",
                       changed - before.begin());
  });
}

RULE_ON(GpuRule, MR_02, Must, ApiRange::all(),  //
        .title = "GPU memory registers and has a handle",
        .text =
            "With the CUDA bit, regMr accepts memory of cudaMalloc, and whole pages of it. [S] for parts of pages, and "
            "for storing a handle other than NULL.",
        .source = "transport/net.cc: netRegisterBuffer takes NULL as failure; register.cc: NCCL registers whole pages",
        .why = "Without GPU memory NCCL copies every message through host memory, or fails to connect.",
        .check =
            "Registers 1 MiB of GPU memory and parts of it, with and without page alignment, at both endpoints of a "
            "connection. Each call must succeed, and should store a handle other than NULL.",
        .blind = "Memory of cuMem, and memory of several GPUs.", .gpu = true) {
  constexpr std::size_t kSize = std::size_t{1} << 20;
  using Part = std::pair<std::size_t, std::size_t>;  // offset and size
  const auto check = [&](Rank rank, const Comm& comm, std::initializer_list<Part> parts) {
    const Memory memory = rank.allocate(kSize, Placement::kGpu);
    for (const auto& [offset, size] : parts) {
      const Slice part = memory.sub(offset, size);
      const PointerOutcome outcome = comm.try_reg(part, kCuda);
      require_success(outcome);
      should(outcome.value != 0, [&] {
        return fmt::format(
            "regMr of {} bytes of GPU memory succeeded and stored NULL, so NCCL does not use the user's buffer",
            part.size);
      });
      comm.registration(part, outcome.value).dereg();
    }
  };
  const auto check_both = [&](std::initializer_list<Part> parts) {
    const Endpoint from = gpu_endpoint(0), to = gpu_endpoint(1);
    const Connection connection = connect(from, to);
    check(from.rank, connection.send, parts);
    check(to.rank, connection.receive, parts);
  };
  check_both({{0, kSize}, {4096, 65536}});
  probe([&] { check_both({{4113, 65537}, {kSize - 1, 1}}); });
}

RULE_ON(GpuRule, TH_05, Should, ApiRange::all(),  //
        .title = "calls keep the thread's CUDA context",
        .text = "The current CUDA device and context of the calling thread are the same after each call.",
        .source = "proxy.cc: the progress thread sets its device once",
        .why = "If a call changes the context, NCCL's next CUDA call uses another GPU.",
        .check =
            "Enters the GPU's context on the service thread and the progress thread of both ranks. After a connection, "
            "registrations, a message and the close functions, each thread must still be in that context.",
        .blind = "Calls that change the context and restore it before they return.", .gpu = true) {
  Endpoint ends[] = {gpu_endpoint(0), gpu_endpoint(1)};
  const auto context_of = [](const Endpoint& end, const char* thread, bool enter) {
    return end.rank.on(thread).gpu(enter).context;
  };
  const char* const threads[] = {"svc", "prog"};
  for (const Endpoint& end : ends)
    for (const char* const thread : threads) context_of(end, thread, true);
  {
    Flow flow = gpu_flow(ends[0], ends[1], 1, 3000);
    flow.receive(0);
    flow.send(0);
    traffic().finish();
    flush(flow, {{flow.target(0), 0}});
    flow.check();
    flow.connection().send.on("").close();
    flow.connection().receive.on("").close();
  }
  for (const Endpoint& end : ends) {
    const std::uint64_t expected = context_of(end, "memory", true);
    for (const char* const thread : threads) {
      const std::uint64_t context = context_of(end, thread, false);
      expect(context == expected, [&] {
        return fmt::format("rank {}: after the calls, thread {} is in {} instead of the GPU's context", end.rank.name(),
                           thread, context == 0 ? "no CUDA context" : "another CUDA context");
      });
    }
  }
}

}  // namespace plugfest::conformance
