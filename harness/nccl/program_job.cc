#include "harness/nccl/program_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "fabric/netns/fabric.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "harness/kernels/run/fault.h"
#include "harness/kernels/run/grid.h"
#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/cuda/refuse.h"

namespace plugfest::nccl {

void LineSplitter::add(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte != '\n') part_ += byte;
    if (byte != '\n' && part_.size() < kMaxLine) continue;
    line_(part_);
    part_.clear();
  }
}

void LineSplitter::finish() {
  if (part_.empty()) return;
  line_(part_);
  part_.clear();
}

namespace {

// The port that torchrun uses. Each job has its own networks, so the port is free.
constexpr const char* kMasterPort = "29500";
// Time that the other ranks may run after a rank has failed. NCCL and a program need it to report the failure.
constexpr Nanoseconds kGraceNs = 10'000'000'000;

// The distance between the seeds of two successive ranks; a kernel has fewer blocks.
constexpr std::uint64_t kSeedStep = std::uint64_t{1} << 32;

// The value of LD_PRELOAD: from `environment` or the user, then `libraries`.
std::string preloads(const control::Environment& environment, const std::string& libraries) {
  const char* const inherited = std::getenv("LD_PRELOAD");
  std::string others = inherited == nullptr ? "" : inherited;
  for (const auto& [name, value] : environment)
    if (name == "LD_PRELOAD") others = value.value_or("");
  return others + (others.empty() ? "" : ":") + libraries;
}

// Whether a line of standard error says that the rank needs something that the emulation lacks; `reason` gets the text.
bool is_refusal(std::string_view line, std::string& reason) {
  if (line.starts_with(kRefusal)) {
    reason = line.substr(std::string_view(kRefusal).size());
    return true;
  }
  // The dynamic loader: "PROGRAM: symbol lookup error: PROGRAM: undefined symbol: cuMemMap".
  constexpr std::string_view kUndefined = "undefined symbol: cu";
  const std::size_t at = line.find(kUndefined);
  if (at == std::string_view::npos || line.find("symbol lookup error: ") == std::string_view::npos) return false;
  const std::string_view name = line.substr(at + kUndefined.size() - 2);
  reason = fmt::format("{}: no stand-in for this function of CUDA", name.substr(0, name.find_first_of(", ")));
  return true;
}

class Rank {
 public:
  /// `peers`: becomes kPeersFd of the rank.
  Rank(bed::TestBed& bed, const ProgramOptions& options, int number, int ranks, const Placement& placement,
       const std::string& master, const Descriptor& peers)
      : number_(number), host_(bed.fabric().graph().hosts[placement.host].name) {
    control::Environment environment =
        rank_environment(bed, options.plugin, bed.fabric().graph().hosts[placement.host], placement, !options.gpu);
    if (!options.gpu) {
      set(environment, "NCCL_LIBRARY", options.nccl);
      set(environment, "PLUGFEST_NCCL_ATTACH", "1");
      set(environment, "LD_PRELOAD", preloads(environment, "libplugfest-cuda.so:" + options.nccl));
      if (options.split_memory) set(environment, cuda::kDeviceMemoryVariable, "split");
      for (const auto& [name, value] : device_api_environment(options.device_api)) set(environment, name, value);
      set(environment, kernels::kPeersVariable, std::to_string(kPeersFd));
      if (options.weak_kernels) set(environment, kernels::kWeakVariable, "1");
      // Each rank has an order of its own.
      if (options.kernel_seed)
        set(environment, kernels::kSeedVariable,
            std::to_string(*options.kernel_seed + kSeedStep * static_cast<std::uint64_t>(number)));
    }
    for (const auto& [name, value] : options.environment) set(environment, name, value);
    const auto set_number = [&](const char* name, int value) { set(environment, name, std::to_string(value)); };
    for (const char* const name : {"RANK", "OMPI_COMM_WORLD_RANK"}) set_number(name, number);
    for (const char* const name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}) set_number(name, ranks);
    for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) set_number(name, placement.device);
    for (const char* const name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"})
      set_number(name, placement.ranks_of_host);
    set(environment, "MASTER_ADDR", master);
    set(environment, "MASTER_PORT", kMasterPort);

    log_ = make_memory_file("nccl-log");
    const Descriptor empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    std::array<Descriptor, 2> far;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      Pipe pipe = make_pipe();
      streams_[i].pipe = std::move(pipe.read_end);
      far[i] = std::move(pipe.write_end);
      if (::fcntl(streams_[i].pipe.get(), F_SETFL, O_NONBLOCK) != 0)
        throw_errno("make the output of a rank non-blocking");
      streams_[i].lines = std::make_unique<LineSplitter>([this, &options, error = i == 1](std::string_view line) {
        if (error && refusal_.empty()) is_refusal(line, refusal_);
        if (error && line.starts_with(cuda::kFault)) fault_ = line.substr(std::string_view(cuda::kFault).size());
        if (!error || !waited_for_dead_rank()) options.line(number_, error, line);
      });
    }
    netns::Command command;
    command.argv = options.argv;
    command.environment = environment;
    command.stdin_fd = empty.get();
    command.stdout_fd = far[0].get();
    command.stderr_fd = far[1].get();
    command.descriptors = {{log_.get(), kLogFd}, {peers.get(), kPeersFd}};
    command.new_process_group = true;  // Ctrl-C must reach the controller only
    command.host_name = host_;
    process_ = bed.fabric().spawn(host_, command);
    end_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
    if (!end_) {
      const int error = errno;
      kill();
      throw_errno("watch the process of a rank", error);
    }
  }
  ~Rank() { kill(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  bool running() const { return process_ >= 0; }
  const std::string& failure() const { return failure_; }
  bool refused() const { return !failure_.empty() && !refusal_.empty(); }
  ProgramRank result() const {
    ProgramRank result = {host_, failure_, !fault_.empty() || others_waited_, content_of(log_.get())};
    if (waited_for_dead_rank()) result.failure.clear(), result.explained = false;
    return result;
  }

  /// Whether a signal, or a fault that is not a hang, has ended the rank: no other rank is its cause.
  bool is_dead() const { return was_killed_ || (!fault_.empty() && !hangs()); }
  /// Another rank is dead.
  void lose_peer() { lost_peer_ = true; }
  /// Whether a kernel of this rank hung after lose_peer().
  bool waited_for_dead_rank() const { return lost_peer_ && hangs(); }
  /// Adds to the failure of this rank, which is dead, that others waited for it.
  void blame(const std::vector<const Rank*>& others) {
    if (others.empty()) return;
    std::string numbers;
    for (const Rank* const other : others) numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", other->number_);
    const std::string& hang = others.front()->fault_;
    failure_ += fmt::format(", while {} of rank{} {} waited", hang.substr(0, hang.find(kernels::kHangs)),
                            others.size() == 1 ? "" : "s", numbers);
    others_waited_ = true;
  }

  // Appends the descriptors to poll. Returns the index of the one that becomes readable when the rank ends.
  std::size_t add_to(std::vector<pollfd>& waits) const {
    for (const Stream& stream : streams_) waits.push_back({stream.pipe.get(), POLLIN, 0});
    waits.push_back({running() ? end_.get() : -1, POLLIN, 0});
    return waits.size() - 1;
  }

  // Passes the rank's output on: at most 1 MiB of each stream, because a rank may write faster than lines are printed.
  void read() {
    for (Stream& stream : streams_) {
      std::array<char, 65536> buffer;
      for (int part = 0; part < 16 && stream.pipe; ++part) {
        const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        if (got == 0) stream.pipe.close();
        stream.lines->add({buffer.data(), static_cast<std::size_t>(got)});
      }
    }
  }

  // The process has ended: takes its exit code, ends the rest of its process group and reads the last output.
  void take_end() {
    const int status = await_status(process_);
    ::kill(-process_, SIGKILL);
    process_ = -1;
    read();
    for (Stream& stream : streams_) {
      stream.lines->finish();
      stream.pipe.close();
    }
    was_killed_ = WIFSIGNALED(status) && failure_.empty();
    if (was_killed_) failure_ = fmt::format("{} {}", name(), end_text(status));
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) return;
    const std::string& reason = refusal_.empty() ? fault_ : refusal_;
    failure_ = reason.empty() ? fmt::format("{} {}", name(), end_text(status)) : fmt::format("{}: {}", name(), reason);
  }

  // Ends a running rank; `reason` is its failure.
  void end(const std::string& reason) {
    failure_ = fmt::format("{} {}", name(), reason);
    kill();
  }

 private:
  struct Stream {
    Descriptor pipe;
    std::unique_ptr<LineSplitter> lines;
  };

  bool hangs() const { return fault_.find(kernels::kHangs) != std::string::npos; }
  std::string name() const { return fmt::format("rank {} on {}", number_, host_); }

  void kill() {
    if (!running()) return;
    ::kill(-process_, SIGKILL);
    ::kill(process_, SIGKILL);  // it may have moved to another process group
    take_end();
  }

  const int number_;
  const std::string host_;
  pid_t process_ = -1;
  Descriptor end_, log_;
  std::array<Stream, 2> streams_;  // standard output and standard error
  std::string refusal_, fault_;
  std::string failure_;
  bool was_killed_ = false, lost_peer_ = false, others_waited_ = false;
};

}  // namespace

