#include "fabric/reduction/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plugfest::reduction {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr ConnectionId kFirstNode = 1000;

// A manager of a fabric whose nodes are connected. Connection r + 1 belongs to rank r.
class ManagerTest : public ::testing::Test {
 protected:
  void start(const std::string& topology, Quota quota = {}) {
    graph_ = topology::named(topology);
    const Trees trees(graph_);
    manager_.emplace(trees, quota);
    for (const Tree& tree : trees.all())
      for (const std::size_t index : tree.switches)
        EXPECT_TRUE(say(kFirstNode + index, {{"type", "node"}, {"switch", graph_.switches[index].name}}).empty());
  }

  std::vector<Outgoing> say(ConnectionId from, const json& message) {
    return manager_->receive(from, message.dump(), from >= kFirstNode);
  }

  json create_message(std::size_t interface = 0, const char* mode = "llt") const {
    json ranks = json::array();
    for (const topology::Host& host : graph_.hosts)
      ranks.push_back({{"address", host.interfaces.at(interface).address.text()}, {"port", 5000}});
    return {{"type", "create"}, {"job", 1}, {"mode", mode}, {"ranks", ranks}};
  }

  // Lets all nodes accept their configuration. Returns the messages to others.
  std::vector<Outgoing> let_nodes_accept(const std::vector<Outgoing>& sent) {
    std::vector<Outgoing> others;
    for (const Outgoing& outgoing : sent) {
      if (outgoing.to < kFirstNode)
        others.push_back(outgoing);
      else if (outgoing.message["type"] == "configure")
        for (Outgoing& answer : say(outgoing.to, {{"type", "configured"}, {"group", outgoing.message["group"]}}))
          others.push_back(std::move(answer));
    }
    return others;
  }

  // The answer to a request of a connection, after all nodes have accepted.
  json answer(ConnectionId from, const json& message) {
    const std::vector<Outgoing> sent = let_nodes_accept(say(from, message));
    if (sent.size() != 1 || sent[0].to != from) return {{"type", "not one answer"}};
    return sent[0].message;
  }

  // A group that all ranks have joined. Returns its number.
  std::uint32_t joined_group() {
    const json created = answer(1, create_message());
    EXPECT_EQ(created["type"], "created") << created;
    for (std::size_t rank = 0; rank < graph_.hosts.size(); ++rank)
      EXPECT_EQ(answer(rank + 1, {{"type", "join"}, {"group", created["group"]}, {"rank", rank}})["type"], "joined");
    return created["group"];
  }

  // The connections that get a message of a type.
  static std::vector<ConnectionId> recipients(const std::vector<Outgoing>& sent, const char* type) {
    std::vector<ConnectionId> connections;
    for (const Outgoing& outgoing : sent)
      if (outgoing.message["type"] == type) connections.push_back(outgoing.to);
    return connections;
  }

  topology::Graph graph_;
  std::optional<Manager> manager_;
};

TEST_F(ManagerTest, AGroupGivesEachRankItsNodeAndChild) {
  start("star:4");
  const json created = answer(1, create_message());
  EXPECT_EQ(created["window"], 64);
  EXPECT_EQ(created["max_payload"], 8192);
  ASSERT_EQ(created["nodes"].size(), 4u);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(created["nodes"][rank]["child"], rank);
    EXPECT_EQ(created["nodes"][rank]["port"], kDataPort);
    EXPECT_EQ(created["nodes"][rank]["address"], Trees(graph_).bridge_address(0)->address.text());
  }
}

TEST_F(ManagerTest, ReportsOfNodesGoToTheConnectionThatAsked) {
  start("star:4");
  const ConnectionId asker = kFirstNode + 100;  // local, and no node
  const std::vector<Outgoing> sent = say(asker, {{"type", "report"}});
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].message, (json{{"type", "reporting"}, {"nodes", 1}}));
  EXPECT_EQ(sent[1].to, kFirstNode);
  const std::vector<Outgoing> passed =
      say(kFirstNode, {{"type", "report"}, {"asker", sent[1].message["asker"]}, {"groups", 3}});
  ASSERT_EQ(passed.size(), 1u);
  EXPECT_EQ(passed[0].to, asker);
  EXPECT_EQ(passed[0].message, (json{{"type", "report"}, {"switch", graph_.switches[0].name}, {"groups", 3}}));
  EXPECT_THAT(text_of(say(1, {{"type", "report"}}).at(0).message, "reason"), HasSubstr("only plugfest fabric show"));
}

