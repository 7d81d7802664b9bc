// plugfest bench net: measures net plugins beside each other and beside perftest.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>

#include "harness/bed/run_bed.h"
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

namespace plugfest::cli {
namespace {

struct Arguments {
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
std::vector<Plugin> subjects_of(const Arguments& arguments) {
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

std::vector<bench::NetRow> rows_of(const Arguments& arguments) {
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

int bench_net(const Arguments& arguments) {
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

}  // namespace

void add_bench_net(Command bench) {
  auto arguments = std::make_shared<Arguments>();
  Command net = bench.add_subcommand(
      "net", "Measure net plugins beside each other and beside perftest",
      "All subjects run on one fabric, one after the other. Figures are medians of the rounds. The number in brackets "
      "is the ratio to perftest in the same round, or to the first plugin where perftest has no such row.");
  net.add_option("--plugin PLUGIN", arguments->plugins,
                 "Path, name, nccl:IB or nccl:Socket; repeatable; default: the bundled plugin and NVIDIA's transports");
  net.add_option("-t,--topology NAME|FILE", arguments->topology,
                 "Topology; the first link is measured; default: pair:mtu=9000");
  net.add_option("--sizes LIST", arguments->sizes, "Sizes of messages; default: 8,4K,64K,1M,8M");
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

}  // namespace plugfest::cli
