// Fuzz target: the captures, recordings and timelines that `plugfest trace` reads. An invalid file must be refused with
// a message that names it.
#include "fabric/system/fuzzing.h"
#include "harness/trace/explain.h"
#include "harness/trace/ladder.h"
#include "harness/trace/packets.h"
#include "harness/trace/timeline.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plugfest::trace;
  plugfest::fuzz_file(data, size, [](const std::string& path) {
    const CapturedJob job = read_job_packets(path, {});
    messages_of(job);
    merge({}, &job);
  });
  plugfest::fuzz_file(data, size, [](const std::string& path) {
    const Transfers transfers = read_transfers({path});
    explain(transfers);
    ladder_page(transfers);
    if (is_recording(path)) merge({read_recording(path)});
  });
  return 0;
}
