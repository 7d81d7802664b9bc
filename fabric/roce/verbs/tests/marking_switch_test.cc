// ECN with a switch port that marks packets (RED). Runs in a virtual machine, because many kernels have no RED.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "fabric/system/process.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

struct Port {
  unsigned long marked = 0;
  unsigned long dropped = 0;
};

Port port_after(const std::string& output, int ecn) {
  const std::string line = "ecn " + std::to_string(ecn) + ": ";
  Port port;
  const std::size_t found = output.find(line);
  const bool read =
      found != std::string::npos &&
      std::sscanf(output.c_str() + found + line.size(), "marked %lu dropped %lu", &port.marked, &port.dropped) == 2;
  EXPECT_TRUE(read) << output;
  return port;
}

TEST(MarkingSwitch, DropsLessWithEcn) {
  std::vector<std::string> command = {PLUGFEST_GUEST_RUN};
  for (const char* module : {"ib_uverbs", "veth", "bridge", "sch_tbf", "sch_red"})
    command.insert(command.end(), {"--module", module});
  command.insert(command.end(), {"/bin/bash", PLUGFEST_MARKING_SWITCH_SCRIPT, PLUGFEST_ROCE_FOLDER});
  const Finished run = run_program(command);
  ASSERT_EQ(run.exit_code, 0) << run.output << run.errors;
  const Port without = port_after(run.output, 0);
  EXPECT_EQ(without.marked, 0u);
  EXPECT_GT(without.dropped, 0u);
  const Port with = port_after(run.output, 1);
  EXPECT_GT(with.marked, 0u);
  EXPECT_LT(with.dropped, without.dropped);
}

}  // namespace
}  // namespace plugfest::roce::verbs
