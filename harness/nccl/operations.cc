#include "harness/nccl/operations.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl {
namespace {

constexpr unsigned char kUntouched = 0xa5;
constexpr int kBytes = static_cast<int>(device::Type::kUint8);
constexpr int kFloats = static_cast<int>(device::Type::kFloat);
// How often a waiting rank asks NCCL for errors.
constexpr std::chrono::milliseconds kErrorInterval{1};

// The address by which the CPU accesses device memory.
template <typename Byte>
Byte* accessible(Byte* device) {
  return static_cast<Byte*>(const_cast<void*>(::plugfest_cuda_accessible(device)));
}

// Device memory.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    if (::cudaMalloc(&data_, bytes) != cuda::kSuccess) throw NcclError{1, "out of memory"};
  }
  ~Buffer() { ::cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* at(std::size_t offset = 0) const { return static_cast<std::byte*>(data_) + offset; }
  void reset() const { ::cudaMemset(data_, kUntouched, bytes_); }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

class Stream {
 public:
  Stream() { ::cudaStreamCreateWithFlags(&stream_, 1); }
  ~Stream() { ::cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

void check(const Api& api, int code, const char* function) {
  if (code == kOk || code == kInProgress) return;
  throw NcclError{code, fmt::format("{}: {}", function, api.GetErrorString(code))};
}

// Waits for the stream, for an error that NCCL reports, or for the command to abort.
void finish(const Member& member, const Stream& stream) {
  for (;;) {
    const bool idle = cuda::wait_for_stream(stream.get(), kErrorInterval);
    state_of(member);
    if (idle) return;
    require_no_abort(member);
  }
}

// A buffer, a stream and a pattern of bytes.
struct OneWay {
  OneWay(std::size_t bytes, std::uint64_t seed) : pattern(seed, device::Type::kUint8, RedOp::kSum, 2), buffer(bytes) {
    buffer.reset();
  }
  const Pattern pattern;
  const Buffer buffer;
  const Stream stream;
};

// Runs `part` on `data`, which stays if a kernel may still use it: see measure().
template <typename Data, typename Part>
auto keep_on_error(std::unique_ptr<Data> data, const Part& part) {
  try {
    return part(*data);
  } catch (const NcclError& error) {
    if (error.code == kInvalidUsage) throw;  // NCCL has refused the call
    // The stream waits for a kernel that ends when the caller aborts the communicator; so do cudaFree and
    // cudaStreamDestroy.
    data.release();
    throw;
  }
}

// Numbers of elements of a measurement.
struct Shape {
  Shape(const Measurement& wanted, std::size_t ranks)
      : element(device::size_of(wanted.type)),
        count(wanted.bytes / element / (divides_size(wanted.operation) ? ranks : 1)),
        send(wanted.operation == Operation::kReduceScatter || wanted.operation == Operation::kAllToAll ? count * ranks
                                                                                                       : count),
        receive(wanted.operation == Operation::kAllGather || wanted.operation == Operation::kAllToAll ? count * ranks
                                                                                                      : count) {}
  const std::size_t element;  // bytes of one
  const std::size_t count;    // as NCCL's calls take it
  const std::size_t send, receive;
};

// One measurement on one rank.
class MeasuredRun {
 public:
  MeasuredRun(const Member& member, const Measurement& wanted)
      : member_(member),
        api_(*member.api),
        comm_(member.comm),
        rank_(static_cast<std::size_t>(member.rank)),
        ranks_(static_cast<std::size_t>(member.ranks)),
        wanted_(wanted),
        shape_(wanted, ranks_),
        pattern_(wanted.seed, wanted.type, reduces(wanted.operation) ? wanted.redop : RedOp::kSum, member.ranks),
        send_(shape_.send * shape_.element),
        receive_(shape_.receive * shape_.element),
        both_(std::max(shape_.send, shape_.receive) * shape_.element) {}

  Outcome go() {
    Outcome outcome{.count = shape_.count};
    pattern_.fill(accessible(send_.at()), static_cast<int>(rank_), 0, shape_.send);
    receive_.reset();
    outcome.out_of_place.seconds = time(send_.at(), receive_.at());
    outcome.out_of_place.wrong = count(outcome, "output", compare(receive_.at()));
    outcome.out_of_place.wrong +=
        count(outcome, "input after the operation",
              pattern_.compare(accessible(send_.at()), static_cast<int>(rank_), 0, shape_.send));
    if (!has_in_place(wanted_.operation)) return outcome;

    const std::size_t own = rank_ * shape_.count * shape_.element;
    std::byte* const input = both_.at(wanted_.operation == Operation::kAllGather ? own : 0);
    std::byte* const output = both_.at(wanted_.operation == Operation::kReduceScatter ? own : 0);
    Timing timing;
    both_.reset();
    timing.seconds = time(input, output);
    // The operations have overwritten their own input.
    both_.reset();
    pattern_.fill(accessible(input), static_cast<int>(rank_), 0, shape_.send);
    call(input, output);
    finish();
    timing.wrong = count(outcome, "output in place", compare(output));
    outcome.in_place = timing;
    return outcome;
  }

 private:
  std::size_t root() const { return static_cast<std::size_t>(wanted_.root); }

  void check(int code, const char* function) const { nccl::check(api_, code, function); }
  void finish() const { nccl::finish(member_, stream_); }

  // Returns once all ranks have entered it, and the stream is idle.
  void barrier() const {
    // Switches reduce no bytes, and with NCCL_ALGO=collnetchain NCCL has no other algorithm.
    const char* const coll_net = std::getenv("NCCL_COLLNET_ENABLE");
    const int type = coll_net != nullptr && coll_net == std::string_view("1") ? kFloats : kBytes;
    check(api_.AllReduce(word_.at(), word_.at(), 1, type, 0, comm_, stream_.get()), "ncclAllReduce");
    finish();
  }

  double time(const std::byte* input, std::byte* output) const {
    for (int i = 0; i < wanted_.warmups; ++i) call(input, output);
    finish();  // an operation without stand-in ends the process here, before NCCL checks the barrier's AllReduce
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < wanted_.iterations; ++i) call(input, output);
    finish();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count() / wanted_.iterations;
  }

  void call(const std::byte* input, std::byte* output) const {
    const auto pieces = static_cast<std::size_t>(wanted_.pieces);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t first = shape_.count * piece / pieces, end = shape_.count * (piece + 1) / pieces;
      call(input + first * shape_.element, output + first * shape_.element, end - first);
    }
  }

  void call(const std::byte* input, std::byte* output, std::size_t count) const {
    const int type = static_cast<int>(wanted_.type), op = static_cast<int>(wanted_.redop);
    switch (wanted_.operation) {
      case Operation::kAllReduce:
        return check(api_.AllReduce(input, output, count, type, op, comm_, stream_.get()), "ncclAllReduce");
      case Operation::kAllGather:
        return check(api_.AllGather(input, output, count, type, comm_, stream_.get()), "ncclAllGather");
      case Operation::kReduceScatter:
        return check(api_.ReduceScatter(input, output, count, type, op, comm_, stream_.get()), "ncclReduceScatter");
      case Operation::kBroadcast:
        return check(api_.Broadcast(input, output, count, type, wanted_.root, comm_, stream_.get()), "ncclBroadcast");
      case Operation::kReduce:
        return check(api_.Reduce(input, output, count, type, op, wanted_.root, comm_, stream_.get()), "ncclReduce");
      case Operation::kAllToAll:
        check(api_.GroupStart(), "ncclGroupStart");
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
          const std::size_t offset = peer * count * shape_.element;
          check(api_.Send(input + offset, count, type, static_cast<int>(peer), comm_, stream_.get()), "ncclSend");
          check(api_.Recv(output + offset, count, type, static_cast<int>(peer), comm_, stream_.get()), "ncclRecv");
        }
        return check(api_.GroupEnd(), "ncclGroupEnd");
      case Operation::kSendRecv:
        check(api_.GroupStart(), "ncclGroupStart");
        check(api_.Send(input, count, type, static_cast<int>((rank_ + 1) % ranks_), comm_, stream_.get()), "ncclSend");
        check(api_.Recv(output, count, type, static_cast<int>((rank_ + ranks_ - 1) % ranks_), comm_, stream_.get()),
              "ncclRecv");
        return check(api_.GroupEnd(), "ncclGroupEnd");
    }
  }

  // Returns the number of wrong elements of a buffer, and keeps the first one of the measurement.
  static std::size_t count(Outcome& outcome, const char* buffer, const Differences& differences) {
    if (outcome.first_wrong.empty() && differences.count > 0)
      outcome.first_wrong = fmt::format("in the {}, {}", buffer, differences.first);
    return differences.count;
  }

  Differences compare(const std::byte* device_output) const {
    const std::byte* const output = accessible(device_output);
    switch (wanted_.operation) {
      case Operation::kAllReduce:
        return pattern_.compare_sum(output, 0, shape_.count);
      case Operation::kReduceScatter:
        return pattern_.compare_sum(output, rank_ * shape_.count, shape_.count);
      case Operation::kReduce:
        return rank_ == root() ? pattern_.compare_sum(output, 0, shape_.count) : Differences{};
      case Operation::kBroadcast:
        return pattern_.compare(output, wanted_.root, 0, shape_.count);
      case Operation::kSendRecv:
        return pattern_.compare(output, static_cast<int>((rank_ + ranks_ - 1) % ranks_), 0, shape_.count);
      case Operation::kAllGather:
      case Operation::kAllToAll:
        break;
    }
    Differences all;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
      const std::size_t first = wanted_.operation == Operation::kAllToAll ? rank_ * shape_.count : 0;
      const Differences one =
          pattern_.compare(output + peer * shape_.count * shape_.element, static_cast<int>(peer), first, shape_.count);
      if (all.count == 0 && one.count > 0) all.first = fmt::format("part {}, {}", peer, one.first);
      all.count += one.count;
    }
    return all;
  }

  const Member& member_;
  const Api& api_;
  const Comm comm_;
  const std::size_t rank_, ranks_;
  const Measurement wanted_;
  const Shape shape_;
  const Pattern pattern_;
  const Buffer send_, receive_, both_;
  const Buffer word_{sizeof(float)};
  const Stream stream_;
};

}  // namespace

