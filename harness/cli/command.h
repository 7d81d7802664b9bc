// The table of subcommands.
#pragma once

#include "harness/cli/command_line.h"

/// Each subcommand, in the order of --help. A source defines add_NAME() of one subcommand, or of several that share
/// code.
#define PLUGFEST_SUBCOMMANDS(SUBCOMMAND) \
  SUBCOMMAND(run)                        \
  SUBCOMMAND(rules)                      \
  SUBCOMMAND(explain)                    \
  SUBCOMMAND(new)                        \
  SUBCOMMAND(mutants)                    \
  SUBCOMMAND(fuzz)                       \
  SUBCOMMAND(nccl)                       \
  SUBCOMMAND(nvcc)                       \
  SUBCOMMAND(trace)                      \
  SUBCOMMAND(fabric)                     \
  SUBCOMMAND(bench)                      \
  SUBCOMMAND(replay)                     \
  SUBCOMMAND(coll)                       \
  SUBCOMMAND(soak)                       \
  SUBCOMMAND(doctor)                     \
  SUBCOMMAND(report)                     \
  SUBCOMMAND(diff)                       \
  SUBCOMMAND(verdict)                    \
  SUBCOMMAND(schema)                     \
  SUBCOMMAND(certify)                    \
  SUBCOMMAND(verify)

namespace plugfest::cli {

#define PLUGFEST_DECLARE(name) void add_##name(Command program);
PLUGFEST_SUBCOMMANDS(PLUGFEST_DECLARE)
#undef PLUGFEST_DECLARE

// A part of a subcommand that another source defines.
void add_fabric_views(Command fabric);

}  // namespace plugfest::cli
