// plugfest coll: collectives on NCCL's proxies, with the table of nccl-tests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/replay/team_options.h"
#include "harness/cli/stop.h"
#include "harness/control/call.h"
#include "harness/traffic/collective.h"
#include "harness/traffic/replay.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;
using traffic::ProxyProtocol;

constexpr int kMostOperations = 10'000;
constexpr std::size_t kMostRounds = 20;  ///< with --vs
/// Of --begin and --end.
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;
/// Messages of LL carry half of the bytes, which only pays for small ones.
constexpr std::uint64_t kMostForLl = 64 * 1024;

struct Arguments {
  std::string collective;
  TeamOptions team;
  std::string begin = "8";
  std::string end = "128M";
  double factor = 2;
  int operations = 5;
  std::string protocol;
  std::string algorithm = "ring";
  std::string versus;
};

/// "128M". Errors: std::runtime_error.
std::uint64_t parse_bytes(const std::string& option, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const std::size_t power = std::string(" KMG").find(unit.empty() ? " " : unit);
  const bool valid =
      error == std::errc() && unit != " " && power <= 3 && value > 0 && value <= kMostBytes >> (10 * power);
  if (!valid) throw std::runtime_error(fmt::format("{} \"{}\": expected a size such as 8, 64K or 128M", option, text));
  return value << (10 * power);
}

std::vector<std::uint64_t> sizes(const Arguments& arguments) {
  const std::uint64_t first = parse_bytes("--begin", arguments.begin), last = parse_bytes("--end", arguments.end);
  if (first > last)
    throw std::runtime_error(fmt::format("--begin {}: is above --end {}", arguments.begin, arguments.end));
  if (!(arguments.factor > 1)) throw std::runtime_error("--factor: expected a number above 1");
  std::vector<std::uint64_t> all;
  for (auto size = static_cast<double>(first); size <= static_cast<double>(last); size *= arguments.factor) {
    all.push_back(static_cast<std::uint64_t>(std::llround(size)));
  }
  return all;
}

std::optional<ProxyProtocol> protocol_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "ll") return ProxyProtocol::kLl;
  if (name == "ll128") return ProxyProtocol::kLl128;
  if (name == "simple") return ProxyProtocol::kSimple;
  throw std::runtime_error(fmt::format("--protocol \"{}\": there are ll, ll128 and simple", name));
}

traffic::Algorithm algorithm_of(const std::string& name, const traffic::CollectiveKind& kind) {
  if (name == "ring") return traffic::Algorithm::kRing;
  if (name != "tree") throw std::runtime_error(fmt::format("--algorithm \"{}\": there are ring and tree", name));
  if (kind.name != "allreduce") throw std::runtime_error("--algorithm tree: only allreduce has it");
  return traffic::Algorithm::kTree;
}

const traffic::CollectiveKind& find_collective(const std::string& name) {
  std::vector<std::string> known;
  for (const traffic::CollectiveKind& kind : traffic::collectives()) {
    if (kind.name == name) return kind;
    known.emplace_back(kind.name);
  }
  throw std::runtime_error(fmt::format("no collective \"{}\": {}", name, input::suggestion(name, known)));
}

/// One plugin and its connections.
struct Contender {
  Plugin plugin;
  TeamBed::Subject subject;
  std::optional<control::Lease> lease;
  std::unique_ptr<traffic::Team> team;
  std::unique_ptr<traffic::Collective> collective;
  std::uint64_t wrong = 0;
};

struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  /// Of each contender.
  std::vector<traffic::Measurement> measurements;
  /// With two contenders: the median over the rounds of the second one's time divided by the first one's in the same
  /// round, which is the ratio of their bandwidths. Load that comes and goes changes it less than the ratio of the
  /// sums.
  double ratio = 0;
};

class Table {
 public:
  Table(const traffic::CollectiveKind& kind, std::FILE* out) : kind_(kind), out_(out) {}

