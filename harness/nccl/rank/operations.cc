#include "harness/nccl/rank/operations.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/cuda/stream.h"

namespace plugfest::nccl {
namespace {

constexpr unsigned char kUntouched = 0xa5;
/// How often a waiting rank asks NCCL for errors.
constexpr std::chrono::milliseconds kErrorInterval{1};

/// The address by which the CPU accesses device memory.
template <class Byte>
Byte* accessible(Byte* device) {
  return static_cast<Byte*>(const_cast<void*>(::plugfest_cuda_accessible(device)));
}

/// Device memory.
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

/// One measurement on one rank.
class Run {
 public:
  Run(const Api& api, Comm comm, int rank, int ranks, const Measurement& wanted)
      : api_(api),
        comm_(comm),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        wanted_(wanted),
        element_(device::size_of(wanted.type)),
        total_(wanted.bytes / element_),
        count_(divides_size(wanted.operation) ? total_ / ranks_ : total_),
        send_elements_(wanted.operation == Operation::kReduceScatter || wanted.operation == Operation::kAllToAll
                           ? count_ * ranks_
                           : count_),
        receive_elements_(wanted.operation == Operation::kAllGather || wanted.operation == Operation::kAllToAll
                              ? count_ * ranks_
                              : count_),
        pattern_(wanted.seed, wanted.type, reduces(wanted.operation) ? wanted.redop : RedOp::kSum, ranks),
        send_(send_elements_ * element_),
        receive_(receive_elements_ * element_),
        both_(std::max(send_elements_, receive_elements_) * element_) {}

  Outcome go() {
    Outcome outcome{.count = count_};
    pattern_.fill(accessible(send_.at()), static_cast<int>(rank_), 0, send_elements_);
    receive_.reset();
    outcome.out_of_place.microseconds = time(send_.at(), receive_.at());
    outcome.out_of_place.wrong =
        count_wrong(receive_.at()) +
        pattern_.count_wrong(accessible(send_.at()), static_cast<int>(rank_), 0, send_elements_);
    if (!has_in_place(wanted_.operation)) return outcome;

    const std::size_t own = rank_ * count_ * element_;
    std::byte* const input = both_.at(wanted_.operation == Operation::kAllGather ? own : 0);
    std::byte* const output = both_.at(wanted_.operation == Operation::kReduceScatter ? own : 0);
    Timing timing;
    both_.reset();
    timing.microseconds = time(input, output);
    // The operations have overwritten their own input.
    both_.reset();
    pattern_.fill(accessible(input), static_cast<int>(rank_), 0, send_elements_);
    call(input, output);
    finish();
    timing.wrong = count_wrong(output);
    outcome.in_place = timing;
    return outcome;
  }

 private:
  std::size_t root() const { return static_cast<std::size_t>(wanted_.root); }

  void check(int code, const char* function) const {
    if (code == kOk || code == kInProgress) return;
    throw NcclError{code, fmt::format("{}: {}", function, api_.GetErrorString(code))};
  }

  /// Waits for the stream, or for an error that NCCL reports meanwhile.
  void finish() const {
    for (;;) {
      const bool idle = cuda::wait_for_stream(stream_.get(), kErrorInterval);
      int error = kOk;
      check(api_.CommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
      check(error, "asynchronous error");
      if (idle) return;
    }
  }

  /// Returns once all ranks have entered it, and the stream is idle.
  void barrier() const {
    check(api_.AllReduce(word_.at(), word_.at(), 1, static_cast<int>(device::Type::kUint8), 0, comm_, stream_.get()),
          "ncclAllReduce");
    finish();
  }

  double time(const std::byte* input, std::byte* output) const {
    for (int i = 0; i < wanted_.warmups; ++i) call(input, output);
    finish();  // an operation without stand-in ends the process here, before NCCL judges the barrier's AllReduce
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < wanted_.iterations; ++i) call(input, output);
    finish();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count() / wanted_.iterations;
  }

