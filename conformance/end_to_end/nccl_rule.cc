// Base of the rules that run NCCL itself: starts jobs and translates their failures.
#include "conformance/end_to_end/nccl_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "harness/bed/test_bed.h"
#include "harness/control/call.h"
#include "harness/control/process/stack.h"

namespace plugfest::conformance {
namespace {

// Lines of a rank's log and of its output that a failure shows.
constexpr std::size_t kShownLines = 40;
// Size of the allreduces during which something fails.
constexpr std::size_t kTrafficBytes = 1 << 20;

std::vector<std::string> last_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  if (lines.size() > kShownLines) lines.erase(lines.begin(), lines.end() - kShownLines);
  return lines;
}

// The frames of the first thread of `process` that is in `library`; nothing if no thread is.
std::vector<std::string> stack_in(pid_t process, const std::string& library) {
  const std::string file = fmt::format("({})", std::filesystem::path(library).filename().string());
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    const auto stack = read_stack(process, std::stoi(thread.path().filename().string()), StackPart::kWhole);
    if (std::any_of(stack.begin(), stack.end(), [&](const std::string& frame) { return frame.ends_with(file); }))
      return stack;
  }
  return {};
}

std::string described(const nccl::Measurement& operation, std::size_t ranks) {
  std::string text =
      fmt::format("{} of {} bytes on {} ranks", nccl::operation_names()[static_cast<std::size_t>(operation.operation)],
                  operation.bytes, ranks);
  if (operation.pieces > 1) text += fmt::format(" in {} parts", operation.pieces);
  return text;
}

}  // namespace

const topology::Graph& NcclRule::graph() const { return context().nccl.bed->fabric().graph(); }

int NcclRule::ranks_on_hosts(int most) const {
  return std::max(2, std::min(most, static_cast<int>(graph().hosts.size())));
}

