#include "harness/cli/traffic/job_trace.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "fabric/system/file.h"
#include "harness/bed/test_bed.h"
#include "harness/trace/recording.h"
#include "harness/trace/timeline.h"
#include "harness/traffic/nccl/rank_environment.h"

namespace plugfest::cli {

namespace fs = std::filesystem;

JobTrace::JobTrace(const std::string& path) : file_(report::open_output(path)) {
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
}

void JobTrace::write(std::size_t ranks) {
  if (!file_) return;
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<trace::Recording> recordings;
  for (const std::string& path : paths) recordings.push_back(trace::read_recording(path));
  file_->write(trace::merge(recordings));
  if (recordings.size() < ranks)
    fmt::print(stderr, "plugfest: --trace: only {} of {} ranks left a recording; their logs tell why: --logs FOLDER\n",
               recordings.size(), ranks);
}

}  // namespace plugfest::cli