  void header(const std::vector<Contender>& contenders) const {
    fmt::print(out_, "#{:>10} {:>12} {:>6} {:>6} {:>10} {:>7} {:>7} {:>7}", "size", "count", "type", "redop", "time",
               "algbw", "busbw", "#wrong");
    if (contenders.size() > 1) fmt::print(out_, " {:>10} {:>7} {:>7} {:>6}", "time", "busbw", "#wrong", "ratio");
    fmt::print(out_, "\n#{:>10} {:>12} {:>6} {:>6} {:>10} {:>7} {:>7} {:>7}", "(B)", "(elements)", "", "", "(us)",
               "(GB/s)", "(GB/s)", "");
    if (contenders.size() > 1) fmt::print(out_, " {:>10} {:>7} {:>7}", "(us)", "(GB/s)", "");
    fmt::print(out_, "\n");
  }

  void row(const Row& row, std::size_t ranks) const {
    const traffic::Measurement& first = row.measurements.front();
    fmt::print(out_, " {:>10} {:>12} {:>6} {:>6} {:>10.1f} {:>7.3f} {:>7.3f} {:>7}", row.bytes, row.count, "float",
               kind_.operation, first.seconds * 1e6, bandwidth(row, 0), bus_bandwidth(row, 0, ranks), first.wrong);
    if (row.measurements.size() > 1) {
      const traffic::Measurement& other = row.measurements[1];
      fmt::print(out_, " {:>10.1f} {:>7.3f} {:>7} {:>6.2f}", other.seconds * 1e6, bus_bandwidth(row, 1, ranks),
                 other.wrong, row.ratio);
    }
    fmt::print(out_, "\n");
    std::fflush(out_);
  }

  /// In 10^9 bytes per second.
  static double bandwidth(const Row& row, std::size_t contender) {
    return static_cast<double>(row.bytes) / row.measurements[contender].seconds / 1e9;
  }
  double bus_bandwidth(const Row& row, std::size_t contender, std::size_t ranks) const {
    return bandwidth(row, contender) * kind_.bus_factor(static_cast<double>(ranks));
  }

 private:
  const traffic::CollectiveKind& kind_;
  std::FILE* out_;
};

/// Measures one size. Two contenders take turns in short rounds, and each runs twice the operations of --operations.
/// Each round reverses the order of the one before. `active`: the contender that runs.
Row measure(std::vector<Contender>& contenders, std::uint64_t bytes, const Arguments& arguments,
            std::optional<ProxyProtocol> protocol, std::size_t& active) {
  Row row;
  row.bytes = contenders.front().collective->rounded(bytes);
  row.count = contenders.front().collective->count(row.bytes);
  row.measurements.resize(contenders.size());
  const ProxyProtocol chosen = protocol.value_or(row.bytes <= kMostForLl ? ProxyProtocol::kLl : ProxyProtocol::kSimple);
  const auto operations = static_cast<std::size_t>(arguments.operations);
  const bool versus = contenders.size() > 1;
  const std::size_t rounds = versus ? std::clamp<std::size_t>(operations / 2, 2, kMostRounds) : 1;
  const std::size_t in_a_round = versus ? divide_up(2 * operations, rounds) : operations;
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<double> seconds(contenders.size());
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      active = round % 2 == 0 ? i : contenders.size() - 1 - i;
      const traffic::Measurement one =
          contenders[active].collective->measure(row.bytes, chosen, in_a_round, &stop_on_signals());
      seconds[active] = one.seconds;
      row.measurements[active].seconds += one.seconds / static_cast<double>(rounds);
      row.measurements[active].wrong += one.wrong;
      contenders[active].wrong += one.wrong;
    }
    ratios.push_back(seconds.back() / seconds.front());
  }
  row.ratio = median(std::move(ratios));
  return row;
}

