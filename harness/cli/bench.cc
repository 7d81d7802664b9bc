// plugfest bench: compares net and one-sided plugins with perftest, the NIC with its references, and in-network
// reduction with a ring; measures building fat trees.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>

#include "fabric/netns/build.h"
#include "fabric/netns/sandbox.h"
#include "harness/bench/bench.h"
#include "harness/bench/bench_hosts.h"
#include "harness/bench/net_bench.h"
#include "harness/bench/net_record.h"
#include "harness/bench/reduction_bench.h"
#include "harness/bench/table.h"
#include "harness/bench/tree.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/subject.h"
#include "harness/plugin/nccl.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

// The options of the benchmarks.
struct Arguments {
  std::vector<std::string> plugins;
  std::string topology;
  std::string rate;
  std::string sizes;
  std::vector<int> ports = {2, 4, 8, 16};
  std::vector<std::string> only;
  int seconds = 1;
  int rounds = 3;
  bool no_perftest = false;
  std::string json;
  std::string against;
  std::string plot;
  bool markdown = false;
  bool list = false;
};

// Adds the options of nic, net and rma.
void add_row_options(Command command, Arguments& arguments) {
  command.add_option("--only ROW", arguments.only, "Measure only this row; repeatable");
  command.add_option("--seconds N", arguments.seconds, "Seconds per measurement; default: 1", {.at_most = 3600});
  command.add_option("--rounds N", arguments.rounds, "Measurements per row; default: 3", {.at_most = 1000});
  command.add_option("--json FILE", arguments.json, "Write the results to FILE as JSON");
  command.add_flag("--markdown", arguments.markdown, "Print the table in Markdown");
  command.add_flag("--list", arguments.list, "Print the names of all rows and exit");
}

// "8 × Xeon, Linux 6.1.0, load 0.5".
std::string machine_text(const report::Document& document, double load) {
  return fmt::format("{}, {}, load {:.1f}", document.environment.cpu, document.environment.kernel, load);
}

void show(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// What bench net and bench rma measure.
enum class Measured { kNet, kOneSided };

// The plugins to measure. Default: the bundled plugin, and NVIDIA's transports where NCCL is found.
std::vector<Plugin> subjects_of(const Arguments& arguments, Measured measured) {
  const bool net = measured == Measured::kNet;
  std::vector<Plugin> plugins;
  for (const std::string& plugin : arguments.plugins) plugins.push_back(find_plugin(plugin, net));
  if (!plugins.empty()) return plugins;
  plugins.push_back(find_plugin(""));
  for (const char* const built_in : net ? std::vector{"nccl:IB", "nccl:Socket"} : std::vector{"nccl:GIN"}) {
    try {
      plugins.push_back(find_plugin(built_in, net));
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "plugfest: {}: left out: {}\n", built_in, error.what());
    }
  }
  return plugins;
}

// The interface of one-sided operations that is measured: the newest RMA, else the newest GIN. Errors:
// std::runtime_error if the plugin has neither.
PluginVersion one_sided_version(const Plugin& plugin) {
  for (const auto interface : {plugin::InterfaceKind::kRma, plugin::InterfaceKind::kGin})
    if (const auto found = plugin.others.find(interface); found != plugin.others.end())
      return {interface, found->second.front()};
  throw std::runtime_error(fmt::format("{} has neither GIN nor RMA: measure a net plugin with {} bench net",
                                       plugin.load, program_as_typed()));
}

std::vector<bench::NetRow> rows_of(const Arguments& arguments, Measured measured) {
  const std::vector<std::uint64_t> sizes =
      arguments.sizes.empty() ? bench::default_sizes() : bench::parse_sizes(arguments.sizes);
  std::vector<bench::NetRow> rows = measured == Measured::kNet ? bench::net_rows(sizes) : bench::rma_rows(sizes);
  if (arguments.only.empty()) return rows;
  std::vector<std::string> names;
  for (const bench::NetRow& row : rows) names.push_back(row.name);
  for (const std::string& name : arguments.only) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw std::runtime_error(
          fmt::format("--only {}: no such row with these sizes: expected one of {}", name, fmt::join(names, ", ")));
    }
  }
  std::erase_if(rows, [&](const bench::NetRow& row) {
    return std::find(arguments.only.begin(), arguments.only.end(), row.name) == arguments.only.end();
  });
  return rows;
}

