// plugfest trace: joins the recordings of the ranks of a job, and shows where the time of its operations went.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/cli/command.h"
#include "harness/report/output_file.h"
#include "harness/report/text.h"
#include "harness/trace/explain.h"
#include "harness/trace/ladder.h"
#include "harness/trace/recording.h"
#include "harness/trace/timeline.h"

namespace plugfest::cli {
namespace {

struct MergeArguments {
  std::vector<std::string> files;
  std::string output;
};

int merge(const MergeArguments& arguments) {
  const std::unique_ptr<report::OutputFile> output = report::open_output(arguments.output);
  std::vector<trace::Recording> recordings;
  for (const std::string& file : arguments.files) recordings.push_back(trace::read_recording(file));
  output->write(trace::merge(recordings));
  return 0;
}

struct ExplainArguments {
  std::vector<std::string> files;
  std::string html;
};

int explain(const ExplainArguments& arguments) {
  const std::unique_ptr<report::OutputFile> page = report::open_output(arguments.html);
  const trace::Transfers transfers = trace::read_transfers(arguments.files);
  fmt::print("{}", report::printable(trace::explain(transfers), "\n"));
  if (page) page->write(trace::ladder_page(transfers));
  return 0;
}

}  // namespace

void add_trace(Command program) {
  Command trace = program.add_subcommand("trace", "Join recordings of NCCL's ranks, and show where their time went",
                                         "A rank writes a recording if NCCL_PROFILER_PLUGIN is "
                                         "libnccl-profiler-plugfest.so and PLUGFEST_TRACE_FOLDER names a folder.");
  trace.require_subcommand();
  Command join = trace.add_subcommand("merge", "Join the recordings of all ranks into a timeline for ui.perfetto.dev");
  auto arguments = std::make_shared<MergeArguments>();
  join.add_option("FILES", arguments->files, "The recordings, HOST-PID.recording", {.required = true});
  join.add_option("-o,--output FILE", arguments->output, "The timeline", {.required = true, .again = false});
  join.set_body([arguments] { return merge(*arguments); });

  Command tell = trace.add_subcommand("explain", "Say for each collective and rank what its transfers waited for",
                                      "Names the slowest link and the rank that begins last.");
  auto explained = std::make_shared<ExplainArguments>();
  tell.add_option("FILES", explained->files, "A file of --trace or of trace merge, or the recordings of all ranks",
                  {.required = true});
  tell.add_option("--html FILE", explained->html,
                  "Also write a page that draws the messages of the slowest call of each kind", {.again = false});
  tell.set_body([explained] { return explain(*explained); });
}

}  // namespace plugfest::cli
