// plugfest bench: how fast the fabric is.
#include <fmt/format.h>

#include <memory>

#include "fabric/netns/sandbox/sandbox.h"
#include "harness/bench/bench.h"
#include "harness/bench/table.h"
#include "harness/cli/bench.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/stop.h"

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
    fmt::print("{}, {}, load {:.1f}\n{}", document.environment.cpu, document.environment.kernel, load_before,
               bench::table_heading());
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
  Command bench = program.add_subcommand("bench", "Measure the fabric beside what it is built on");
  bench.require_subcommand();
  auto arguments = std::make_shared<Arguments>();
  Command nic = bench.add_subcommand("nic", "perftest over the NIC beside raw UDP and TCP on the same links");
  nic.add_option("--only", arguments->settings.only, "Only these rows; repeatable").type_name("ROW");
  nic.add_option("--seconds", arguments->settings.seconds, "Length of each measurement; default: 1")
      .type_name("N")
      .range(1, 3600);
  nic.add_option("--rounds", arguments->settings.rounds, "How often each row is measured; default: 3")
      .type_name("N")
      .range(1, 1000);
  nic.add_option("--json", arguments->json, "Write the results there as JSON").type_name("FILE");
  nic.add_flag("--markdown", arguments->markdown, "Print the table in Markdown");
  nic.add_flag("--list", arguments->list, "Print which rows there are");
  add_bench_fabric(bench);
  nic.set_body([arguments] { return bench_nic(*arguments); });
}

}  // namespace plugfest::cli
