#include "harness/cli/traffic/job_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/nccl/load.h"
#include "harness/nccl/rank_environment.h"
#include "harness/trace/messages.h"
#include "harness/trace/recording.h"
#include "harness/trace/timeline.h"

namespace plugfest::cli {

namespace fs = std::filesystem;

JobTrace::JobTrace(const JobOptions& options)
    : wants_packets_(options.packets), file_(report::open_output(options.trace)) {
  if (!file_ && wants_packets_) throw std::runtime_error("--packets: needs --trace FILE, which gets them");
  if (!file_) return;
  library_ = bed::library_folder() + "/libnccl-profiler-plugfest.so";
  if (!fs::exists(library_))
    throw std::runtime_error(fmt::format("{}: no such file; in a clone, scripts/plugfest builds it", library_));
}

void JobTrace::start(control::Environment& environment) {
  if (!file_) return;
  folder_.emplace();
  nccl::set(environment, "NCCL_PROFILER_PLUGIN", library_);
  nccl::set(environment, nccl::kRecorderVariable, library_);
  nccl::set(environment, trace::kRecordingFolderVariable, folder_->path().string());
  if (!wants_packets_) return;
  constexpr const char* kHeaderBytes = "128";
  nccl::set(environment, "PLUGFEST_ROCE_PCAP", packets());
  nccl::set(environment, "PLUGFEST_ROCE_PCAP_SENT", kHeaderBytes);
}

void JobTrace::write(std::size_t ranks, const topology::Graph& graph) {
  if (!file_) return;
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_->path()))
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
