// plugfest coll: collectives on NCCL's proxies, with the table of nccl-tests.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/cli/stop.h"
#include "harness/cli/traffic/shared.h"
#include "harness/traffic/collective.h"
#include "harness/traffic/replay.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;
using traffic::ProxyProtocol;

constexpr int kMaxOperations = 10'000;
constexpr std::size_t kMaxRounds = 20;  // with --vs
// Largest value of --begin and --end.
constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 30;
// Half of the bytes of an LL message are flags, so LL is faster only for small messages.
constexpr std::uint64_t kMaxForLl = 64 * 1024;

struct Arguments {
  std::string collective;
  TeamOptions team;
  TableOptions table{.end = "128M"};
  std::string protocol;
  std::string algorithm = "ring";
  std::string versus;
};

std::optional<ProxyProtocol> protocol_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "ll") return ProxyProtocol::kLl;
  if (name == "ll128") return ProxyProtocol::kLl128;
  if (name == "simple") return ProxyProtocol::kSimple;
  throw std::runtime_error(fmt::format("--protocol \"{}\": expected ll, ll128 or simple", name));
}

traffic::Algorithm algorithm_of(const std::string& name, const traffic::CollectiveKind& kind) {
  if (name == "ring") return traffic::Algorithm::kRing;
  if (name != "tree") throw std::runtime_error(fmt::format("--algo \"{}\": expected ring or tree", name));
  if (kind.name != "allreduce") throw std::runtime_error("--algo tree: only allreduce has it");
  return traffic::Algorithm::kTree;
}

const traffic::CollectiveKind& find_collective(const std::string& name) {
  std::vector<std::string> known;
  for (const traffic::CollectiveKind& kind : traffic::collectives()) {
    if (kind.name == name) return kind;
    known.emplace_back(kind.name);
  }
  throw std::runtime_error(fmt::format("no collective \"{}\": {}", name, suggestion(name, known)));
}

// One plugin and its connections.
struct Contender {
  Plugin plugin;
  TeamBed::Subject subject;
  std::optional<control::Lease> lease;
  std::unique_ptr<traffic::Team> team;
  std::unique_ptr<traffic::Collective> collective;
  std::uint64_t wrong = 0;
};

// Measures one size. Two contenders take turns in short rounds, and each runs twice the operations of --operations.
// Each round reverses the order of the one before. `active`: the contender that runs.
// The ratio is the median over the rounds of the second one's time divided by the first one's in the same round, which
// is the ratio of their bandwidths. Temporary load changes this ratio less than it would change the ratio of the sums.
traffic::TableRow measure(std::vector<Contender>& contenders, const traffic::CollectiveKind& kind, std::uint64_t bytes,
                          const Arguments& arguments, std::optional<ProxyProtocol> protocol, std::size_t& active) {
  traffic::TableRow row{.collective = kind.name, .ranks = contenders.front().team->size(), .redop = kind.operation};
  row.bytes = contenders.front().collective->rounded(bytes);
  row.count = contenders.front().collective->count(row.bytes);
  if (kind.name == "broadcast") row.root = 0;
  const ProxyProtocol chosen = protocol.value_or(row.bytes <= kMaxForLl ? ProxyProtocol::kLl : ProxyProtocol::kSimple);
  const auto operations = static_cast<std::size_t>(arguments.table.operations);
  const bool versus = contenders.size() > 1;
  const std::size_t rounds = versus ? std::clamp<std::size_t>(operations / 2, 2, kMaxRounds) : 1;
  const std::size_t in_a_round = versus ? divide_up(2 * operations, rounds) : operations;
  std::vector<traffic::Timing> timings(contenders.size());
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<double> seconds(contenders.size());
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      active = round % 2 == 0 ? i : contenders.size() - 1 - i;
      const traffic::Timing one =
          contenders[active].collective->measure(row.bytes, chosen, in_a_round, &stop_on_signals());
      seconds[active] = one.seconds;
      timings[active].seconds += one.seconds / static_cast<double>(rounds);
      timings[active].wrong += one.wrong;
      contenders[active].wrong += one.wrong;
    }
    ratios.push_back(seconds.back() / seconds.front());
  }
  row.timings.assign(timings.begin(), timings.end());
  if (versus) row.ratio = median(std::move(ratios));
  return row;
}

ordered_json to_json(const traffic::TableRow& row, const std::vector<Contender>& contenders) {
  ordered_json json = {{"bytes", row.bytes}, {"count", row.count}, {"results", ordered_json::array()}};
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const traffic::Timing& timing = *row.timings[i];
    json["results"].push_back({{"plugin", contenders[i].plugin.load},
                               {"seconds", timing.seconds},
                               {"algbw", traffic::algorithm_bandwidth(row, timing)},
                               {"busbw", traffic::bus_bandwidth(row, timing)},
                               {"wrong", timing.wrong}});
  }
  if (row.ratio) json["ratio"] = *row.ratio;
  return json;
}

