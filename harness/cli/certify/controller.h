// The controller of plugfest certify: from the first agent to the archive.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/certify/agents.h"
#include "harness/cli/options.h"

namespace plugfest::cli {

struct CertifyArguments : RuleOptions {
  std::string api;
  std::string hosts;
  std::string launch_agent = "ssh -o BatchMode=yes -o ConnectTimeout=20";
  std::string remote_program;
  std::string interface;
  std::string meeting;
  std::string output = "certification.tar";
  std::vector<std::string> skip;
  double join_seconds = 60;
  double host_seconds = 20;
  double pair_seconds = 0.2;
  double load_seconds = 5;
  double soak_minutes = 0;
  int width = 0;
  int rounds = 0;
  bool is_agent = false;
  std::string name;

  bool skips(const std::string& phase) const { return std::find(skip.begin(), skip.end(), phase) != skip.end(); }
};

/// Returns the exit code. `task`: this process, if mpirun or srun starts the agents. Errors: std::runtime_error.
int certify_hosts(CertifyArguments& arguments, const std::optional<JobTask>& task);

}  // namespace plugfest::cli