ProgramResult run_program(bed::TestBed& bed, const ProgramOptions& options) {
  const topology::Graph& graph = bed.fabric().graph();
  const std::vector<Placement> placements =
      place_ranks(graph, options.ranks != 0 ? static_cast<std::size_t>(options.ranks)
                                            : graph.hosts.size() * static_cast<std::size_t>(options.ranks_per_host));
  const std::string master = bed.fabric().out_of_band_address(graph.hosts[placements[0].host].name).text();
  const Nanoseconds limit = now_ns() + static_cast<Nanoseconds>(options.seconds * 1e9);
  Nanoseconds deadline = limit;
  Pipe peers = make_pipe();  // the ranks see its end
  std::vector<std::unique_ptr<Rank>> ranks;
  for (std::size_t i = 0; i < placements.size(); ++i)
    ranks.push_back(std::make_unique<Rank>(bed, options, static_cast<int>(i), static_cast<int>(placements.size()),
                                           placements[i], master, peers.read_end));

  ProgramResult result;
  Rank* first_failure = nullptr;
  const auto any_runs = [&] {
    return std::any_of(ranks.begin(), ranks.end(), [](auto& one) { return one->running(); });
  };
  while (any_runs()) {
    std::vector<pollfd> waits = {{options.stop_fd, POLLIN, 0}};
    std::vector<std::size_t> ends;  // indices in `waits`, by rank
    for (const auto& rank : ranks) ends.push_back(rank->add_to(waits));
    const Nanoseconds now = now_ns();
    const int wait_ms =
        now >= deadline ? 0 : static_cast<int>(std::min<Nanoseconds>((deadline - now) / 1'000'000 + 1, 60'000));
    if (::poll(waits.data(), waits.size(), wait_ms) < 0 && errno != EINTR) throw_errno("wait for the ranks");
    if (waits[0].revents != 0) {
      result.stopped = true;
      for (const auto& rank : ranks)
        if (rank->running()) rank->end("was ended by a signal to this program");
      break;
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i]->read();
      if (!ranks[i]->running() || waits[ends[i]].revents == 0) continue;
      ranks[i]->take_end();
      if (first_failure != nullptr || ranks[i]->failure().empty()) continue;
      first_failure = ranks[i].get();
      deadline = std::min(limit, now_ns() + kGraceNs);
      peers.write_end.close();
      for (const auto& rank : ranks)
        if (first_failure->is_dead() && rank.get() != first_failure) rank->lose_peer();
    }
    if (now_ns() < deadline) continue;
    for (const auto& rank : ranks) {
      if (!rank->running()) continue;
      rank->end(deadline == limit
                    ? fmt::format("still ran after {} s", options.seconds)
                    : fmt::format("still ran {} s after another rank had failed", kGraceNs / 1'000'000'000));
    }
  }
  std::vector<const Rank*> waited;
  for (const auto& rank : ranks)
    if (rank->waited_for_dead_rank()) waited.push_back(rank.get());
  if (first_failure != nullptr) first_failure->blame(waited);
  for (const auto& rank : ranks) {
    result.exit_code = std::max(result.exit_code, rank->failure().empty() ? 0 : rank->refused() ? 2 : 1);
    result.ranks.push_back(rank->result());
  }
  return result;
}

}  // namespace plugfest::nccl