int run_collective(Arguments& arguments) {
  const traffic::CollectiveKind& kind = find_collective(arguments.collective);
  const std::vector<std::uint64_t> all_sizes = arguments.table.sizes(kMaxBytes);
  const std::optional<ProxyProtocol> protocol = protocol_of(arguments.protocol);
  const traffic::Algorithm algorithm = algorithm_of(arguments.algorithm, kind);
  if (protocol && kind.pairs) throw std::runtime_error(fmt::format("--protocol: {} uses simple only", kind.name));
  std::vector<Contender> contenders(arguments.versus.empty() ? 1 : 2);
  contenders[0].plugin = find_plugin(arguments.team.plugin);
  const int api = arguments.team.version_of(contenders[0].plugin);
  if (contenders.size() > 1) contenders[1].plugin = find_plugin(arguments.versus);
  TeamBed bed(arguments.team);
  if (const std::optional<int> exit_code = bed.enter()) return *exit_code;
  bed.build(std::any_of(contenders.begin(), contenders.end(),
                        [](const Contender& contender) { return contender.plugin.library.empty(); }));

  const std::string again = Again().with("--seed", fmt::to_string(bed.seed())).text();
  std::FILE* const out = bed.text_stream();
  ordered_json rows = ordered_json::array();
  std::string failure;
  std::vector<double> bus(contenders.size());
  std::size_t measured = 0;
  std::uint64_t current = 0;
  std::size_t active = 0;
  try {
    for (Contender& contender : contenders) {
      const bool first = &contender == contenders.data();
      active = first ? 0 : 1;
      contender.subject = bed.add_session(contender.plugin, first ? api : choose_apis(contender.plugin, "").front());
      fmt::print(out, "# {}{} v{} on {}, {}, seed {}\n", first ? "" : "vs ", contender.subject.name,
                 contender.subject.api, bed.graph().name, counted(bed.group().ranks.size(), "rank"), bed.seed());
      contender.lease.emplace(contender.subject.session->lease());
      contender.team = std::make_unique<traffic::Team>(*contender.lease, bed.group());
      contender.collective =
          std::make_unique<traffic::Collective>(*contender.team, kind, algorithm, all_sizes.back(), bed.seed());
    }
    std::vector<std::string> groups = {"out-of-place"};
    if (contenders.size() > 1) groups = {contenders[0].subject.name, contenders[1].subject.name};
    fmt::print(out, "{}", traffic::table_heading(groups, contenders.size() > 1));
    for (const std::uint64_t size : all_sizes) {
      current = size;
      const traffic::TableRow row = measure(contenders, kind, size, arguments, protocol, active);
      fmt::print(out, "{}", traffic::table_row(row));
      std::fflush(out);
      for (std::size_t i = 0; i < bus.size(); ++i) bus[i] += traffic::bus_bandwidth(row, *row.timings[i]);
      ++measured;
      if (bed.wants_json()) rows.push_back(to_json(row, contenders));
    }
    for (Contender& contender : contenders)
      for (const std::string& problem : contender.lease->release(true)) failure += problem + "\n";
  } catch (const control::Deviation& deviation) {
    const std::optional<control::Lease>& lease = contenders[active].lease;
    failure = lease ? failure_text(deviation, *lease) : deviation.what();
  } catch (const control::Interrupted&) {
    // stop_signal() is set.
  }
  std::uint64_t wrong = 0;
  for (const Contender& contender : contenders) wrong += contender.wrong;
  if (measured > 0) {
    fmt::print(out, "# average bus bandwidth: {:.3f} GB/s", bus[0] / static_cast<double>(measured));
    if (bus.size() > 1) fmt::print(out, ", {:.3f} GB/s", bus[1] / static_cast<double>(measured));
    fmt::print(out, "\n");
  }
  if (failure.empty() && wrong > 0) failure = counted(wrong, "element") + " of results are wrong";
  if (!failure.empty()) {
    print_failure(out, fmt::format("{}{}", kind.name, current == 0 ? "" : fmt::format(", {} bytes", current)), failure,
                  again);
  }
  bed.write_json({{"tool", "plugfest coll"},
                  {"collective", kind.name},
                  {"topology", bed.graph().name},
                  {"nic", bed.nic()},
                  {"seed", bed.seed()},
                  {"rerun", again},
                  {"message", failure},
                  {"sizes", std::move(rows)}});
  return exit_code_unless_stopped(failure.empty() ? 0 : 1);
}

}  // namespace

void add_coll(Command program) {
  std::string names;
  for (const traffic::CollectiveKind& kind : traffic::collectives())
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  Command command = program.add_subcommand("coll", "Run collectives on NCCL's proxies and check every element");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("COLLECTIVE", arguments->collective, names, {.required = true});
  arguments->table.add_options(command, kMaxOperations);
  command.add_option("--algo,--algorithm NAME", arguments->algorithm, "ring, or tree for allreduce; default: ring");
  command.add_option("--protocol NAME", arguments->protocol,
                     "Protocol of NCCL: ll, ll128 or simple; default: ll up to 64 KiB, then simple");
  command.add_option("--vs PLUGIN", arguments->versus,
                     "Also measure this plugin, in turns with the other one, and print the median ratio of their "
                     "bandwidths");
  arguments->team.add_options(command);
  command.set_body([arguments] { return run_collective(*arguments); });
}

}  // namespace plugfest::cli
