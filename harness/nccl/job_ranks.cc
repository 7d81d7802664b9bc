#include "harness/nccl/job_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>

#include "fabric/system/descriptor_passing.h"
#include "fabric/system/process.h"
#include "fabric/system/wait.h"
#include "harness/nccl/cuda/memory.h"
#include "harness/nccl/rank_environment.h"
#include "harness/plugin/nccl.h"

namespace plugfest::nccl {
namespace {

constexpr int kCheckIntervalMs = 200;

std::string program() {
  const std::filesystem::path path = std::filesystem::path(control::rank_program()).parent_path() / "plugfest-nccl";
  if (std::filesystem::exists(path)) return path.string();
  throw std::runtime_error(fmt::format("{}: no such program; in a clone, scripts/plugfest builds it", path.string()));
}

}  // namespace

std::string unreached_nics(const topology::Graph& graph) {
  std::set<std::pair<topology::HostInterface, topology::HostInterface>> reached;
  for (const topology::Path& path : graph.paths()) reached.emplace(path.from, path.to);
  for (std::size_t a = 0; a < graph.hosts.size(); ++a) {
    for (std::size_t b = a + 1; b < graph.hosts.size(); ++b) {
      const std::size_t nics = std::min(graph.hosts[a].interfaces.size(), graph.hosts[b].interfaces.size());
      for (std::size_t i = 0; i < nics; ++i) {
        const topology::HostInterface from{a, i}, to{b, i};
        if (reached.contains({from, to}) || reached.contains({to, from})) continue;
        return fmt::format("{} to {}", graph.interface_name(from), graph.interface_name(to));
      }
    }
  }
  return "";
}

void check_reach(const std::string& plugin, const topology::Graph& graph) {
  if (!plugin::is_builtin(plugin) || plugin == "nccl:Socket") return;
  if (const std::string nics = unreached_nics(graph); !nics.empty()) {
    throw std::runtime_error(
        fmt::format("{}: it connects {}, which do not reach each other in {}: add "
                    "--topology star:3, or another one with switches",
                    plugin, nics, graph.name));
  }
}

std::string reach_hint(const topology::Graph& graph) {
  const std::string nics = unreached_nics(graph);
  if (nics.empty()) return "";
  return fmt::format(
      "NCCL connects {}, which are in different subnets of {}: a plugin that does not route between subnets needs "
      "-t star:3",
      nics, graph.name);
}

JobRanks::JobRanks(bed::TestBed& bed, const JobRanksOptions& options)
    : seconds_(options.seconds), stop_fd_(options.stop_fd) {
  try {
    launch(bed, options);
    receive_all(all_ranks(), "load");
  } catch (...) {
    for (int rank = 0; rank < size(); ++rank) kill(rank);
    throw;
  }
}

JobRanks::~JobRanks() {
  for (int rank = 0; rank < size(); ++rank) kill(rank);
}

void JobRanks::launch(bed::TestBed& bed, const JobRanksOptions& options) {
  const topology::Graph& graph = bed.fabric().graph();
  const std::vector<Placement> placements = place_ranks(graph, static_cast<std::size_t>(options.ranks));
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const topology::Host& host = graph.hosts[placements[i].host];
    control::Environment environment = rank_environment(bed, options.plugin, host, placements[i]);
    if (options.split_memory) set(environment, cuda::kDeviceMemoryVariable, "split");
    for (const auto& [name, value] : options.environment) set(environment, name, value);
    auto [near, far] = make_socket_pair();
    Rank rank;
    rank.host = host.name;
    rank.control = std::make_unique<wire::Channel>(std::move(near));
    rank.log = make_memory_file("nccl-log");
    rank.output = make_memory_file("nccl-output");
    rank.process = bed.launcher().launch({.rank = fmt::format("{}.{}", host.name, host.interfaces.front().name),
                                          .argv = {program()},
                                          .environment = std::move(environment),
                                          .output_fd = rank.output.get(),
                                          .descriptors = {{far.get(), kControlFd}, {rank.log.get(), kLogFd}}});
    ranks_.push_back(std::move(rank));
    send(static_cast<int>(i), Load{placements[i].device});
  }
}

void JobRanks::init(const std::string& name, std::vector<int> members) {
  if (members.empty()) members = all_ranks();
  send_init(name, members, false);
  receive_all(std::move(members), "init");
}

void JobRanks::try_init(const std::string& name) { send_init(name, all_ranks(), true); }

