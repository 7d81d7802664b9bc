// The subcommands of the program.
#pragma once

#include "harness/cli/command_line.h"

namespace plugfest::cli {

void add_run(Command program);
void add_rules(Command program);
void add_explain(Command program);
void add_mutants(Command program);
void add_fuzz(Command program);
void add_nccl(Command program);
void add_fabric(Command program);
void add_bench(Command program);
void add_doctor(Command program);
void add_report(Command program);
void add_diff(Command program);
void add_verdict(Command program);
void add_certify(Command program);
void add_verify(Command program);
void add_replay(Command program);
void add_coll(Command program);

}  // namespace plugfest::cli