int state_of(const Member& member) {
  int state = kOk;
  check(*member.api, member.api->CommGetAsyncError(member.comm, &state), "ncclCommGetAsyncError");
  check(*member.api, state, "asynchronous error");
  return state;
}

void require_no_abort(const Member& member) {
  if (member.controller->wants_abort()) throw NcclError{kInProgress, "told to abort"};
}

void wait_until_ready(const Member& member) {
  for (; state_of(member) != kOk; std::this_thread::sleep_for(kErrorInterval)) require_no_abort(member);
}

Outcome measure(const Member& member, const Measurement& measurement) {
  return keep_on_error(std::make_unique<MeasuredRun>(member, measurement), [](MeasuredRun& run) { return run.go(); });
}

void send_bytes(const Member& member, const Send& command) {
  keep_on_error(std::make_unique<OneWay>(command.bytes, command.seed), [&](OneWay& data) {
    data.pattern.fill(data.buffer.at(), member.rank, 0, command.bytes);
    const int code =
        member.api->Send(data.buffer.at(), command.bytes, kBytes, command.peer, member.comm, data.stream.get());
    check(*member.api, code, "ncclSend");
    finish(member, data.stream);
  });
}

Differences receive_bytes(const Member& member, const Receive& command) {
  return keep_on_error(std::make_unique<OneWay>(command.bytes, command.seed), [&](OneWay& data) {
    const int code =
        member.api->Recv(data.buffer.at(), command.bytes, kBytes, command.peer, member.comm, data.stream.get());
    check(*member.api, code, "ncclRecv");
    finish(member, data.stream);
    return data.pattern.compare(data.buffer.at(), command.peer, 0, command.bytes);
  });
}

std::size_t churn(const Member& member, const Churn& command, const std::function<void()>& is_running) {
  constexpr int kRunning = 3;
  constexpr device::Type kType = device::Type::kFloat;
  struct Data {
    const Pattern pattern;
    const Buffer input, output;
    const Stream stream;
  };
  const std::size_t count = command.bytes / device::size_of(kType);
  const auto run = [&](Data& data) {
    std::size_t wrong = 0;
    data.pattern.fill(data.input.at(), member.rank, 0, count);
    for (int round = 0; round < command.rounds; ++round) {
      data.output.reset();
      const int code = member.api->AllReduce(data.input.at(), data.output.at(), count, static_cast<int>(kType), 0,
                                             member.comm, data.stream.get());
      check(*member.api, code, "ncclAllReduce");
      finish(member, data.stream);
      wrong += data.pattern.compare_sum(data.output.at(), 0, count).count;
      if (round + 1 == kRunning) is_running();
    }
    return wrong;
  };
  return keep_on_error(std::unique_ptr<Data>(new Data{Pattern(command.seed, kType, RedOp::kSum, member.ranks),
                                                      Buffer(command.bytes), Buffer(command.bytes), Stream()}),
                       run);
}

}  // namespace plugfest::nccl
