// The options of plugfest run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/options/console_option.h"
#include "harness/cli/options/fault_option.h"
#include "harness/cli/options/nic_option.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/options/timeline.h"

namespace plugfest::cli {

struct RunArguments {
  std::string plugin;
  std::vector<std::string> patterns;
  std::string api;
  std::string interface;
  std::string topology = "triangle";
  std::string fabric;
  std::vector<std::string> devices;
  std::string path;
  NicOption nic;
  std::optional<std::uint64_t> seed;
  double timeout_scale = 1;
  bool strict = false;
  int max_failures = 0;
  bool fail_fast = false;
  bool last_failed = false;
  bool list = false;
  bool out_of_band = false;
  bool with_nccl = false;
  int repeat = 1;
  std::string shard;
  std::string loader = "plugfest";
  std::string baseline;
  std::string wrap;
  std::vector<std::string> environment;
  ConsoleOption console;
  Outputs outputs;
  Timeline timeline;
  FaultOption faults;
};

}  // namespace plugfest::cli