TEST_F(ManagerTest, ThePayloadFitsTheMtu) {
  start("star:2,mtu=1500");
  EXPECT_EQ(answer(1, create_message())["max_payload"], 1432);
}

TEST_F(ManagerTest, TheCreatorWaitsUntilAllNodesHaveAccepted) {
  start("fat-tree:4");
  const std::vector<Outgoing> sent = say(1, create_message());
  EXPECT_EQ(sent.size(), 13u);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto answers = say(sent[i].to, {{"type", "configured"}, {"group", 1}});
    EXPECT_EQ(answers.size(), i + 1 == sent.size() ? 1u : 0u);
  }
}

TEST_F(ManagerTest, ALostRankFailsTheGroupOfTheOthers) {
  start("star:4");
  const std::uint32_t group = joined_group();
  const std::vector<Outgoing> sent = manager_->closed(3);
  EXPECT_THAT(recipients(sent, "failed"), ::testing::ElementsAre(1, 2, 4));
  EXPECT_THAT(recipients(sent, "remove"), ::testing::ElementsAre(kFirstNode));
  EXPECT_EQ(sent[0].message["group"], group);
  EXPECT_THAT(sent[0].message["reason"], HasSubstr("rank 2 has ended without leaving"));
  EXPECT_EQ(manager_->groups(), 0u);
}

TEST_F(ManagerTest, ALostNodeFailsItsGroupsAndRefusesNewOnes) {
  start("fat-tree:4");
  joined_group();
  const std::vector<Outgoing> sent = manager_->closed(kFirstNode + Trees(graph_).all()[0].switches[0]);
  EXPECT_EQ(recipients(sent, "failed").size(), 16u);
  EXPECT_EQ(recipients(sent, "remove").size(), 12u);
  EXPECT_EQ(answer(1, create_message())["code"], -20);
}

TEST_F(ManagerTest, ANodeThatIsLostBeforeItAcceptsRefusesTheGroup) {
  start("star:2");
  say(1, create_message());
  const std::vector<Outgoing> sent = manager_->closed(kFirstNode);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message["code"], -20);
}

TEST_F(ManagerTest, AGroupFailsWhenARankLeavesDuringAnOperation) {
  start("star:2");
  joined_group();
  const std::vector<Outgoing> sent = say(1, {{"type", "leave"}, {"unfinished", true}});
  EXPECT_THAT(recipients(sent, "left"), ::testing::ElementsAre(1));
  EXPECT_THAT(recipients(sent, "failed"), ::testing::ElementsAre(2));
  EXPECT_THAT(recipients(sent, "remove"), ::testing::ElementsAre(kFirstNode));
}

TEST_F(ManagerTest, AGroupEndsWhenAllRanksHaveLeft) {
  start("star:2");
  joined_group();
  EXPECT_EQ(answer(1, {{"type", "leave"}})["type"], "left");
  EXPECT_TRUE(manager_->closed(1).empty());
  EXPECT_THAT(recipients(say(2, {{"type", "leave"}}), "remove"), ::testing::ElementsAre(kFirstNode));
  EXPECT_TRUE(manager_->closed(2).empty());
}

TEST_F(ManagerTest, ACreatorThatEndsBeforeItJoinsEndsTheGroup) {
  start("star:2");
  answer(1, create_message());
  EXPECT_THAT(recipients(manager_->closed(1), "remove"), ::testing::ElementsAre(kFirstNode));
  EXPECT_EQ(answer(2, {{"type", "join"}, {"group", 1}, {"rank", 1}})["code"], -14);
}

