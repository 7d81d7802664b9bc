// plugfest bench; bench nic: measures the NIC beside raw UDP and TCP.
#include <fmt/format.h>

#include <memory>

#include "fabric/netns/sandbox.h"
#include "harness/bench/bench.h"
#include "harness/bench/table.h"
#include "harness/cli/bench.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/stop.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  bench::Settings settings;
  std::string json;
  bool markdown = false;
  bool list = false;
};

int bench_nic(Arguments& arguments) {
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

}  // namespace

void add_bench(Command program) {
  Command bench = program.add_subcommand("bench", "Measure plugins, the NIC and fabrics against references");
  bench.require_subcommand();
  auto arguments = std::make_shared<Arguments>();
  Command nic = bench.add_subcommand(
      "nic", "Measure the NIC beside raw UDP and TCP",
      "Runs perftest over the NIC, and raw UDP and TCP on the same links. All figures are medians of the rounds.");
  nic.add_option("--only", arguments->settings.only, "Measure only this row; repeatable").type_name("ROW");
  check_count(nic.add_option("--seconds", arguments->settings.seconds, "Seconds per measurement; default: 1"), 3600)
      .type_name("N");
  check_count(nic.add_option("--rounds", arguments->settings.rounds, "Measurements per row; default: 3"), 1000)
      .type_name("N");
  nic.add_option("--json", arguments->json, "Write the results to FILE as JSON").type_name("FILE");
  nic.add_flag("--markdown", arguments->markdown, "Print the table in Markdown");
  nic.add_flag("--list", arguments->list, "Print the names of all rows and exit");
  add_bench_net(bench);
  add_bench_fabric(bench);
  nic.set_body([arguments] { return bench_nic(*arguments); });
}

}  // namespace plugfest::cli
