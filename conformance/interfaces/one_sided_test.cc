// Loops of one-sided operations in ranks, with the mesh plugin.
#include "harness/control/one_sided.h"

#include <gtest/gtest.h>

#include "fabric/topology/graph.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/test_bed.h"
#include "harness/control/session.h"

namespace plugfest::control {
namespace {

class OneSidedLoops : public ::testing::Test {
 protected:
  bed::TestBed bed_ = bed::roce_test_bed(topology::named("pair"), false);
  Session session_{bed_.launcher(),
                   bed_.subject(bed::library_folder() + "/libnccl-net-mesh.so", 16, plugin::InterfaceKind::kRma),
                   {.call_seconds = 2}};
  Lease lease_ = session_.lease();
  OneSidedGroup group_{{lease_.rank(bed_.paths().front().near), lease_.rank(bed_.paths().front().far)}};
  Window window_ = group_.window(2000);
  Window signals_ = group_.window(8, abi::kForceStrictOrder);

  CallArguments put(std::size_t from) const { return put_arguments({window_}, {window_, 1000}, 1000, from, 1 - from); }
  CallArguments signal(std::size_t from) const {
    return signal_arguments({signals_}, from, 1 - from, abi::kSignalInc, 1);
  }
};

TEST_F(OneSidedLoops, EndWithASignalAfterTheData) {
  group_[0].rank().fill(window_.memory[0].sub(0, 1000), 7);
  auto at_far = start_loop(group_[1], {.count = 1, .signal = signals_.memory[1]});
  auto at_near =
      start_loop(group_[0], {.function = "iput", .arguments = put(0), .count = 100, .window = 16, .last = signal(0)});
  require_clean(at_near.get());
  require_clean(at_far.get());
  EXPECT_TRUE(group_[1].rank().check(window_.memory[1].sub(1000, 1000), 7));
  group_.require_signal(1, signals_.memory[1], 1);
}

TEST_F(OneSidedLoops, MeasureRoundTripsAndSingleOperations) {
  const auto exchange = [&](std::size_t rank) {
    return OneSidedLoop{.function = "iputSignal",
                        .arguments = with(put(rank), signal(rank)),
                        .count = 20,
                        .signal = signals_.memory[rank],
                        .starts = rank == 0};
  };
  auto at_far = start_loop(group_[1], exchange(1)), at_near = start_loop(group_[0], exchange(0));
  for (auto* const loop : {&at_near, &at_far}) {
    const OneSidedLoopOutcome outcome = loop->get();
    require_clean(outcome);
    EXPECT_GT(outcome.median_ns, 0u);
  }
  const OneSidedLoopOutcome alone = start_loop(group_[0], {.function = "iput", .arguments = put(0), .count = 20}).get();
  require_clean(alone);
  EXPECT_GT(alone.median_ns, 0u);
}

TEST_F(OneSidedLoops, SayWhatDidNotHappen) {
  const OneSidedLoopOutcome waiting = start_loop(group_[1], {.count = 1, .signal = signals_.memory[1]}).get();
  EXPECT_EQ(waiting.broken, "a signal never arrived");
  EXPECT_TRUE(waiting.stalled);
  const OneSidedLoopOutcome outside =
      start_loop(group_[0],
                 {.function = "iput", .arguments = put_arguments({window_}, {window_, 1500}, 1000, 0, 1), .count = 1})
          .get();
  EXPECT_EQ(outside.broken, "iput returned ncclInvalidArgument (4)");
}

}  // namespace
}  // namespace plugfest::control