// What --against compares with; nothing without this option. `now`: the record of this run, without results.
std::optional<bench::NetRecord> record_before(const Arguments& arguments, const bench::NetRecord& now,
                                              const std::vector<bench::NetRow>& rows) {
  if (arguments.against.empty()) return std::nullopt;
  if (arguments.rounds < bench::kRoundsToCompare)
    throw std::runtime_error(fmt::format("--against: needs --rounds {} or more", bench::kRoundsToCompare));
  bench::NetRecord before = bench::read_net_record(arguments.against);
  bench::require_comparable(before, now, rows, arguments.against);
  return before;
}

// Starts perftest, unless it is left out, and the plugins. `versions`: the version of each plugin.
std::vector<std::unique_ptr<bench::NetSubject>> start_subjects(bed::TestBed& bed, const std::vector<Plugin>& plugins,
                                                               const std::vector<PluginVersion>& versions,
                                                               bool with_perftest) {
  control::Limits limits;
  limits.stop_fd = stop_fd();
  std::vector<std::unique_ptr<bench::NetSubject>> subjects;
  if (with_perftest) subjects.push_back(bench::perftest_subject(bed));
  for (std::size_t i = 0; i < plugins.size(); ++i) {
    const auto& [interface, api] = versions[i];
    subjects.push_back(interface == plugin::InterfaceKind::kNet
                           ? bench::plugin_subject(bed, plugins[i].load, limits)
                           : bench::one_sided_subject(bed, plugins[i].load, interface, api, limits));
  }
  return subjects;
}

int bench_plugins(const Arguments& arguments, Measured measured) {
  bench::NetSettings settings{.rows = rows_of(arguments, measured),
                              .seconds = static_cast<double>(arguments.seconds),
                              .rounds = arguments.rounds};
  if (arguments.list) {
    for (const bench::NetRow& row : settings.rows) fmt::print("{:<18} {}, {}\n", row.name, row.measure, row.unit);
    return 0;
  }
  bed::RunBed run_bed(bed::FabricChoice::built(arguments.topology.empty() ? "pair:mtu=9000" : arguments.topology));
  const topology::Graph& graph = run_bed.graph();
  const std::vector<Plugin> plugins = subjects_of(arguments, measured);
  std::vector<PluginVersion> versions(plugins.size());
  if (measured == Measured::kOneSided)
    std::transform(plugins.begin(), plugins.end(), versions.begin(), one_sided_version);
  if (!arguments.no_perftest) bench::require_programs({"ib_write_bw"});
  report::Document document = new_document(run_bed.nic().name(), graph.name);
  document.fabric = fabric_record(graph);
  const auto record = [&](const std::vector<bench::NetResult>& results, std::array<double, 2> load) {
    return bench::net_record(results, document, load, settings.seconds);
  };
  const std::optional<bench::NetRecord> before = record_before(arguments, record({}, {}), settings.rows);
  const auto json = report::open_output(arguments.json), plot = report::open_output(arguments.plot);

  if (const std::optional<int> exit_code = run_bed.enter()) return *exit_code;
  settings.stop = &stop_on_signals();
  const bool out_of_band =
      std::any_of(plugins.begin(), plugins.end(), [](const Plugin& plugin) { return plugin::is_builtin(plugin.load); });
  const auto subjects = start_subjects(run_bed.build(out_of_band), plugins, versions, !arguments.no_perftest);

  const double load_before = bench::load_average();
  if (!arguments.markdown) {
    std::vector<std::string> names;
    for (const auto& subject : subjects) names.push_back(subject->name());
    const std::string head = fmt::format("{}, {}; in brackets: the ratio to {}", graph.name,
                                         machine_text(document, load_before), names.front());
    show(report::wrapped(head) + "\n" + bench::net_heading(names));
    settings.on_result = [](const bench::NetResult& result) { show(bench::net_line(result)); };
  }
  const std::vector<bench::NetResult> results = bench::run_net_bench(subjects, settings);
  if (arguments.markdown) fmt::print("{}", bench::net_markdown(results));
  const bench::NetRecord now = record(results, {load_before, bench::load_average()});
  if (json) json->write(bench::net_json(now));
  if (plot) plot->write(bench::net_plot(results));
  if (!before || *settings.stop) return exit_code_unless_stopped(0);
  const std::vector<bench::NetChange> changes = bench::compare(*before, now);
  if (changes.empty())
    throw std::runtime_error(fmt::format("--against {}: it has no figure of this run", arguments.against));
  fmt::print("{}", bench::changes_text(changes, arguments.against));
  return exit_code_unless_stopped(bench::any_slower(changes) ? 1 : 0);
}