  void call(const std::byte* input, std::byte* output) const {
    const int type = static_cast<int>(wanted_.type), op = static_cast<int>(wanted_.redop);
    switch (wanted_.operation) {
      case Operation::kAllReduce:
        return check(api_.AllReduce(input, output, count_, type, op, comm_, stream_.get()), "ncclAllReduce");
      case Operation::kAllGather:
        return check(api_.AllGather(input, output, count_, type, comm_, stream_.get()), "ncclAllGather");
      case Operation::kReduceScatter:
        return check(api_.ReduceScatter(input, output, count_, type, op, comm_, stream_.get()), "ncclReduceScatter");
      case Operation::kBroadcast:
        return check(api_.Broadcast(input, output, count_, type, wanted_.root, comm_, stream_.get()), "ncclBroadcast");
      case Operation::kReduce:
        return check(api_.Reduce(input, output, count_, type, op, wanted_.root, comm_, stream_.get()), "ncclReduce");
      case Operation::kAllToAll:
        check(api_.GroupStart(), "ncclGroupStart");
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
          const std::size_t offset = peer * count_ * element_;
          check(api_.Send(input + offset, count_, type, static_cast<int>(peer), comm_, stream_.get()), "ncclSend");
          check(api_.Recv(output + offset, count_, type, static_cast<int>(peer), comm_, stream_.get()), "ncclRecv");
        }
        return check(api_.GroupEnd(), "ncclGroupEnd");
      case Operation::kSendRecv:
        check(api_.GroupStart(), "ncclGroupStart");
        check(api_.Send(input, count_, type, static_cast<int>((rank_ + 1) % ranks_), comm_, stream_.get()), "ncclSend");
        check(api_.Recv(output, count_, type, static_cast<int>((rank_ + ranks_ - 1) % ranks_), comm_, stream_.get()),
              "ncclRecv");
        return check(api_.GroupEnd(), "ncclGroupEnd");
    }
  }

  std::size_t count_wrong(const std::byte* device_output) const {
    const std::byte* const output = accessible(device_output);
    std::size_t wrong = 0;
    switch (wanted_.operation) {
      case Operation::kAllReduce:
        return pattern_.count_wrong_sum(output, 0, count_);
      case Operation::kReduceScatter:
        return pattern_.count_wrong_sum(output, rank_ * count_, count_);
      case Operation::kReduce:
        return rank_ == root() ? pattern_.count_wrong_sum(output, 0, count_) : 0;
      case Operation::kBroadcast:
        return pattern_.count_wrong(output, wanted_.root, 0, count_);
      case Operation::kSendRecv:
        return pattern_.count_wrong(output, static_cast<int>((rank_ + ranks_ - 1) % ranks_), 0, count_);
      case Operation::kAllGather:
      case Operation::kAllToAll:
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
          const std::size_t first = wanted_.operation == Operation::kAllToAll ? rank_ * count_ : 0;
          wrong += pattern_.count_wrong(output + peer * count_ * element_, static_cast<int>(peer), first, count_);
        }
        return wrong;
    }
    return wrong;
  }

  const Api& api_;
  const Comm comm_;
  const std::size_t rank_, ranks_;
  const Measurement wanted_;
  const std::size_t element_;
  const std::size_t total_;
  const std::size_t count_;
  const std::size_t send_elements_, receive_elements_;
  const Pattern pattern_;
  const Buffer send_, receive_, both_;
  const Buffer word_{1};
  const Stream stream_;
};

}  // namespace

Outcome measure(const Api& api, Comm comm, int rank, int ranks, const Measurement& measurement) {
  auto run = std::make_unique<Run>(api, comm, rank, ranks, measurement);
  try {
    return run->go();
  } catch (const NcclError&) {
    // The stream waits for a kernel that ends when the caller aborts the communicator; so do cudaFree and
    // cudaStreamDestroy. The buffers stay.
    run.release();
    throw;
  }
}

}  // namespace plugfest::nccl
