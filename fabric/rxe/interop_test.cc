// Interoperation of the user-space NIC and the kernel's rxe: perftest and rdma-core programs on both, in a guest, each
// as client and as server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric/system/process.h"
#include "test_paths.h"

namespace plugfest::rxe {
namespace {

const std::vector<std::string> kChecks = {
    "rc_pingpong=ibv_rc_pingpong -c -n 20",
    "rc_pingpong_of_long_messages=ibv_rc_pingpong -c -s 100001 -n 10 -m 4096",
    "rc_pingpong_with_events=ibv_rc_pingpong -e -n 10",
    "ud_pingpong=ibv_ud_pingpong -n 20",
    "uc_pingpong=ibv_uc_pingpong -n 20",
    "send=ib_send_bw -n 10",
    "write=ib_write_bw -n 10",
    "read=ib_read_bw -n 10",
    "fetch_and_add=ib_atomic_bw -n 10",
    "compare_and_swap=ib_atomic_bw -A CMP_AND_SWAP -n 10",
    "datagrams=ib_send_bw -c UD -n 10",
    "rc_pingpong_with_loss=ibv_rc_pingpong -c -n 30",
    "write_with_loss=ib_write_bw -n 10",
    "read_with_loss=ib_read_bw -n 10",
    "immediate_and_atomics=" PLUGFEST_VERBS_EXCHANGE " rc",
    "immediate_unreliably=" PLUGFEST_VERBS_EXCHANGE " uc",
    "immediate_in_datagrams=" PLUGFEST_VERBS_EXCHANGE " ud",
    "reliable_over_ipv6=" PLUGFEST_VERBS_EXCHANGE " rc",
    "datagrams_over_link_local=" PLUGFEST_VERBS_EXCHANGE " ud",
    "send_with_netem=ib_send_bw -n 10",
    "atomics_with_netem=" PLUGFEST_VERBS_EXCHANGE " rc",
};

TEST(RxeInterop, ProgramsRunBetweenBothNics) {
  std::vector<std::string> command = {PLUGFEST_GUEST_RUN};
  for (const char* module : {"rdma_rxe", "crc32_generic", "ib_uverbs", "rdma_ucm", "veth", "sch_netem"})
    command.insert(command.end(), {"--module", module});
  command.insert(command.end(), {"/bin/bash", PLUGFEST_INTEROP_SCRIPT, PLUGFEST_ROCE_FOLDER});
  command.insert(command.end(), kChecks.begin(), kChecks.end());
  const Finished run = run_program(command);
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  for (const std::string& check : kChecks) {
    const std::string name = check.substr(0, check.find('='));
    for (const char* client : {" client:ours\n", " client:kernel\n"})
      EXPECT_THAT(run.output, testing::HasSubstr("ok " + name + client));
  }
}

}  // namespace
}  // namespace plugfest::rxe
