// Runs a launch of an NCCL kernel: reads the work of its channels and moves their data through pipes.
#include "harness/nccl/device/kernel.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <utility>

#include "fabric/system/number.h"
#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/device/layout_2_28.h"

namespace plugfest::nccl::device {
namespace {

// The only line that names the version.
namespace layout = v2_28;
using cuda::accessible;
using namespace std::chrono_literals;

// A chunk size in 8 bits: 5 bits of exponent, 3 bits of mantissa.
std::size_t chunk_bytes(std::uint8_t code) {
  const unsigned exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? mantissa : std::size_t{8 + mantissa} << (exponent - 1);
}

// Bytes in which NCCL counts the chunks of a protocol.
std::size_t grain_bytes(Protocol protocol) { return protocol == Protocol::kSimple ? 512 : 16; }

// The number of the part of a transfer that channel `channel` does. The number of channels is a power of two.
unsigned part_number(const layout::SendRecvWork& work, unsigned channel) {
  return (channel - work.channel_base) & (work.channels - 1u);
}

// First byte and size of part `part` of `parts`.
std::pair<std::size_t, std::size_t> bounds(std::size_t parts, std::size_t part, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t size = round_up(divide_up(bytes, parts), kPage);
  const std::size_t begin = std::min(part * size, bytes);
  return {begin, std::min(begin + size, bytes) - begin};
}

Connection connection_of(layout::ConnInfo& info) {
  const auto buffer = [&](Protocol protocol) { return accessible(info.buffers[static_cast<std::size_t>(protocol)]); };
  return {.simple_buffer = buffer(Protocol::kSimple),
          .line_buffer = reinterpret_cast<Line*>(buffer(Protocol::kLowLatency)),
          .tail = accessible(info.tail),
          .head = accessible(info.head),
          .steps = accessible(info.steps),
          .step_bytes = static_cast<std::size_t>(info.step_bytes),
          .saved_step = &info.step};
}

// The work of one channel.
class ChannelRun {
 public:
  ChannelRun(const FunctionTable& functions, const std::byte* arguments, unsigned channel, unsigned first_batch)
      : functions_(functions),
        arguments_(arguments),
        communicator_(*accessible(header().communicator)),
        number_(channel),
        channel_(
            reinterpret_cast<layout::CommunicatorAndChannels*>(accessible(header().communicator))->channels[channel]) {
    load_batch(first_batch);
  }

  bool done() const { return done_; }

  // Does the work that is possible now; false if there was none.
  bool advance() {
    bool progress = false;
    for (;;) {
      for (const auto& pipe : pipes_) progress |= pipe->advance();
      std::erase_if(pipes_, [](const auto& pipe) { return pipe->done(); });
      if (!pipes_.empty() || done_) return progress;
      progress = true;
      if (next_work_ < addresses_.size()) {
        start_collective(read_work<layout::CollectiveWork>(next_work_++));
      } else {
        record(communicator_.work_completed);
        channel_.work_counter += addresses_.size();
        if (next_batch_ == 0)
          done_ = true;
        else
          load_batch(next_batch_);
      }
    }
  }

 private:
  const layout::KernelArguments& header() const {
    return *reinterpret_cast<const layout::KernelArguments*>(arguments_);
  }

  void load_batch(unsigned index) {
    const auto* const batches = reinterpret_cast<const layout::Batch*>(arguments_ + sizeof(layout::KernelArguments));
    addresses_.clear();
    for (;;) {
      const layout::Batch batch = batches[index];
      const std::size_t work_bytes =
          batch.work_type == layout::kSendRecvWork ? sizeof(layout::SendRecvWork) : sizeof(layout::CollectiveWork);
      if (batch.work_type == layout::kRegisteredWork) refuse("a collective with registered buffers: no stand-in");
      for (std::uint64_t bits = batch.offset_bits; bits != 0; bits &= bits - 1)
        addresses_.push_back(batch.offset_base +
                             static_cast<std::uint32_t>(std::countr_zero(bits) * static_cast<int>(work_bytes)));
      if (batch.next_extends == 0) {
        next_batch_ = batch.next_jump == 0 ? 0 : index + batch.next_jump;
        const auto function = functions_.find(batch.function);
        if (!function) refuse(fmt::format("device function {}: NCCL has no such function", batch.function));
        function_ = *function;
        send_receive_ = batch.work_type == layout::kSendRecvWork;
        break;
      }
      index += batch.next_jump;
    }
    next_work_ = 0;
    record(communicator_.work_started);
    if (!send_receive_) return;
    // All transfers of a batch run at the same time: a peer may wait for any of them.
    for (; next_work_ < addresses_.size(); ++next_work_)
      start_send_receive(read_work<layout::SendRecvWork>(next_work_));
  }