ordered_json to_json(const Row& row, const Table& table, const std::vector<Contender>& contenders) {
  ordered_json json = {{"bytes", row.bytes}, {"count", row.count}, {"results", ordered_json::array()}};
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    json["results"].push_back({{"plugin", contenders[i].plugin.load},
                               {"seconds", row.measurements[i].seconds},
                               {"algbw", Table::bandwidth(row, i)},
                               {"busbw", table.bus_bandwidth(row, i, contenders[i].team->size())},
                               {"wrong", row.measurements[i].wrong}});
  }
  if (contenders.size() > 1) json["ratio"] = row.ratio;
  return json;
}

int run_collective(const Arguments& arguments) {
  const traffic::CollectiveKind& kind = find_collective(arguments.collective);
  const std::vector<std::uint64_t> all_sizes = sizes(arguments);
  const std::optional<ProxyProtocol> protocol = protocol_of(arguments.protocol);
  const traffic::Algorithm algorithm = algorithm_of(arguments.algorithm, kind);
  if (protocol && kind.pairs) throw std::runtime_error(fmt::format("--protocol: {} uses simple only", kind.name));
  if (arguments.team.api == "all") throw std::runtime_error("--api all: expected one version such as v8");
  std::vector<Contender> contenders(arguments.versus.empty() ? 1 : 2);
  contenders[0].plugin = find_plugin(arguments.team.plugin);
  const int api = choose_apis(contenders[0].plugin, arguments.team.api).front();
  if (contenders.size() > 1) contenders[1].plugin = find_plugin(arguments.versus);
  TeamBed bed(arguments.team);
  if (const std::optional<int> exit_code = bed.enter()) return *exit_code;
  bed.build(std::any_of(contenders.begin(), contenders.end(),
                        [](const Contender& contender) { return contender.plugin.library.empty(); }));

  const std::string again = Again().with("--seed", fmt::to_string(bed.seed())).text();
  std::FILE* const out = bed.text_stream();
  const Table table(kind, out);
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
    table.header(contenders);
    for (const std::uint64_t size : all_sizes) {
      current = size;
      const Row row = measure(contenders, size, arguments, protocol, active);
      table.row(row, contenders.front().team->size());
      for (std::size_t i = 0; i < bus.size(); ++i) bus[i] += table.bus_bandwidth(row, i, contenders[i].team->size());
      ++measured;
      if (bed.wants_json()) rows.push_back(to_json(row, table, contenders));
    }
    for (Contender& contender : contenders) {
      for (const std::string& problem : contender.lease->release(true)) failure += problem + "\n";
    }
  } catch (const control::Deviation& deviation) {
    failure = failure_text(deviation, *contenders[active].lease);
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
  if (stop_signal() != 0) return 128 + stop_signal();
  return failure.empty() ? 0 : 1;
}

}  // namespace

void add_coll(Command program) {
  std::string names;
  for (const traffic::CollectiveKind& kind : traffic::collectives()) {
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  Command command = program.add_subcommand("coll", "Run collectives on NCCL's proxies and check every element");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("COLLECTIVE", arguments->collective, names).required();
  command.add_option("-b,--begin", arguments->begin, "Smallest size in bytes; default: 8").type_name("SIZE");
  command.add_option("-e,--end", arguments->end, "Largest size in bytes; default: 128M").type_name("SIZE");
  command.add_option("-f,--factor", arguments->factor, "From one size to the next; default: 2").type_name("X");
  command.add_option("-n,--operations", arguments->operations, "Operations of each size; default: 5")
      .at_most(kMostOperations)
      .type_name("N");
  command.add_option("--algorithm", arguments->algorithm, "ring, or tree for allreduce; default: ring")
      .type_name("NAME");
  command
      .add_option("--protocol", arguments->protocol,
                  "Protocol of NCCL: ll, ll128 or simple; default: ll up to 64 KiB, then simple")
      .type_name("NAME");
  command
      .add_option("--vs", arguments->versus,
                  "Measure this plugin in turn with the other one, and print the median ratio")
      .type_name("PLUGIN");
  arguments->team.add_options(command);
  command.set_body([arguments] { return run_collective(*arguments); });
}

}  // namespace plugfest::cli