std::vector<int> JobRanks::all_ranks() const {
  std::vector<int> ranks(ranks_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void JobRanks::send_init(const std::string& name, const std::vector<int>& members, bool can_be_aborted) {
  send(members.front(), MakeId{});
  const Answer answer = receive(members.front());
  require_ok(members.front(), answer, "id");
  const int count = static_cast<int>(members.size());
  for (int i = 0; i < count; ++i)
    send(members[static_cast<std::size_t>(i)], Init{name, count, i, answer.id, can_be_aborted});
}

void JobRanks::send(int rank, const Command& command) {
  if (!nccl::send(*at(rank).control, command)) report_end(rank);
}

Nanoseconds JobRanks::cpu_time() const {
  Nanoseconds sum = 0;
  for (const Rank& rank : ranks_)
    if (rank.process > 0) sum += cpu_time_of(rank.process);
  return sum;
}

bool JobRanks::expired(double seconds, Nanoseconds passed, Nanoseconds cpu) {
  // NCCL's threads poll, so a clock that does not count waits for a processor would hardly advance.
  constexpr double kMinShare = 0.5, kMaxFactor = 5;
  const double limit = seconds * 1e9;
  return static_cast<double>(passed) > limit &&
         (static_cast<double>(cpu) > kMinShare * limit || static_cast<double>(passed) > kMaxFactor * limit);
}

Answer JobRanks::receive(int rank) { return receive_any({rank}).second; }

std::pair<int, Answer> JobRanks::receive_any(const std::vector<int>& ranks, std::optional<double> seconds) {
  const double limit = seconds.value_or(seconds_);
  const Nanoseconds start = now_ns(), cpu_start = cpu_time();
  for (;;) {
    std::vector<pollfd> wanted = {{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    for (const int rank : ranks) {
      Rank& from = at(rank);
      if (const std::optional<wire::Frame> frame = from.control->poll()) {
        const auto answer = wire::decode<Answer>(frame->body);
        if (!answer.ok && answer.code == kCannotLoad) throw std::runtime_error(answer.text);
        return {rank, answer};
      }
      if (from.control->closed()) report_end(rank);
      wanted.push_back({.fd = from.control->fd(), .events = POLLIN, .revents = 0});
    }
    const int ready = ::poll(wanted.data(), wanted.size(), kCheckIntervalMs);
    if (wanted[0].revents != 0) throw Stopped{};
    if (ready > 0) continue;
    // A rank that has ended may be the cause of the others' waiting.
    for (int other = 0; other < size(); ++other)
      if (at(other).process >= 0 && has_ended(at(other).process)) report_end(other);
    if (expired(limit, now_ns() - start, cpu_time() - cpu_start))
      throw JobFailed(JobFailed::Kind::kNoAnswer, ranks.front(),
                      fmt::format("rank {} on {}: no answer within {} s", ranks.front(), host(ranks.front()), limit));
  }
}

std::vector<Answer> JobRanks::all(const Command& command, int accepted) {
  for (int rank = 0; rank < size(); ++rank) send(rank, command);
  return receive_all(all_ranks(), name_of(command), accepted);
}

// The first error ends the wait: the other ranks may wait for the one that failed.
std::vector<Answer> JobRanks::receive_all(std::vector<int> ranks, const std::string& command, int accepted) {
  std::vector<Answer> answers(ranks_.size());
  while (!ranks.empty()) {
    auto [rank, answer] = receive_any(ranks);
    if (answer.code != accepted) require_ok(rank, answer, command);
    answers[static_cast<std::size_t>(rank)] = std::move(answer);
    std::erase(ranks, rank);
  }
  return answers;
}

void JobRanks::require_ok(int rank, const Answer& answer, const std::string& command) const {
  if (answer.ok) return;
  // A rank that refused and ended may be the cause of this rank's error.
  for (int other = 0; other < size(); ++other)
    if (const std::string reason = missing_stand_in(output(other)); !reason.empty())
      throw std::runtime_error("nccl: " + reason);
  throw JobFailed(JobFailed::Kind::kError, rank,
                  fmt::format("rank {} on {}: {}: {}", rank, host(rank), command, answer.text));
}

void JobRanks::report_end(int rank) {
  Rank& ended = at(rank);
  // The channel closes shortly before the process can be waited for, unless the plugin has closed it.
  if (!wait_until([&] { return has_ended(ended.process); }, std::chrono::seconds(1))) {
    kill(rank);
    throw JobFailed(JobFailed::Kind::kEnded, rank,
                    fmt::format("rank {} on {} closed its connection to plugfest, descriptor {}, and was killed", rank,
                                ended.host, kControlFd));
  }
  const int status = await_status(ended.process);
  ended.process = -1;
  if (const std::string reason = missing_stand_in(output(rank)); WIFEXITED(status) && !reason.empty())
    throw std::runtime_error("nccl: " + reason);
  if (const std::string fault = line_in(output(rank), cuda::kFault); !fault.empty())
    throw JobFailed(JobFailed::Kind::kEnded, rank, fmt::format("rank {} on {}: {}", rank, ended.host, fault));
  throw JobFailed(JobFailed::Kind::kEnded, rank, fmt::format("rank {} on {} {}", rank, ended.host, end_text(status)));
}

void JobRanks::kill(int rank) {
  Rank& victim = at(rank);
  if (victim.process < 0) return;
  ::kill(victim.process, SIGKILL);
  await_status(victim.process);
  victim.process = -1;
}

std::string JobRanks::log(int rank) const { return content_of(at(rank).log.get()); }
std::vector<std::string> JobRanks::logs() const {
  std::vector<std::string> all;
  for (const int rank : all_ranks()) all.push_back(log(rank));
  return all;
}

std::string JobRanks::output(int rank) const { return content_of(at(rank).output.get()); }

}  // namespace plugfest::nccl
