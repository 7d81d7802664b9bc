// The connection between controller and agent: handshake, messages, and peers that do not know the token.
#include "harness/cluster/wire/link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace plugfest::cluster {
namespace {

std::pair<Descriptor, Descriptor> sockets() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

/// Both ends of one connection.
struct Ends {
  Link controller, agent;

  explicit Ends(const Token& token = make_token(), const Token& of_agent = {})
      : Ends(sockets(), token, of_agent == Token{} ? token : of_agent) {}
  Ends(std::pair<Descriptor, Descriptor> fds, const Token& token, const Token& of_agent)
      : controller(std::move(fds.first), Link::Side::kController, token),
        agent(std::move(fds.second), Link::Side::kAgent, of_agent) {}

  /// Exchanges all that is sent; neither end has messages for the other one.
  void shake_hands() {
    for (int i = 0; i < 4; ++i) {
      controller.flush();
      EXPECT_TRUE(agent.receive().empty());
      agent.flush();
      EXPECT_TRUE(controller.receive().empty());
    }
  }
};

TEST(Link, CarriesMessagesBothWays) {
  Ends ends;
  ends.shake_hands();
  ASSERT_TRUE(ends.controller.established() && ends.agent.established());
  ends.controller.send({Kind::kData, 7, kMainChannel, 9, std::string(1000, 'x')});
  ends.controller.send({.kind = Kind::kPing});
  const auto there = ends.agent.receive();
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(there[0].kind, Kind::kData);
  EXPECT_EQ(there[0].rank, 7u);
  EXPECT_EQ(there[0].channel, kMainChannel);
  EXPECT_EQ(there[0].opened, 9u);
  EXPECT_EQ(there[0].body, std::string(1000, 'x'));
  ends.agent.send({.kind = Kind::kHello, .body = "hello"});
  EXPECT_EQ(ends.controller.receive().at(0).body, "hello");
}

TEST(Link, GathersMessagesInOneBatch) {
  Ends ends;
  ends.shake_hands();
  ends.controller.gather({.kind = Kind::kPing, .body = "1"});
  ends.controller.gather({.kind = Kind::kMeasure, .rank = 3, .body = "{}", .host = 5});
  EXPECT_TRUE(ends.agent.receive().empty()) << "it waits for flush";
  ends.controller.flush();
  const auto there = ends.agent.receive();
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(there[0].body, "1");
  EXPECT_EQ(there[1].rank, 3u);
  EXPECT_EQ(there[1].host, 5u);
  ends.controller.send({.kind = Kind::kPing});
  ends.agent.receive();
  for (const Link* link : {&ends.controller, &ends.agent}) {
    EXPECT_EQ(link->counters().messages, 3u);
    EXPECT_EQ(link->counters().batches, 2u);
    EXPECT_EQ(link->counters().watching_batches, 1u);
  }
}

TEST(Link, CarriesMoreThanTheSocketHolds) {
  Ends ends;
  ends.shake_hands();
  std::string body(Link::kLargestBody, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 >> 3);
  for (int i = 0; i < 4; ++i) ends.controller.send({.kind = Kind::kData, .body = body});
  EXPECT_TRUE(ends.controller.has_unsent());
  std::size_t received = 0;
  while (received < 4 && ends.agent.failure().empty()) {
    ends.controller.flush();
    for (const Message& message : ends.agent.receive()) {
      EXPECT_TRUE(message.body == body);
      ++received;
    }
  }
  EXPECT_EQ(received, 4u);
}

TEST(Link, RefusesAnAgentWithAnotherToken) {
  Ends ends(make_token(), make_token());
  ends.shake_hands();
  EXPECT_FALSE(ends.controller.established());
  EXPECT_EQ(ends.controller.failure(), "the peer does not know the token");
}

TEST(Link, AnAgentRefusesAControllerWithAnotherToken) {
  // A controller that accepts any agent, and cannot answer it.
  auto [ours, theirs] = sockets();
  Link agent(std::move(theirs), Link::Side::kAgent, make_token());
  const std::string challenge = "pfcert03" + std::string(32, 'n');
  ASSERT_EQ(send(ours.get(), challenge.data(), challenge.size(), 0), static_cast<ssize_t>(challenge.size()));
  agent.receive();
  char answer[72];
  EXPECT_EQ(recv(ours.get(), answer, sizeof answer, MSG_WAITALL), 72);
  const std::string proof(32, 'p');
  ASSERT_EQ(send(ours.get(), proof.data(), proof.size(), 0), static_cast<ssize_t>(proof.size()));
  agent.receive();
  EXPECT_FALSE(agent.established());
  EXPECT_EQ(agent.failure(), "the peer does not know the token");
}

/// What a controller says of a stranger that sends `bytes`.
std::string refusal_of(const std::string& bytes) {
  auto [ours, theirs] = sockets();
  Link controller(std::move(theirs), Link::Side::kController, make_token());
  EXPECT_EQ(send(ours.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  for (int i = 0; i < 8 && controller.failure().empty(); ++i) EXPECT_TRUE(controller.receive().empty());
  EXPECT_FALSE(controller.established());
  return controller.failure();
}

TEST(Link, RefusesAStrangerAtTheFirstWrongByte) {
  EXPECT_EQ(refusal_of("G"), "the peer is no plugfest of this version");
  EXPECT_EQ(refusal_of("pfcert99"), "the peer is no plugfest of this version");
  EXPECT_EQ(refusal_of("pfcert03"), "") << "the rest may follow";
  EXPECT_EQ(refusal_of("pfcert03" + std::string(64, 'x')), "the peer does not know the token");
  EXPECT_EQ(refusal_of("pfcert03" + std::string(100'000, 'x')), "the peer does not know the token");
}

TEST(Link, RefusesTheControllersOwnChallengeAsAnAnswer) {
  const Token token = make_token();
  auto [ours, theirs] = sockets();
  Link controller(std::move(theirs), Link::Side::kController, token);
  controller.flush();
  char challenge[40];
  ASSERT_EQ(recv(ours.get(), challenge, sizeof challenge, MSG_WAITALL), 40);
  const std::string echo = std::string(challenge, sizeof challenge) + std::string(32, '\0');
  ASSERT_EQ(send(ours.get(), echo.data(), echo.size(), 0), static_cast<ssize_t>(echo.size()));
  controller.receive();
  EXPECT_EQ(controller.failure(), "the peer does not know the token");
}

/// A connection through which the test can change what the controller sends.
class Wire {
 public:
  Wire() : first_(sockets()), second_(sockets()), token_(make_token()) {
    controller_.emplace(std::move(first_.first), Link::Side::kController, token_);
    agent_.emplace(std::move(second_.second), Link::Side::kAgent, token_);
    for (int i = 0; i < 4; ++i) {
      controller_->flush();
      carry(first_.second.get(), second_.first.get());
      agent_->receive();
      carry(second_.first.get(), first_.second.get());
      controller_->receive();
    }
    EXPECT_TRUE(controller_->established() && agent_->established());
  }

  Link& controller() { return *controller_; }
  Link& agent() { return *agent_; }
  std::string take() {
    char bytes[4096];
    const ssize_t size = recv(first_.second.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  void give(const std::string& bytes) {
    EXPECT_EQ(send(second_.first.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

 private:
  static void carry(int from, int to) {
    char bytes[4096];
    const ssize_t size = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) {
      EXPECT_EQ(send(to, bytes, static_cast<std::size_t>(size), 0), size);
    }
  }

  std::pair<Descriptor, Descriptor> first_, second_;
  const Token token_;
  std::optional<Link> controller_, agent_;
};

TEST(Link, NoticesAChangeOfAnyByteOfAMessage) {
  Wire sample;
  sample.controller().send({.kind = Kind::kStart, .rank = 1, .body = "{}"});
  const std::size_t size = sample.take().size();
  ASSERT_GT(size, 20u);
  for (std::size_t at = 0; at < size; ++at) {
    Wire wire;
    wire.controller().send({.kind = Kind::kStart, .rank = 1, .body = "{}"});
    std::string bytes = wire.take();
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    wire.give(bytes + std::string(64, '\0'));
    EXPECT_TRUE(wire.agent().receive().empty()) << "byte " << at;
    if (at >= 4) {
      EXPECT_EQ(wire.agent().failure(), "the peer sent a message with a wrong MAC") << "byte " << at;
    }
  }
}

TEST(Link, NoticesAMessageThatIsRepeatedOrLeftOut) {
  Wire wire;
  wire.controller().send({.kind = Kind::kPing});
  const std::string first = wire.take();
  wire.give(first + first);
  EXPECT_EQ(wire.agent().receive().size(), 1u);
  EXPECT_EQ(wire.agent().failure(), "the peer sent a message with a wrong MAC");

  Wire other;
  other.controller().send({.kind = Kind::kPing});
  other.take();
  other.controller().send({.kind = Kind::kPing});
  other.give(other.take());
  EXPECT_TRUE(other.agent().receive().empty());
  EXPECT_EQ(other.agent().failure(), "the peer sent a message with a wrong MAC");
}

TEST(Link, RefusesAMessageThatIsTooLargeBeforeItArrives) {
  Wire wire;
  wire.give(std::string("\xff\xff\xff\x7f", 4) + std::string(16, '\0'));
  EXPECT_TRUE(wire.agent().receive().empty());
  EXPECT_EQ(wire.agent().failure(), "the peer sent a message that is too large");
}

TEST(Token, HasOneFormAsText) {
  const Token token = make_token();
  EXPECT_EQ(token_from_hex(to_hex(token)), token);
  EXPECT_FALSE(token_from_hex(""));
  EXPECT_FALSE(token_from_hex(std::string(63, '0')));
  EXPECT_FALSE(token_from_hex(std::string(63, '0') + "g"));
  EXPECT_FALSE(token_from_hex(std::string(64, 'A')));
}

}  // namespace
}  // namespace plugfest::cluster
