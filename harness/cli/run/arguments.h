// The options of plugfest run.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/options/console_option.h"
#include "harness/cli/options/fault_option.h"
#include "harness/cli/options/nic_option.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/options/rule_options.h"
#include "harness/cli/options/timeline.h"
#include "harness/cli/run/captures.h"

namespace plugfest::cli {

struct RunArguments : RuleOptions {
  std::string api;
  std::string interface;
  std::string topology = "triangle";
  std::string fabric;
  std::vector<std::string> devices;
  std::string path;
  NicOption nic;
  int max_failures = 0;
  bool fail_fast = false;
  bool last_failed = false;
  bool list = false;
  bool out_of_band = false;
  bool with_nccl = false;
  bool emulate_gpu = false;
  bool thorough = false;
  int repeat = 1;
  std::string shard;
  std::string wrap;
  std::vector<std::string> environment;
  ConsoleOption console;
  Outputs outputs;
  Timeline timeline;
  FaultOption faults;
  Captures captures;
};

}  // namespace plugfest::cli
