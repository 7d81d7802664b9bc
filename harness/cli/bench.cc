// plugfest bench: measures net plugins beside perftest, the NIC beside its references, and building fat trees.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/netns/build.h"
#include "fabric/netns/sandbox.h"
#include "harness/bench/bench.h"
#include "harness/bench/bench_hosts.h"
#include "harness/bench/net_bench.h"
#include "harness/bench/table.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/subject.h"
#include "harness/plugin/nccl.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

struct NetArguments {
  std::vector<std::string> plugins;
  std::string topology = "pair:mtu=9000";
  std::string sizes;
  std::vector<std::string> only;
  int seconds = 1;
  int rounds = 3;
  bool no_perftest = false;
  std::string json;
  std::string plot;
  bool markdown = false;
  bool list = false;
};

// The plugins to measure. Default: the bundled plugin, and NVIDIA's transports where NCCL is found.
std::vector<Plugin> subjects_of(const NetArguments& arguments) {
  std::vector<Plugin> plugins;
  for (const std::string& plugin : arguments.plugins) plugins.push_back(find_plugin(plugin));
  if (!plugins.empty()) return plugins;
  plugins.push_back(find_plugin(""));
  for (const char* const built_in : {"nccl:IB", "nccl:Socket"}) {
    try {
      plugins.push_back(find_plugin(built_in));
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "plugfest: {}: left out: {}\n", built_in, error.what());
    }
  }
  return plugins;
}

std::vector<bench::NetRow> rows_of(const NetArguments& arguments) {
  std::vector<bench::NetRow> rows =
      bench::net_rows(arguments.sizes.empty() ? bench::default_sizes() : bench::parse_sizes(arguments.sizes));
  if (arguments.only.empty()) return rows;
  std::vector<std::string> names;
  for (const bench::NetRow& row : rows) names.push_back(row.name);
  for (const std::string& name : arguments.only) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw std::runtime_error(
          fmt::format("--only {}: no such row with these sizes: there are {}", name, fmt::join(names, ", ")));
    }
  }
  std::erase_if(rows, [&](const bench::NetRow& row) {
    return std::find(arguments.only.begin(), arguments.only.end(), row.name) == arguments.only.end();
  });
  return rows;
}

