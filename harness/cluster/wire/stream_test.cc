// The two ends of a stream, whose ways are lost and replaced.
#include "harness/cluster/wire/stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plugfest::cluster {
namespace {

struct Side {
  Stream stream;
  std::vector<std::string> arrived;

  void take(const Message& message) {
    arrived.push_back(message.body);
    stream.count(message);
  }
};

TEST(Stream, LosesAndRepeatsNothingWhenItsWayChanges) {
  Side agent, controller;
  const auto to_controller = [&](const Message& message) { controller.take(message); };
  agent.stream.send({.kind = Kind::kData, .body = "before there is a way"});
  agent.stream.take(to_controller, controller.stream.received());
  agent.stream.send({.kind = Kind::kData, .body = "arrives, and is not acknowledged"});
  agent.stream.lose_way();
  EXPECT_FALSE(agent.stream.has_way());
  agent.stream.take([](const Message&) {}, controller.stream.received());
  agent.stream.send({.kind = Kind::kMeasured, .body = "lost with its way"});
  agent.stream.take(to_controller, controller.stream.received());
  EXPECT_EQ(controller.arrived, (std::vector<std::string>{"before there is a way", "arrives, and is not acknowledged",
                                                          "lost with its way"}));
}

TEST(Stream, KeepsWhatIsNotAcknowledged) {
  Side agent, controller;
  agent.stream.take([&](const Message& message) { controller.take(message); }, 0);
  for (int i = 0; i < 3; ++i) agent.stream.send({.kind = Kind::kData, .body = "1234"});
  EXPECT_EQ(agent.stream.unacknowledged_bytes(), 12u);
  agent.stream.acknowledge("2");
  EXPECT_EQ(agent.stream.unacknowledged_bytes(), 4u);
  agent.stream.acknowledge("1");
  agent.stream.acknowledge("no number");
  EXPECT_EQ(agent.stream.unacknowledged_bytes(), 4u);
  agent.stream.acknowledge(std::to_string(controller.stream.received()));
  EXPECT_EQ(agent.stream.unacknowledged_bytes(), 0u);
}

TEST(Stream, AsksToAcknowledgeManyBytesAtOnce) {
  Stream stream;
  const Message message{.kind = Kind::kData, .body = std::string(100'000, 'x')};
  EXPECT_FALSE(stream.count(message));
  EXPECT_FALSE(stream.count(message));
  EXPECT_TRUE(stream.count(message));
  EXPECT_FALSE(stream.count(message));
}

}  // namespace
}  // namespace plugfest::cluster