  template <typename Work>
  Work read_work(std::size_t index) const {
    Work work;
    constexpr std::size_t kPack = 16;  // the fifo wraps between packs
    for (std::size_t at = 0; at < sizeof(work); at += kPack) {
      const std::uint32_t offset = addresses_[index] + static_cast<std::uint32_t>(at);
      const std::byte* const from =
          header().storage == 0 ? arguments_ + offset : accessible(header().work) + (offset & header().work_mask);
      std::memcpy(reinterpret_cast<std::byte*>(&work) + at, from, kPack);
    }
    return work;
  }

  // Writes the events of a profiler plugin.
  void record(layout::ProfilerEvents* of_channels) {
    layout::ProfilerEvents* const events = accessible(of_channels);
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
      const bool wanted = send_receive_ ? read_work<layout::SendRecvWork>(i).profiled != 0
                                        : read_work<layout::CollectiveWork>(i).profiled != 0;
      if (!wanted) continue;
      const std::uint64_t counter = channel_.work_counter + 1 + i;
      auto& event = events[number_].events[counter % 64];
      event.timestamp_ns = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / 1ns);
      __atomic_store_n(&event.counter, counter, __ATOMIC_RELEASE);
    }
  }

  void add_pipe(const Cut& cut, const Reduction& reduction, std::vector<Connection> receive,
                std::vector<Connection> send, const std::byte* input, std::byte* output, std::vector<Move> moves) {
    pipes_.push_back(
        std::make_unique<Pipe>(cut, reduction, std::move(receive), std::move(send), input, output, std::move(moves)));
  }

  std::size_t step_bytes(Protocol protocol) const {
    return static_cast<std::size_t>(communicator_.buffer_bytes[static_cast<std::size_t>(protocol)]) / kSteps;
  }

  // This channel's part of a collective, but for its buffers.
  Part part_of(const layout::CollectiveWork& work) const {
    Part part{.function = function_,
              .rank = communicator_.rank,
              .ranks = communicator_.ranks,
              .channel = number_ - work.channel_low,
              .channels = work.channel_high - work.channel_low + 1u,
              .root = static_cast<int>(work.root)};
    if (function_.algorithm == Algorithm::kCollNetChain) {
      part.count = part.size = work.turns.count;
      part.chunk = work.turns.chunk;
      return part;
    }
    const auto& parts = work.parts;
    const std::size_t grain = grain_bytes(function_.protocol) / size_of(function_.type);
    const std::uint64_t middle = part.channels > 2 ? part.channels - 2 : 0;
    part.count = parts.low + parts.middle * middle + (part.channels == 1 ? 0 : parts.high);
    if (part.channel == 0) {
      part.size = parts.low;
      part.chunk = parts.grains_low * grain;
    } else if (part.channel + 1 == part.channels) {
      part.offset = parts.low + middle * parts.middle;
      part.size = parts.high;
      part.chunk = parts.grains_high * grain;
    } else {
      part.offset = parts.low + (part.channel - 1) * parts.middle;
      part.size = parts.middle;
      part.chunk = parts.grains_middle * grain;
    }
    return part;
  }

  void start_collective(const layout::CollectiveWork& work) {
    if (!supports(function_)) refuse(fmt::format("{}: no stand-in for this kernel", function_.text()));
    if (work.registered != 0 || work.net_registered != 0)
      refuse(fmt::format("{}: no stand-in for registered buffers", function_.text()));
    const std::size_t element = size_of(function_.type);
    Part part = part_of(work);
    const std::size_t own =
        function_.collective == Collective::kAllGather ? static_cast<std::size_t>(part.rank) * part.count * element : 0;
    part.in_place = work.input == work.output + own;
    Reduction reduction{.type = function_.type, .op = function_.op, .argument = work.argument};
    if (work.argument_is_pointer != 0) {
      reduction.argument = 0;
      std::memcpy(&reduction.argument, accessible(reinterpret_cast<const void*>(work.argument)),
                  function_.op == Operator::kSumThenDivide ? sizeof(reduction.argument) : element);
    }
    Cut cut = cut_of(function_);
    cut.step_bytes = step_bytes(function_.protocol);
    const layout::TreeNode& node = function_.algorithm == Algorithm::kCollNetChain ? channel_.chain : channel_.tree;
    Tree tree{.up = node.up, .down = {}};
    for (const int child : node.down)
      if (child >= 0) tree.down.push_back(child);
    const Ring ring{.index = channel_.ring_index,
                    .previous = channel_.ring_previous,
                    .next = channel_.ring_next,
                    .ranks = accessible(channel_.ring_ranks)};
    for (Lane& lane : plan(part, ring, tree)) {
      std::vector<Connection> receive, send;
      for (const int peer : lane.receive) receive.push_back(connection_of(peer_of(peer).receive[lane.connection]));
      for (const int peer : lane.send) send.push_back(connection_of(peer_of(peer).send[lane.connection]));
      add_pipe(cut, reduction, std::move(receive), std::move(send), accessible(work.input), accessible(work.output),
               std::move(lane.moves));
    }
  }

