#include "harness/cli/traffic/job_trace.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/system/file.h"
#include "harness/bed/test_bed.h"
#include "harness/trace/messages.h"
#include "harness/trace/recording.h"
#include "harness/trace/timeline.h"
#include "harness/traffic/nccl/rank_environment.h"

namespace plugfest::cli {

namespace fs = std::filesystem;

JobTrace::JobTrace(const JobOptions& options)
    : wants_packets_(options.packets), file_(report::open_output(options.trace)) {
  if (!file_ && wants_packets_) throw std::runtime_error("--packets: needs --trace FILE, which gets them");
  if (!file_) return;
  library_ = bed::library_folder() + "/libnccl-profiler-plugfest.so";
  if (!fs::exists(library_))
    throw std::runtime_error(fmt::format("{}: no such file: build the target recorder", library_));
}

JobTrace::~JobTrace() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void JobTrace::start(control::Environment& environment) {
  if (!file_) return;
  std::string folder = (fs::temp_directory_path() / "plugfest-trace-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw_errno(folder + ": cannot make this folder");
  folder_ = folder;
  nccl::set(environment, "NCCL_PROFILER_PLUGIN", library_);
  nccl::set(environment, trace::kRecordingFolderVariable, folder_);
  if (wants_packets_) nccl::set(environment, "PLUGFEST_ROCE_PCAP", packets());
}

void JobTrace::write(std::size_t ranks, const topology::Graph& graph) {
  if (!file_) return;
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    if (entry.path() != packets()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<trace::Recording> recordings;
  for (const std::string& path : paths) recordings.push_back(trace::read_recording(path));
  std::optional<trace::CapturedJob> job;
  if (wants_packets_ && fs::exists(packets())) {
    std::map<std::string, std::string> interfaces;
    for (const topology::Host& host : graph.hosts)
      for (const topology::Interface& interface : host.interfaces)
        interfaces[interface.address.text()] = host.name + '.' + interface.name;
    job = trace::read_job_packets(packets(), std::move(interfaces));
  }
  file_->write(trace::merge(recordings, job ? &*job : nullptr));
  if (recordings.size() < ranks)
    fmt::print(stderr, "plugfest: --trace: only {} of {} ranks left a recording; their logs tell why: --logs FOLDER\n",
               recordings.size(), ranks);
}

}  // namespace plugfest::cli