TEST_F(ManagerTest, HostsWithoutSwitchesGetNoTree) {
  start("triangle");
  EXPECT_EQ(answer(1, create_message())["code"], -13);
}

TEST_F(ManagerTest, AGroupBeyondTheQuotaIsRefused) {
  start("star:2", {.groups = 1, .osts = 16});
  json message = create_message();
  message["osts"] = 100'000;
  EXPECT_EQ(answer(1, message)["code"], -7);
  message["osts"] = 17;
  EXPECT_EQ(answer(1, message)["code"], -7);
  message["osts"] = 8;
  EXPECT_EQ(answer(1, message)["window"], 8);
  EXPECT_EQ(answer(2, create_message())["code"], -7);
  manager_->closed(1);
  EXPECT_EQ(answer(2, create_message())["type"], "created");
}

TEST_F(ManagerTest, ATreeHasOneStreamingLock) {
  start("rail:2,2");
  EXPECT_EQ(answer(1, create_message(0, "sat"))["type"], "created");
  const json refusal = answer(2, create_message(0, "sat"));
  EXPECT_EQ(refusal["code"], -18);
  EXPECT_THAT(refusal["reason"], HasSubstr("group 1 holds the SAT lock"));
  EXPECT_EQ(answer(2, create_message(0, "llt"))["type"], "created");
  EXPECT_EQ(answer(3, create_message(1, "sat"))["type"], "created") << "the other rail has its own tree";
  manager_->closed(1);
  EXPECT_EQ(answer(4, create_message(0, "sat"))["type"], "created");
}

TEST_F(ManagerTest, ARankJoinsOnce) {
  start("star:2");
  joined_group();
  EXPECT_EQ(answer(5, {{"type", "join"}, {"group", 1}, {"rank", 1}})["code"], -6);
  EXPECT_EQ(answer(5, {{"type", "join"}, {"group", 1}, {"rank", 2}})["code"], -10);
  EXPECT_EQ(answer(5, {{"type", "join"}, {"group", 2}, {"rank", 0}})["code"], -14);
  EXPECT_EQ(answer(2, {{"type", "join"}, {"group", 1}, {"rank", 1}})["code"], -6);
}

TEST_F(ManagerTest, BadRequestsAreRefused) {
  start("star:2");
  for (const char* change :
       {R"({"job": -1})", R"({"job": "x"})", R"({"mode": "fast"})", R"({"mode": 3})", R"({"ranks": []})",
        R"({"ranks": 5})", R"({"ranks": [1]})", R"({"ranks": [{"address": "10.0.0.x", "port": 1}]})",
        R"({"ranks": [{"address": "10.0.0.1", "port": 0}]})", R"({"ranks": [{"address": "10.0.0.1", "port": 65536}]})",
        R"({"ranks": [{"address": "10.0.0.1", "port": 1}, {"address": "10.0.0.1", "port": 1}]})", R"({"osts": 0})",
        R"({"osts": 1.5})"}) {
    json message = create_message();
    message.update(json::parse(change));
    EXPECT_EQ(answer(1, message)["code"], -10) << change;
  }
}

TEST_F(ManagerTest, AConnectionThatBreaksTheProtocolIsClosed) {
  start("star:2");
  for (const char* line : {"", "{", "[]", "null", "\xff", R"({"type": 1})", R"({"type": "node", "switch": "s1"})",
                           R"({"type": "configured", "group": 1})", "{}"}) {
    const std::vector<Outgoing> sent = manager_->receive(1, line, false);
    ASSERT_EQ(sent.size(), 1u) << line;
    EXPECT_TRUE(sent[0].closes) << line;
    EXPECT_EQ(sent[0].message["type"], "error") << line;
  }
}

TEST(LineReader, CutsLinesAndRefusesLongOnes) {
  LineReader reader(8);
  EXPECT_TRUE(reader.add("ab"));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.add("c\nde\nf"));
  EXPECT_EQ(reader.next(), "abc");
  EXPECT_EQ(reader.next(), "de");
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.add("2345678"));
  EXPECT_FALSE(reader.add("9"));
}

}  // namespace
}  // namespace plugfest::reduction