int bench_nic(const Arguments& arguments) {
  if (arguments.list) {
    for (const bench::Row& row : bench::rows()) fmt::print("{:<18} {}\n", row.name, row.measure);
    return 0;
  }
  bench::Settings settings{.only = arguments.only, .seconds = arguments.seconds, .rounds = arguments.rounds};
  bench::check(settings);
  const report::Document document = new_document("roce", "");
  const auto json = report::open_output(arguments.json);

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  settings.stop = &stop_on_signals();
  const double load_before = bench::load_average();
  if (!arguments.markdown) {
    show(report::wrapped(machine_text(document, load_before)) + "\n" + bench::table_heading());
    settings.on_result = [](const bench::RowResult& result) { show(bench::table_row(result)); };
  }
  const std::vector<bench::RowResult> results = bench::run(settings);
  if (arguments.markdown) fmt::print("{}", bench::markdown(results));
  if (json) json->write(bench::to_json(results, document, {load_before, bench::load_average()}));
  return exit_code_unless_stopped(0);
}

int bench_reduction(const Arguments& arguments) {
  bed::RunOptions options;
  options.topology =
      bench::limited_topology(arguments.topology.empty() ? "fat-tree:4" : arguments.topology, arguments.rate);
  options.reduction_for = "bench reduction";
  bed::RunBed run_bed(options);
  const Plugin ring = find_plugin("");
  bench::ReductionSettings settings{.rounds = arguments.rounds};
  const report::Document document = new_document(run_bed.nic().name(), run_bed.graph().name);
  const auto json = report::open_output(arguments.json);

  if (const std::optional<int> exit_code = run_bed.enter()) return *exit_code;
  settings.stop = &stop_on_signals();
  bed::TestBed& bed = run_bed.build(false);
  control::Limits limits;
  limits.stop_fd = stop_fd();
  const double load_before = bench::load_average();
  if (!arguments.markdown) {
    const std::string head = fmt::format("{}, {}", run_bed.graph().name, machine_text(document, load_before));
    show(report::wrapped(head) + "\n" + bench::table_heading());
    settings.on_result = [](const bench::RowResult& result) { show(bench::table_row(result)); };
  }
  const std::vector<bench::RowResult> results = bench::run_reduction_bench(bed, ring.load, limits, settings);
  if (arguments.markdown) fmt::print("{}", bench::markdown(results));
  if (json) json->write(bench::to_json(results, document, {load_before, bench::load_average()}));
  return exit_code_unless_stopped(0);
}

int bench_fabric(const Arguments& arguments) {
  for (const int k : arguments.ports) netns::require_descriptors(topology::named(fmt::format("fat-tree:{}", k)));
  const report::Document document = new_document("roce", "");
  const auto json = report::open_output(arguments.json), plot = report::open_output(arguments.plot);

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  const std::atomic<bool>& stopped = stop_on_signals();
  const double load = bench::load_average();
  show(report::wrapped(machine_text(document, load)) + "\n" + bench::tree_heading());
  std::vector<bench::TreeResult> trees;
  for (const int k : arguments.ports) {
    const bench::TreeResult tree = bench::measure_tree(k, arguments.rounds, stopped);
    if (stopped) break;
    show(bench::tree_line(tree));
    trees.push_back(tree);
  }
  if (json) json->write(bench::tree_json(trees, document, load));
  if (plot) plot->write(bench::tree_plot(trees));
  return exit_code_unless_stopped(0);
}

}  // namespace