  layout::Peer& peer_of(int rank) const { return *accessible(accessible(channel_.peers)[rank]); }

  static std::vector<Move> transfer(bool send, std::size_t bytes, std::size_t chunk) {
    std::vector<Move> moves;
    std::size_t done = 0;
    do {
      Move move{.receive = !send, .send = send, .read_input = send, .write_output = !send, .from = done, .to = done};
      move.count = std::min(chunk, bytes - done);
      done += move.count;
      moves.push_back(move);
    } while (done < bytes);
    return moves;
  }

  void start_send_receive(const layout::SendRecvWork& work) {
    if (work.send_net_registered != 0 || work.receive_net_registered != 0 || work.send_registered != 0 ||
        work.receive_registered != 0)
      refuse("SendRecv: no stand-in for registered buffers");
    const unsigned part = part_number(work, number_);
    std::byte* const source = accessible(work.send);
    std::byte* const target = accessible(work.receive);
    const auto side = [&](bool send, unsigned parts, std::size_t bytes, bool lines, std::uint8_t chunk) {
      if (part >= parts) return;
      const auto [begin, size] = bounds(parts, part, bytes);
      if (work.send_rank == communicator_.rank) {
        if (send && source != target) std::memcpy(target + begin, source + begin, size);
        return;
      }
      const Protocol protocol = lines ? Protocol::kLowLatency : Protocol::kSimple;
      const Cut cut{
          .protocol = protocol,
          .step_bytes = lines ? step_bytes(protocol) : static_cast<std::size_t>(communicator_.p2p_chunk_bytes)};
      layout::Peer& peer = peer_of(send ? work.send_rank : work.receive_rank);
      std::vector<Connection> from, to;
      (send ? to : from).push_back(connection_of(send ? peer.send[1] : peer.receive[1]));
      add_pipe(cut, {}, std::move(from), std::move(to), send ? source + begin : nullptr,
               send ? nullptr : target + begin, transfer(send, size, chunk_bytes(chunk)));
    };
    side(true, work.send_channels, work.send_bytes, work.send_lines != 0, work.send_chunk);
    side(false, work.receive_channels, work.receive_bytes, work.receive_lines != 0, work.receive_chunk);
  }

  const FunctionTable& functions_;
  const std::byte* const arguments_;
  const layout::Communicator& communicator_;
  const unsigned number_;
  layout::Channel& channel_;

  // The batch in progress.
  Function function_;
  bool send_receive_ = false;
  std::vector<std::uint32_t> addresses_;  // of its works, in the arguments or the fifo
  std::size_t next_work_ = 0;
  unsigned next_batch_ = 0;
  std::vector<std::unique_ptr<Pipe>> pipes_;
  bool done_ = false;
};

}  // namespace

void run_kernel(const FunctionTable& functions, std::span<const std::byte> arguments) {
  const auto& header = *reinterpret_cast<const layout::KernelArguments*>(arguments.data());
  std::vector<std::unique_ptr<ChannelRun>> channels;
  for (std::uint64_t mask = header.channel_mask; mask != 0; mask &= mask - 1)
    channels.push_back(std::make_unique<ChannelRun>(functions, arguments.data(),
                                                    static_cast<unsigned>(std::countr_zero(mask)),
                                                    static_cast<unsigned>(channels.size())));
  int idle_rounds = 0;
  while (!channels.empty()) {
    bool progress = false;
    for (const auto& channel : channels) progress |= channel->advance();
    std::erase_if(channels, [](const auto& channel) { return channel->done(); });
    if (progress) {
      idle_rounds = 0;
      continue;
    }
    if (*accessible(accessible(header.communicator)->abort_flag) != 0) return;
    // Leaves the processors to the proxies, on which this kernel waits.
    constexpr int kBusyRounds = 100;
    if (++idle_rounds < kBusyRounds) {
      ::sched_yield();
    } else {
      constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 20'000};
      ::nanosleep(&kPause, nullptr);
    }
  }
}

}  // namespace plugfest::nccl::device
