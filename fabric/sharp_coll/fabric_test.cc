// The library in processes on hosts of a fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/host_process.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/sharp_coll/testing/loopback_tree.h"
#include "fabric/system/testing.h"
#include "fabric/topology/graph.h"
#include "test_paths.h"

namespace plugfest::sharp_coll {
namespace {

using ::testing::HasSubstr;
using testing::LoopbackTree;

netns::Options with_nics() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { roce::verbs::show_nics_of_this_host(); };
  return options;
}

// Ranks on the hosts of a star. The node and the manager are on the first host.
class SharpFabric : public ::testing::Test {
 protected:
  SharpFabric() : fabric_(topology::named("star:3"), with_nics()) {}

  void start_tree(LoopbackTree::Options options = {}) {
    const topology::Host& host = fabric_.graph().hosts.front();
    options.address = host.interfaces.at(0).address.text();
    fabric_.call(host.name, [&] { tree_ = std::make_unique<LoopbackTree>(std::move(options)); });
  }

  void start_ranks(const std::string& mode) {
    const std::size_t ranks = fabric_.graph().hosts.size();
    for (std::size_t rank = 0; rank < ranks; ++rank)
      ranks_.emplace_back(fabric_, fabric_.graph().hosts[rank].name,
                          std::vector<std::string>{PLUGFEST_SHARP_CHECK, std::to_string(rank), std::to_string(ranks),
                                                   folder_ / "star", mode},
                          std::vector<std::pair<std::string, std::optional<std::string>>>{
                              {"PLUGFEST_SHARP_MANAGER", tree_ ? std::optional(tree_->manager()) : std::nullopt}});
  }

  // Waits until all ranks have received a result.
  void await_running() {
    for (netns::HostProcess& rank : ranks_)
      ASSERT_TRUE(wait_until([&] { return rank.output().find("running") != std::string::npos || rank.has_exited(); }))
          << rank.output();
  }

  ScratchFolder folder_;
  netns::Fabric fabric_;
  std::unique_ptr<LoopbackTree> tree_;
  std::deque<netns::HostProcess> ranks_;
};

TEST_F(SharpFabric, AllCollectivesTypesAndOperatorsAreRight) {
  start_tree();
  start_ranks("all");
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(", 0 invalid packets;"));
  }
}

TEST_F(SharpFabric, AllResultsAreRightWithLoss) {
  start_tree({.loss = 0.01});
  start_ranks("all");
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  }
}

TEST_F(SharpFabric, RanksFailWhenTheManagerEnds) {
  start_tree();
  start_ranks("loop");
  await_running();
  tree_->die();
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 3);
    EXPECT_THAT(finished.output, HasSubstr("it closed the connection: it has ended"));
    EXPECT_THAT(finished.output, HasSubstr("the group has failed (-1)"));
  }
}

TEST_F(SharpFabric, RanksFailWhenAnotherRankIsKilled) {
  start_tree();
  start_ranks("loop");
  await_running();
  kill(ranks_.front().pid(), SIGKILL);
  ranks_.front().wait();
  ranks_.pop_front();
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 3);
    EXPECT_THAT(finished.output, HasSubstr("group 7: a rank has ended"));
  }
}

TEST_F(SharpFabric, InitFailsOnAllRanksWithoutAManager) {
  start_ranks("all");
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 3);
    EXPECT_THAT(finished.output, HasSubstr("sharp_coll_init: no aggregation manager (-8)"));
    EXPECT_THAT(finished.output, HasSubstr("PLUGFEST_SHARP_MANAGER is not set"));
  }
}

}  // namespace
}  // namespace plugfest::sharp_coll