void NcclRule::run_job(const NcclJob& job, const std::function<void(nccl::JobRanks& group)>& part) {
  const NcclSetting& setting = context().nccl;
  if (!setting.bed->has_fabric()) skip("NCCL needs hosts in namespaces of their own");
  // log_summary.h reads these lines.
  nccl::JobRanksOptions options{.plugin = job.plugin.empty() ? setting.plugin : job.plugin,
                                .ranks = job.ranks,
                                .seconds = setting.seconds,
                                .stop_fd = setting.stop_fd,
                                .environment = {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", "INIT,NET,ENV"}}};
  options.environment.insert(options.environment.end(), job.environment.begin(), job.environment.end());
  std::optional<nccl::JobRanks> group;
  try {
    group.emplace(*setting.bed, options);
    const auto require_plugin = [&] {
      if (!job.any_network && !context().library.empty() && !nccl::uses_plugin(nccl::summarize(group->log(0))))
        skip("NCCL does not use the plugin: EE-01 says why");
    };
    try {
      group->init();
    } catch (const nccl::JobFailed&) {
      require_plugin();  // the network that NCCL falls back to may not reach all hosts
      throw;
    }
    require_plugin();
    part(*group);
  } catch (const nccl::Stopped&) {
    throw Interrupted();
  } catch (const nccl::JobFailed& failed) {
    if (!group) broken(failed.what());
    report(*group, failed);
  } catch (const Broken&) {
    keep_logs(*group);
    throw;
  }
}

void NcclRule::report(nccl::JobRanks& group, const nccl::JobFailed& failed) {
  const std::string& host = group.host(failed.rank());
  std::vector<std::string> stack;
  if (failed.kind() == nccl::JobFailed::Kind::kNoAnswer && group.process(failed.rank()) > 0 &&
      !context().library.empty())
    stack = stack_in(group.process(failed.rank()), context().library);
  keep_logs(group);
  switch (failed.kind()) {
    case nccl::JobFailed::Kind::kNoAnswer:
      throw Hung(host, failed.what(), "NCCL", stack);
    case nccl::JobFailed::Kind::kEnded:
      throw Crashed(host, failed.what(), "NCCL", 0, 0, {});
    default: {
      const std::string hint = nccl::reach_hint(graph());
      broken(failed.what() + (hint.empty() ? "" : '\n' + hint));
    }
  }
}

void NcclRule::keep_logs(const nccl::JobRanks& group) {
  if (context().records == nullptr) return;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::string output;
    for (const std::string& line : last_lines(group.output(rank))) output += line + "\n";
    context().records->push_back({.name = fmt::format("{} on {}", rank, group.host(rank)),
                                  .last_calls = {},
                                  .log = last_lines(group.log(rank)),
                                  .output = std::move(output)});
  }
}

void NcclRule::require_right(nccl::JobRanks& group, const std::string& communicator, const nccl::Measurement& operation,
                             std::vector<int> members) {
  if (members.empty()) members = group.all_ranks();
  for (const int rank : members) group.send(rank, nccl::Run{communicator, operation});
  std::vector<nccl::Outcome> outcomes;
  for (const int rank : members) {
    const nccl::Answer answer = group.receive(rank);
    expect(answer.ok, [&] {
      return fmt::format("rank {} on {}: {}: {}", rank, group.host(rank), described(operation, members.size()),
                         answer.text);
    });
    outcomes.push_back(answer.outcome);
  }
  const nccl::Outcome outcome = nccl::combined(outcomes);
  expect(outcome.wrong() == 0, [&] {
    return fmt::format("{}: {} wrong elements; the first: {}", described(operation, members.size()), outcome.wrong(),
                       outcome.first_wrong);
  });
}

void NcclRule::require_all_right(nccl::JobRanks& group, const std::string& communicator, std::size_t bytes) {
  for (std::size_t operation = 0; operation < nccl::operation_names().size(); ++operation) {
    require_right(group, communicator,
                  {.operation = static_cast<nccl::Operation>(operation),
                   .bytes = bytes,
                   .root = static_cast<int>(random_between(0, static_cast<std::uint64_t>(group.size()) - 1)),
                   .seed = random()()});
  }
}

void NcclRule::start_traffic(nccl::JobRanks& group, int rounds) {
  // This operation establishes the connections.
  require_right(group, "world", {.bytes = kTrafficBytes, .seed = random()()});
  send_traffic(group, "world", rounds, group.all_ranks());
  for (int rank = 0; rank < group.size(); ++rank) {
    const nccl::Answer answer = group.receive(rank);
    expect(answer.ok, [&] { return fmt::format("rank {}: {}", rank, answer.text); });
  }
}

void NcclRule::send_traffic(nccl::JobRanks& group, const std::string& communicator, int rounds,
                            const std::vector<int>& ranks) {
  const std::uint64_t seed = random()();
  for (const int rank : ranks) group.send(rank, nccl::Churn{communicator, kTrafficBytes, rounds, seed});
}

nccl::Answer NcclRule::last_answer(nccl::JobRanks& group, int rank) {
  for (;;)
    if (nccl::Answer answer = group.receive(rank); !answer.is_running) return answer;
}

std::string NcclRule::require_error_and_abort(nccl::JobRanks& group, const std::vector<int>& ranks,
                                              const std::string& communicator, std::optional<double> seconds) {
  std::string error;
  std::vector<int> running = ranks;
  try {
    while (error.empty() && !running.empty()) {
      const auto [rank, answer] = group.receive_any(running, seconds);
      std::erase(running, rank);
      if (!answer.ok)
        error = fmt::format("rank {}: {}", rank, answer.text);
      else
        expect(answer.wrong == 0, fmt::format("rank {}: {} wrong elements, and no error", rank, answer.wrong));
    }
    if (error.empty()) return "";
  } catch (const nccl::JobFailed& failed) {
    if (!seconds || failed.kind() != nccl::JobFailed::Kind::kNoAnswer) throw;
  }
  require_abort(group, communicator, ranks, running);
  return error;
}

void NcclRule::require_abort(nccl::JobRanks& group, const std::string& communicator, const std::vector<int>& ranks,
                             const std::vector<int>& running) {
  for (const int rank : ranks) group.send(rank, nccl::Abort{{communicator}});
  for (const int rank : running) last_answer(group, rank);
  for (const int rank : ranks) {
    const nccl::Answer answer = group.receive(rank);
    expect(answer.ok, fmt::format("rank {} on {}: {}", rank, group.host(rank), answer.text));
  }
}

}  // namespace plugfest::conformance
