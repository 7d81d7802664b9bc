// The plugin in processes on hosts of a fabric with an aggregation node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstddef>
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

namespace sharp {
namespace {

using ::testing::HasSubstr;
namespace netns = plugfest::netns;
namespace topology = plugfest::topology;
using plugfest::Finished;
using plugfest::sharp_coll::testing::LoopbackTree;
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

netns::Options with_nics() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { plugfest::roce::verbs::show_nics_of_this_host(); };
  return options;
}

// Ranks on the hosts of a star. The node and the manager are on the first host.
class SharpPluginTest : public ::testing::Test {
 protected:
  SharpPluginTest() : fabric_(topology::named("star:3"), with_nics()) {
    const topology::Host& host = fabric_.graph().hosts.front();
    LoopbackTree::Options options;
    options.address = host.interfaces.at(0).address.text();
    fabric_.call(host.name, [&] { tree_ = std::make_unique<LoopbackTree>(std::move(options)); });
  }

  void start(const std::string& mode, Environment more = {}) {
    const std::size_t rank = ranks_.size();
    more.emplace_back("LD_LIBRARY_PATH", PLUGFEST_ROCE_FOLDER);
    more.emplace(more.begin(), "PLUGFEST_SHARP_MANAGER", tree_->manager());
    ranks_.emplace_back(
        fabric_, fabric_.graph().hosts[rank].name,
        std::vector<std::string>{PLUGFEST_SHARP_PLUGIN_CHECK, PLUGFEST_SHARP_PLUGIN, std::to_string(rank),
                                 std::to_string(ranks_in_all_), folder_ / "star", mode},
        std::move(more));
  }

  void expect_failed_connect(netns::HostProcess& rank, const std::string& line) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 3) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(", NULL\n"));
    EXPECT_THAT(finished.output, HasSubstr(line));
  }

  plugfest::ScratchFolder folder_;
  netns::Fabric fabric_;
  std::unique_ptr<LoopbackTree> tree_;
  int ranks_in_all_ = 3;
  std::deque<netns::HostProcess> ranks_;
};

TEST_F(SharpPluginTest, AllCollectivesAreRight) {
  for (int i = 0; i < 3; ++i) start("all");
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
  }
  EXPECT_EQ(tree_->await_leaves(), 12);  // four times
}

TEST_F(SharpPluginTest, OneRankNeedsNoSwitch) {
  ranks_in_all_ = 1;
  start("all", {{"PLUGFEST_SHARP_MANAGER", std::nullopt}});
  const Finished finished = ranks_.front().wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
}

TEST_F(SharpPluginTest, ConnectFailsOnAllRanksIfOneIsRefused) {
  start("all");
  start("all", {{"PLUGFEST_SHARP_MANAGER", std::nullopt}});
  start("all");
  for (netns::HostProcess& rank : ranks_)
    expect_failed_connect(rank,
                          "sharp_coll_comm_init: no aggregation manager (-8): check that the aggregation manager");
}

// The next rank waits for a connection that never comes, and hears of the end from the rank behind it.
TEST_F(SharpPluginTest, ConnectFailsOnAllRanksIfOneHasEnded) {
  for (const char* mode : {"join", "leave", "join"}) start(mode);
  for (const std::size_t i : {0u, 2u}) expect_failed_connect(ranks_[i], "WARN COLLNET/sharp: connect: rank ");
}

TEST_F(SharpPluginTest, ConnectHasATimeLimit) {
  const Environment limit = {{"NCCL_SHARP_CONNECT_TIMEOUT", "2"}};
  for (const char* mode : {"join", "absent", "join"}) start(mode, limit);
  for (const std::size_t i : {0u, 2u}) expect_failed_connect(ranks_[i], "WARN COLLNET/sharp: connect: ");
}

TEST_F(SharpPluginTest, CollectivesFailWhenARankIsKilled) {
  for (int i = 0; i < 3; ++i) start("loop");
  for (netns::HostProcess& rank : ranks_)
    ASSERT_TRUE(plugfest::wait_until([&] {
      return rank.output().find("running") != std::string::npos || rank.has_exited();
    })) << rank.output();
  kill(ranks_.front().pid(), SIGKILL);
  ranks_.front().wait();
  ranks_.pop_front();
  for (netns::HostProcess& rank : ranks_) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.exit_code, 4);
    EXPECT_THAT(finished.output, HasSubstr("the group has failed (-1): a rank, a switch or the aggregation manager "
                                           "failed: see the logs of all ranks"));
    EXPECT_THAT(finished.output, HasSubstr("returned 6"));
  }
}

}  // namespace
}  // namespace sharp
