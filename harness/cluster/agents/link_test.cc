// The connection between controller and agent: messages, and peers that do not know the token.
#include "harness/cluster/agents/link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "fabric/system/descriptor_passing.h"

namespace plugfest::cluster {
namespace {

// Moves available bytes from `from` to `to`; returns them.
std::string carry(const Descriptor& from, const Descriptor& to) {
  char bytes[4096];
  const ssize_t size = recv(from.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (size <= 0) return "";
  EXPECT_EQ(send(to.get(), bytes, static_cast<std::size_t>(size), 0), size);
  return {bytes, static_cast<std::size_t>(size)};
}

// Both ends of one connection. All data passes through the test.
struct Ends {
  explicit Ends(const Token& token = make_token(), const Token& of_agent = {})
      : controller(std::move(near.first), Link::Side::kController, token),
        agent(std::move(far.first), Link::Side::kAgent, of_agent == Token{} ? token : of_agent, "h1") {}

  std::pair<Descriptor, Descriptor> near = make_socket_pair(), far = make_socket_pair();
  Link controller, agent;
  // All bytes that the agent has sent in the handshake.
  std::string said = {};

  void shake_hands() {
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(agent.receive().empty());
      said += carry(far.second, near.second);
      EXPECT_TRUE(controller.receive().empty());
      carry(near.second, far.second);
    }
  }
  // The bytes that the controller has sent and the agent has not received.
  std::string take() const {
    char bytes[4096];
    return {bytes, static_cast<std::size_t>(
                       std::max<ssize_t>(recv(near.second.get(), bytes, sizeof(bytes), MSG_DONTWAIT), 0))};
  }
  void give(const std::string& bytes) const {
    EXPECT_EQ(send(far.second.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
};

TEST(Link, CarriesMessagesBothWays) {
  Ends ends;
  ends.shake_hands();
  ASSERT_TRUE(ends.controller.established() && ends.agent.established());
  EXPECT_EQ(ends.controller.host(), "h1");
  ends.controller.send({Kind::kData, 7, kMainChannel, 9, std::string(1000, 'x')});
  ends.controller.send({.kind = Kind::kPing});
  const std::string sent = ends.take();
  EXPECT_EQ(sent.find("xxxx"), std::string::npos) << "it is encrypted";
  ends.give(sent);
  const auto there = ends.agent.receive();
  ASSERT_EQ(there.size(), 2u);
  EXPECT_EQ(there[0].kind, Kind::kData);
  EXPECT_EQ(there[0].rank, 7u);
  EXPECT_EQ(there[0].channel, kMainChannel);
  EXPECT_EQ(there[0].opened, 9u);
  EXPECT_EQ(there[0].body, std::string(1000, 'x'));
  ends.agent.send({.kind = Kind::kHello, .body = "hello"});
  carry(ends.far.second, ends.near.second);
  EXPECT_EQ(ends.controller.receive().at(0).body, "hello");
  for (const Link* link : {&ends.controller, &ends.agent}) EXPECT_EQ(link->counters().messages, 3u);
}

TEST(Link, CarriesMoreThanTheSocketHolds) {
  Ends ends;
  ends.shake_hands();
  std::string body(Link::kMaxBody, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 >> 3);
  for (int i = 0; i < 4; ++i) ends.controller.send({.kind = Kind::kData, .body = body});
  EXPECT_NE(ends.controller.unsent_bytes(), 0u);
  std::size_t received = 0;
  while (received < 4 && ends.agent.failure().empty()) {
    ends.controller.receive();
    carry(ends.near.second, ends.far.second);
    for (const Message& message : ends.agent.receive()) {
      EXPECT_TRUE(message.body == body);
      ++received;
    }
  }
  EXPECT_EQ(received, 4u);
}

TEST(Link, RefusesAPeerWithAnotherToken) {
  Ends ends(make_token(), make_token());
  ends.shake_hands();
  EXPECT_FALSE(ends.controller.established() || ends.agent.established());
  EXPECT_EQ(ends.controller.failure(), "the peer does not know the token");
  EXPECT_EQ(ends.agent.failure(), "the peer refuses this token or this version of plugfest");
}

TEST(Link, KeepsTheFirstReasonIfThePeerHasClosed) {
  Ends ends(make_token(), make_token());
  for (const bool is_last : {false, true}) {  // the controller asks for a second message before it checks the token
    EXPECT_TRUE(ends.agent.receive().empty());
    carry(ends.far.second, ends.near.second);
    if (is_last) ends.near.second.close();  // so the alert cannot be sent
    EXPECT_TRUE(ends.controller.receive().empty());
    if (!is_last) carry(ends.near.second, ends.far.second);
  }
  EXPECT_EQ(ends.controller.failure(), "the peer does not know the token");
}

// The controller's error for a peer that sends `bytes`.
std::string refusal_of(const std::string& bytes) {
  auto [ours, theirs] = make_socket_pair();
  Link controller(std::move(theirs), Link::Side::kController, make_token());
  EXPECT_EQ(send(ours.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  for (int i = 0; i < 8 && controller.failure().empty(); ++i) EXPECT_TRUE(controller.receive().empty());
  EXPECT_FALSE(controller.established());
  return controller.failure();
}

TEST(Link, RefusesAPeerThatDoesNotSpeakTls) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"), std::string(1 << 16, '\xff'), std::string(5, '\0')})
    EXPECT_EQ(refusal_of(bytes), "the peer is not plugfest of this version");
  EXPECT_EQ(refusal_of(std::string("\x16\x03\x01", 3)), "") << "it may go on";
}

TEST(Link, SurvivesAChangeOfAnyByteOfAHandshake) {
  Ends sample;
  sample.shake_hands();
  ASSERT_GT(sample.said.size(), 100u);
  for (std::size_t at = 0; at < sample.said.size(); ++at) {
    std::string bytes = sample.said;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    refusal_of(bytes);
  }
}

TEST(Link, NoticesAChangeOfAnyByteOfAMessage) {
  Ends sample;
  sample.shake_hands();
  sample.controller.send({.kind = Kind::kStart, .rank = 1, .body = "{}"});
  const std::size_t size = sample.take().size();
  ASSERT_GT(size, 20u);
  for (std::size_t at = 0; at < size; ++at) {
    Ends ends;
    ends.shake_hands();
    ends.controller.send({.kind = Kind::kStart, .rank = 1, .body = "{}"});
    std::string bytes = ends.take();
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    ends.give(bytes + std::string(512, '\0'));
    EXPECT_TRUE(ends.agent.receive().empty()) << "byte " << at;
    // The header of a record has its type, its version and its size.
    EXPECT_EQ(ends.agent.failure(), at >= 5 ? "the peer sent a message with a wrong MAC" : ends.agent.failure())
        << "byte " << at;
    EXPECT_NE(ends.agent.failure(), "") << "byte " << at;
  }
}

TEST(Link, NoticesAMessageThatIsRepeatedOrLeftOut) {
  Ends ends;
  ends.shake_hands();
  ends.controller.send({.kind = Kind::kPing});
  const std::string first = ends.take();
  ends.give(first + first);
  EXPECT_EQ(ends.agent.receive().size(), 1u);
  EXPECT_EQ(ends.agent.failure(), "the peer sent a message with a wrong MAC");

  Ends other;
  other.shake_hands();
  other.controller.send({.kind = Kind::kPing});
  other.take();
  other.controller.send({.kind = Kind::kPing});
  other.give(other.take());
  EXPECT_TRUE(other.agent.receive().empty());
  EXPECT_EQ(other.agent.failure(), "the peer sent a message with a wrong MAC");
}

TEST(Link, RefusesAMessageThatIsTooLargeBeforeItArrives) {
  Ends ends;
  ends.shake_hands();
  ends.controller.send({.kind = Kind::kData, .body = std::string(Link::kMaxBody + 100, 'x')});
  while (ends.agent.failure().empty()) {
    ends.controller.receive();
    carry(ends.near.second, ends.far.second);
    EXPECT_TRUE(ends.agent.receive().empty());
  }
  EXPECT_EQ(ends.agent.failure(), "the peer sent a message that is too large");
  EXPECT_LT(ends.agent.counters().bytes, 100'000u);
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