void add_bench(Command program) {
  Command bench =
      program.add_subcommand("bench", "Measure plugins, the NIC, in-network reduction, and fabrics against references");
  bench.require_subcommand();
  auto arguments = std::make_shared<Arguments>();
  Command nic = bench.add_subcommand(
      "nic", "Compare the NIC with raw UDP and TCP",
      "Runs perftest over the NIC, and raw UDP and TCP on the same links. All figures are medians of the rounds.");
  add_row_options(nic, *arguments);
  nic.set_body([arguments] { return bench_nic(*arguments); });

  const auto add = [&](const char* name, const char* summary, const char* description, Measured measured,
                       const char* plugins, const char* sizes) {
    Command command = bench.add_subcommand(name, summary, description);
    command.add_option("--plugin PLUGIN", arguments->plugins, plugins);
    add_topology_option(command, arguments->topology, "pair:mtu=9000. The first link is measured");
    command.add_option("--sizes LIST", arguments->sizes, sizes);
    add_row_options(command, *arguments);
    command.add_option("--against FILE", arguments->against,
                       "Compare with FILE, written by --json on this machine; exit code 1 if a measurement is worse by "
                       "more than noise");
    command.add_flag("--no-perftest", arguments->no_perftest, "Measure the plugins only");
    if (measured == Measured::kNet)
      command.add_option("--plot FILE", arguments->plot, "Write a plot of bandwidth by size to FILE as SVG");
    command.set_body([arguments, measured] { return bench_plugins(*arguments, measured); });
  };
  add("net", "Compare net plugins with each other and with perftest",
      "All subjects run on one fabric, one after the other. Figures are medians of the rounds. The number in brackets "
      "is the ratio to perftest in the same round, or to the first plugin where perftest has no such row.",
      Measured::kNet,
      "Path, name, nccl:IB or nccl:Socket; repeatable; default: the bundled plugin and NVIDIA's transports",
      "Sizes of the messages in bytes; default: 8,4K,64K,1M,8M");
  add("rma", "Compare puts, gets and signals of GIN and RMA plugins with perftest",
      "Measures the newest RMA interface of a plugin, or else its newest GIN. Subjects, figures and ratios are as in "
      "`bench net`. The reference of a signal without data is ib_atomic_lat.",
      Measured::kOneSided, "Path, name or nccl:GIN; repeatable; default: the bundled plugin and NVIDIA's GIN",
      "Sizes of puts and gets in bytes; default: 8,4K,64K,1M,8M");

  Command reduction = bench.add_subcommand(
      "reduction", "Compare allreduce in switches with a ring",
      "One rank on each host. Switches reduce the vectors of libsharp_coll; the reference is the ring of `plugfest "
      "coll`. Both run alternately on one fabric. All figures are medians of the rounds.");
  add_topology_option(reduction, arguments->topology, "fat-tree:4");
  reduction.add_option("--rate RATE", arguments->rate,
                       "Rate of the links, low enough that processors are not the limit; default: 200Mbit");
  reduction.add_option("--rounds N", arguments->rounds, "Measurements per row; default: 3", {.at_most = 1000});
  reduction.add_option("--json FILE", arguments->json, "Write the results to FILE as JSON");
  reduction.add_flag("--markdown", arguments->markdown, "Print the table in Markdown");
  reduction.set_body([arguments] { return bench_reduction(*arguments); });

  Command fabric =
      bench.add_subcommand("fabric", "Measure how long fat trees take to build and remove",
                           "The columns \"bare\" are the reference: the same namespaces and links without addresses.");
  fabric.add_option("--k K", arguments->ports, "Ports per switch, such as 4 or 4,8; repeatable; default: 2,4,8,16",
                    {.delimiter = ','});
  fabric.add_option("--rounds N", arguments->rounds, "Measurements per tree; default: 3", {.at_most = 1000});
  fabric.add_option("--json FILE", arguments->json, "Write the results to FILE as JSON");
  fabric.add_option("--plot FILE.svg", arguments->plot, "Write a plot of time over links to FILE.svg");
  fabric.set_body([arguments] { return bench_fabric(*arguments); });
}

}  // namespace plugfest::cli