int bench_net(const NetArguments& arguments) {
  bench::NetSettings settings{
      .rows = rows_of(arguments), .seconds = static_cast<double>(arguments.seconds), .rounds = arguments.rounds};
  if (arguments.list) {
    for (const bench::NetRow& row : settings.rows) fmt::print("{:<18} {}, {}\n", row.name, row.measure, row.unit);
    return 0;
  }
  bed::RunBed run_bed(bed::FabricChoice::built(arguments.topology));
  const topology::Graph& graph = run_bed.graph();
  const std::vector<Plugin> plugins = subjects_of(arguments);
  if (!arguments.no_perftest) bench::require_programs({"ib_write_bw"});
  report::Document document = new_document(run_bed.nic().name(), graph.name);
  document.fabric = fabric_record(graph);
  std::optional<report::OutputFile> json, svg;
  if (!arguments.json.empty()) json.emplace(arguments.json);
  if (!arguments.plot.empty()) svg.emplace(arguments.plot);

  if (const std::optional<int> exit_code = run_bed.enter()) return *exit_code;
  settings.stop = &stop_on_signals();
  const bool out_of_band =
      std::any_of(plugins.begin(), plugins.end(), [](const Plugin& plugin) { return plugin::is_builtin(plugin.load); });
  bed::TestBed& bed = run_bed.build(out_of_band);
  control::Limits limits;
  limits.stop_fd = stop_fd();
  std::vector<std::unique_ptr<bench::NetSubject>> subjects;
  if (!arguments.no_perftest) subjects.push_back(bench::perftest_subject(bed));
  for (const Plugin& plugin : plugins) subjects.push_back(bench::plugin_subject(bed, plugin.load, limits));

  const double load_before = bench::load_average();
  if (!arguments.markdown) {
    std::vector<std::string> names;
    for (const auto& subject : subjects) names.push_back(subject->name());
    const std::string machine =
        fmt::format("{}, {}, {}, load {:.1f}; in brackets: the ratio to {}", graph.name, document.environment.cpu,
                    document.environment.kernel, load_before, names.front());
    fmt::print("{}\n{}", report::wrapped(machine), bench::net_heading(names));
    std::fflush(stdout);
    settings.on_result = [](const bench::NetResult& result) {
      fmt::print("{}", bench::net_line(result));
      std::fflush(stdout);
    };
  }
  const std::vector<bench::NetResult> results = bench::run_net_bench(subjects, settings);
  if (arguments.markdown) fmt::print("{}", bench::net_markdown(results));
  if (json) json->write(bench::net_json(results, document, {load_before, bench::load_average()}));
  if (svg) svg->write(bench::net_plot(results));
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

void add_bench_net(Command bench) {
  auto arguments = std::make_shared<NetArguments>();
  Command net = bench.add_subcommand(
      "net", "Compare net plugins with each other and with perftest",
      "All subjects run on one fabric, one after the other. Figures are medians of the rounds. The number in brackets "
      "is the ratio to perftest in the same round, or to the first plugin where perftest has no such row.");
  net.add_option("--plugin PLUGIN", arguments->plugins,
                 "Path, name, nccl:IB or nccl:Socket; repeatable; default: the bundled plugin and NVIDIA's transports");
  net.add_option("-t,--topology NAME|FILE", arguments->topology,
                 "Topology; the first link is measured; default: pair:mtu=9000");
  net.add_option("--sizes LIST", arguments->sizes, "Sizes of the messages in bytes; default: 8,4K,64K,1M,8M");
  net.add_option("--only ROW", arguments->only, "Measure only this row; repeatable");
  net.add_option("--seconds N", arguments->seconds, "Seconds per measurement; default: 1", {.at_most = 3600});
  net.add_option("--rounds N", arguments->rounds, "Measurements per row; default: 3", {.at_most = 1000});
  net.add_flag("--no-perftest", arguments->no_perftest, "Measure the plugins only");
  net.add_option("--json FILE", arguments->json, "Write the results to FILE as JSON");
  net.add_option("--plot FILE", arguments->plot, "Write a plot of bandwidth by size to FILE as SVG");
  net.add_flag("--markdown", arguments->markdown, "Print the table in Markdown");
  net.add_flag("--list", arguments->list, "Print the names of all rows and exit");
  net.set_body([arguments] { return bench_net(*arguments); });
}

struct NicArguments {
  bench::Settings settings;
  std::string json;
  bool markdown = false;
  bool list = false;
};

int bench_nic(NicArguments& arguments) {
  bench::Settings& settings = arguments.settings;
  if (arguments.list) {
    for (const bench::Row& row : bench::rows()) fmt::print("{:<18} {}\n", row.name, row.measure);
    return 0;
  }
  bench::check(settings);
  const report::Document document = new_document("roce", "");
  std::unique_ptr<report::OutputFile> json;
  if (!arguments.json.empty()) json = std::make_unique<report::OutputFile>(arguments.json);

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  settings.stop = &stop_on_signals();
  const double load_before = bench::load_average();
  if (!arguments.markdown) {
    const std::string machine =
        fmt::format("{}, {}, load {:.1f}", document.environment.cpu, document.environment.kernel, load_before);
    fmt::print("{}\n{}", report::wrapped(machine), bench::table_heading());
    settings.on_result = [](const bench::RowResult& result) {
      fmt::print("{}", bench::table_row(result));
      std::fflush(stdout);
    };
  }
  const std::vector<bench::RowResult> results = bench::run(settings);
  if (arguments.markdown) fmt::print("{}", bench::markdown(results));
  if (json) json->write(bench::to_json(results, document, {load_before, bench::load_average()}));
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

using bench::TreeResult;

struct TreeArguments {
  std::vector<int> sizes = {2, 4, 8, 16};
  int rounds = 3;
  std::string json;
  std::string plot;
};

// Aims of one tree size; 0: no aim.
struct Aims {
  double up_seconds;
  double down_of_floor = 2;
};
Aims aims_of(int k) { return {k <= 4 ? 0.1 : k <= 8 ? 1.0 : k <= 16 ? 10.0 : 0}; }

std::string heading() {
  return fmt::format("{:>2} {:>5} {:>6} {:>5} | {:>6} {:>6} {:>6} {:>8} | {:>7} {:>6} {:>8}\n", "k", "hosts", "switch",
                     "links", "up s", "reach", "down", "KiB/host", "bare up", "down", "KiB/host");
}

std::string line(const TreeResult& tree) {
  return fmt::format("{:>2} {:>5} {:>6} {:>5} | {:>6.3f} {:>6.3f} {:>6.3f} {:>8.0f} | {:>7.3f} {:>6.3f} {:>8.0f}\n",
                     tree.k, tree.hosts, tree.switches, tree.links, tree.ours.up_seconds, tree.reach_seconds,
                     tree.ours.down_seconds, tree.ours.host_kib, tree.floor.up_seconds, tree.floor.down_seconds,
                     tree.floor.host_kib);
}

nlohmann::ordered_json to_json(const bench::UpAndDown& one) {
  return {{"up_seconds", one.up_seconds}, {"down_seconds", one.down_seconds}, {"host_kib", one.host_kib}};
}

std::string to_json(const std::vector<TreeResult>& trees, const report::Document& document, double load) {
  nlohmann::ordered_json json = {{"kernel", document.environment.kernel},
                                 {"cpu", document.environment.cpu},
                                 {"load", load},
                                 {"trees", nlohmann::ordered_json::array()},
                                 {"aims", nlohmann::ordered_json::array()}};
  for (const TreeResult& tree : trees) {
    nlohmann::ordered_json one = {{"k", tree.k},
                                  {"hosts", tree.hosts},
                                  {"switches", tree.switches},
                                  {"links", tree.links},
                                  {"plugfest", to_json(tree.ours)},
                                  {"reach_seconds", tree.reach_seconds},
                                  {"bare", to_json(tree.floor)}};
    json["trees"].push_back(one);
    const Aims aims = aims_of(tree.k);
    const auto add = [&](const std::string& measure, double aim, double value) {
      json["aims"].push_back({{"measure", measure}, {"aim", aim}, {"value", value}, {"met", value <= aim}});
    };
    if (aims.up_seconds > 0) add(fmt::format("k={} up, seconds", tree.k), aims.up_seconds, tree.ours.up_seconds);
    add(fmt::format("k={} down, of the bare kernel's", tree.k), aims.down_of_floor,
        tree.ours.down_seconds / tree.floor.down_seconds);
  }
  return wire::json_text(json);
}

std::string plot(const std::vector<TreeResult>& trees) {
  const auto series = [&](const std::string& name, const std::string& colour, const auto& value) {
    bench::Series one{name, colour, {}};
    for (const TreeResult& tree : trees)
      if (const double y = value(tree); y > 0) one.points.emplace_back(tree.links, y);
    return one;
  };
  return bench::log_plot(
      "Fat trees: up and down (dotted: cost linear in links)", "links", "seconds",
      {series("up", "#1f6fb4", [](const TreeResult& t) { return t.ours.up_seconds; }),
       series("down", "#7fb3dd", [](const TreeResult& t) { return t.ours.down_seconds; }),
       series("bare kernel up", "#2a8a3a", [](const TreeResult& t) { return t.floor.up_seconds; }),
       series("bare kernel down", "#8fcf9a", [](const TreeResult& t) { return t.floor.down_seconds; })});
}

int bench_fabric(const TreeArguments& arguments) {
  for (const int k : arguments.sizes) netns::require_descriptors(topology::named(fmt::format("fat-tree:{}", k)));
  const report::Document document = new_document("roce", "");
  std::optional<report::OutputFile> json, svg;
  if (!arguments.json.empty()) json.emplace(arguments.json);
  if (!arguments.plot.empty()) svg.emplace(arguments.plot);

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  const std::atomic<bool>& stopped = stop_on_signals();
  const double load = bench::load_average();
  const std::string machine =
      fmt::format("{}, {}, load {:.1f}", document.environment.cpu, document.environment.kernel, load);
  fmt::print("{}\n{}", report::wrapped(machine), heading());
  std::vector<TreeResult> trees;
  for (const int k : arguments.sizes) {
    if (stopped) break;
    const TreeResult tree = bench::measure_tree(k, arguments.rounds, stopped);
    if (stopped) break;
    fmt::print("{}", line(tree));
    std::fflush(stdout);
    trees.push_back(tree);
  }
  if (json) json->write(to_json(trees, document, load));
  if (svg) svg->write(plot(trees));
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

void add_bench_fabric(Command bench) {
  auto arguments = std::make_shared<TreeArguments>();
  Command command = bench.add_subcommand("fabric", "Measure how long fat trees take to build and remove",
                                         "Reference: the same namespaces and links without addresses (bare).");
  command.add_option("--k K", arguments->sizes, "Ports per switch, such as 4 or 4,8; repeatable; default: 2,4,8,16",
                     {.delimiter = ','});
  command.add_option("--rounds N", arguments->rounds, "Measurements per tree; default: 3", {.at_most = 1000});
  command.add_option("--json FILE", arguments->json, "Write the results to FILE as JSON");
  command.add_option("--plot FILE.svg", arguments->plot, "Write a plot of time over links to FILE.svg");
  command.set_body([arguments] { return bench_fabric(*arguments); });
}

}  // namespace

void add_bench(Command program) {
  Command bench = program.add_subcommand("bench", "Measure plugins, the NIC and fabrics against references");
  bench.require_subcommand();
  auto arguments = std::make_shared<NicArguments>();
  Command nic = bench.add_subcommand(
      "nic", "Compare the NIC with raw UDP and TCP",
      "Runs perftest over the NIC, and raw UDP and TCP on the same links. All figures are medians of the rounds.");
  nic.add_option("--only ROW", arguments->settings.only, "Measure only this row; repeatable");
  nic.add_option("--seconds N", arguments->settings.seconds, "Seconds per measurement; default: 1", {.at_most = 3600});
  nic.add_option("--rounds N", arguments->settings.rounds, "Measurements per row; default: 3", {.at_most = 1000});
  nic.add_option("--json FILE", arguments->json, "Write the results to FILE as JSON");
  nic.add_flag("--markdown", arguments->markdown, "Print the table in Markdown");
  nic.add_flag("--list", arguments->list, "Print the names of all rows and exit");
  add_bench_net(bench);
  add_bench_fabric(bench);
  nic.set_body([arguments] { return bench_nic(*arguments); });
}

}  // namespace plugfest::cli
