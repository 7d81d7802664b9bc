// A controller and agents in one process: ranks behind a connection, and connections that are refused.
#include "harness/cluster/agents/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <list>
#include <optional>
#include <utility>

#include "fabric/system/testing.h"
#include "harness/cluster/agents/agent.h"
#include "harness/cluster/agents/link.h"
#include "harness/cluster/agents/pair.h"
#include "harness/control/call.h"
#include "harness/control/workload.h"
#include "test_paths.h"

namespace plugfest::cluster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

bool never() { return false; }

// A hub on 127.0.0.1 with agents in threads.
class Cluster {
 public:
  explicit Cluster(const std::vector<std::string>& names) : hub({.address = "127.0.0.1"}) {
    for (const std::string& name : names) join(name);
    EXPECT_TRUE(hub.wait_for(names.size(), 60, never));
  }
  // The result: "" or the error of the agent.
  std::future<std::string>& join(const std::string& name, std::optional<Meeting> meeting = std::nullopt) {
    Descriptor& stop = stops_[name] = Descriptor(eventfd(0, EFD_CLOEXEC));
    agents_.push_back(
        std::async(std::launch::async, [it = meeting.value_or(hub.meeting()), name, stop_fd = stop.get()] {
          try {
            run_agent(it, name, "0", stop_fd);
            return std::string();
          } catch (const std::exception& error) {
            return std::string(error.what());
          }
        }));
    return agents_.back();
  }
  // Ends an agent, which closes its connections.
  void stop(const std::string& name) { EXPECT_EQ(eventfd_write(stops_.at(name).get(), 1), 0); }

 private:
  std::map<std::string, Descriptor> stops_;
  std::list<std::future<std::string>> agents_;

 public:
  // Declared before the agents, which end with it.
  Hub hub;
};

control::Subject toy(const std::string& fault = "") {
  return {.plugin = PLUGFEST_TOY_PLUGIN, .api = 0, .environment = {{"TOY_FAULT", fault}}};
}

TEST(Hub, RanksOfAgentsServeAsThoseOfThisMachine) {
  Cluster cluster({"h1", "h2"});
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  control::Rank one = lease.rank("h1.toy"), two = lease.rank("h2.toy");
  EXPECT_EQ(one.devices(), 1);
  EXPECT_EQ(one.properties(control::Device{0}).name, two.properties(control::Device{0}).name);
  // Uses memory of a rank through a separate thread.
  const control::Memory memory = one.allocate(300'000);
  one.fill(memory, 7);
  EXPECT_TRUE(one.check(memory, 7));
  EXPECT_FALSE(one.check(memory, 8));
  two.freeze();
  two.thaw();
  EXPECT_EQ(two.devices(), 1);
  EXPECT_THROW(one.pid(), control::Unusable);
  two.kill();
  EXPECT_TRUE(two.reaped());
  EXPECT_EQ(one.devices(), 1) << "the rest goes on";
  lease.release(true);
}

TEST(Hub, SaysHowARankEnded) {
  Cluster cluster({"h1"});
  control::Session session(cluster.hub, toy("kill with signals blocked"));
  control::Lease lease = session.lease();
  try {
    lease.rank("h1.toy");
    FAIL() << "the plugin kills the process in init";
  } catch (const control::Crashed& crash) {
    EXPECT_THAT(crash.what(), HasSubstr("rank h1.toy: "));
    EXPECT_THAT(crash.what(), HasSubstr("SIGSYS"));
  }
}

TEST(Hub, OutputOfARankReachesTheController) {
  Cluster cluster({"h1"});
  control::Session session(cluster.hub, toy("print"));
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank("h1.toy");
  // The output has a separate channel, which may lag behind.
  for (int i = 0; i < 10'000 && rank.output().empty(); ++i) rank.devices();
  EXPECT_THAT(rank.output(), HasSubstr("toy plugin prints"));
}

TEST(Hub, RefusesRanksOnHostsThatDidNotJoin) {
  Cluster cluster({"h1"});
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  try {
    lease.rank("h7.toy");
    FAIL();
  } catch (const control::HarnessError& error) {
    EXPECT_STREQ(error.what(), "rank h7.toy cannot be started: host h7 has not joined");
  }
}

TEST(Hub, SaysWhyARankCannotBegin) {
  Cluster cluster({"h1"});
  const Descriptor path(open("/", O_PATH | O_CLOEXEC));  // its flags cannot be changed
  const control::LaunchRequest request = {
      .rank = "h1.toy", .argv = {"rank"}, .environment = {}, .output_fd = path.get(), .descriptors = {}};
  EXPECT_EQ(error_message([&] { cluster.hub.start(request); }),
            "cannot make a channel of a rank non-blocking: Bad file descriptor");
  EXPECT_EQ(cluster.hub.loss_of("h1"), "") << "the host is still there";
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  EXPECT_EQ(lease.rank("h1.toy").devices(), 1);
}

// A connection that sends `request`.
Descriptor connect_to(const Meeting& meeting, const std::string& request = "") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(meeting.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(socket.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  return socket;
}

TEST(Hub, RefusesUntrustedPeersAndCountsThem) {
  Cluster cluster({"h1"});
  Meeting other = cluster.hub.meeting();
  other.token = make_token();
  EXPECT_THAT(cluster.join("h2", other).get(), HasSubstr("the controller: the peer refuses this token"));
  // A host that has joined already, and invalid names.
  for (const char* name : {"h1", "../h3", "h 3"}) EXPECT_THAT(cluster.join(name).get(), HasSubstr("closed")) << name;
  EXPECT_THAT(cluster.join("").get(), HasSubstr("the controller: "));
  const Descriptor socket = connect_to(cluster.hub.meeting(), "GET / HTTP/1.1\r\n\r\n");
  char bytes[64];
  while (recv(socket.get(), bytes, sizeof(bytes), 0) > 0) {
  }
  EXPECT_EQ(cluster.hub.counters().refused, 6u);
  EXPECT_EQ(cluster.hub.hosts().size(), 1u);
}

TEST(Hub, PeersThatSayNothingDelayNobody) {
  Cluster cluster({});
  std::vector<Descriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(cluster.hub.meeting(), i % 2 == 0 ? "" : "\x16\x03\x01"));
  cluster.join("h1");
  EXPECT_TRUE(cluster.hub.wait_for(1, 60, never));
  EXPECT_EQ(cluster.hub.counters().refused, 0u);
}

TEST(Agents, AreAcceptedAfterAPauseIfNoDescriptorIsLeft) {
  const HubOptions options = {.address = "127.0.0.1"};
  const Token token = make_token();
  HubShared shared;
  Agents agents(
      options, token, shared, [](JoinedAgent&, Message) {}, [](JoinedAgent&, const std::string&) {});
  // Returns what was polled: the listener, and connections that were accepted before.
  const auto serve = [&] {
    std::vector<pollfd> polled;
    agents.add_to(polled);
    poll(polled.data(), polled.size(), 0);
    agents.serve(polled.cbegin());
    return polled;
  };
  const Descriptor client = connect_to({options.address, agents.port(), token}, "");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  serve();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(serve().front().fd, -1);
  EXPECT_TRUE(wait_until([&] { return serve().size() == 2; }));
}

TEST(Hub, ExpectsOnlyTheHostsOfTheList) {
  Cluster cluster({});
  cluster.hub.expect({"h1"});
  EXPECT_THAT(cluster.join("h2").get(), HasSubstr("closed"));
  cluster.join("h1");
  EXPECT_TRUE(cluster.hub.wait_for(1, 60, never));
}

TEST(Hub, FactsNameThePluginsFile) {
  Cluster cluster({"h1"});
  const auto hosts = cluster.hub.examine(PLUGFEST_TOY_PLUGIN, never);
  EXPECT_THAT(hosts.at("h1").facts, HasSubstr(sha256_of_file(PLUGFEST_TOY_PLUGIN)));
}

OrderAnswer delegate(Hub& hub, const std::string& host, const std::string& peer, const std::string& order) {
  return hub.delegate({{host, peer, order}}, 1, never).at(0);
}

// The report of a pair that the agents of two hosts measure.
PairReport measured(Hub& hub, const std::string& fault = "", const std::string& one = "h1",
                    const std::string& other = "h2") {
  PairOrder order{.one = one + ".toy", .other = other + ".toy", .subject = toy(fault)};
  order.settings.seconds = 0.001;
  const OrderAnswer answer = delegate(hub, one, other, body_of(order));
  EXPECT_EQ(answer.failure, "");
  return decode_body<PairReport>(answer.text);
}

TEST(Hub, AgentsMeasureAPairByThemselves) {
  Cluster cluster({"h1", "h2"});
  const HubCounters before = cluster.hub.counters();
  const PairReport report = measured(cluster.hub);
  EXPECT_FALSE(report.lost);
  EXPECT_EQ(report.outcome.broken, "");
  EXPECT_GT(report.outcome.forth_bits_per_second, 0);
  EXPECT_GT(report.outcome.back_bits_per_second, 0);
  EXPECT_GT(report.outcome.latency_p50_seconds, 0);
  const HubCounters after = cluster.hub.counters();
  EXPECT_EQ(after.messages - after.watching - (before.messages - before.watching), 4u)
      << "the order, where to join, the same for the other agent, and the report";
  const PairOutcome crashed = measured(cluster.hub, "kill with signals blocked").outcome;
  EXPECT_TRUE(crashed.plugin_failed);
  EXPECT_THAT(crashed.broken, HasSubstr("SIGSYS"));
}

TEST(Hub, MeasuresNoMorePairsAtTheSameTimeThanTheWidth) {
  Cluster cluster({"h1", "h2"});
  const std::string order = body_of(PairOrder{.one = "h1.toy", .other = "h2.toy", .subject = toy()});
  const std::string lost = body_of(PairOrder{.one = "h1.toy", .other = "h7.toy", .subject = toy()});
  const std::vector<OrderAnswer> answers =
      cluster.hub.delegate({{"h1", "h2", order}, {"h1", "h7", lost}, {"h1", "h2", order}}, 1, never);
  EXPECT_EQ(decode_body<PairReport>(answers.at(0).text).outcome.broken, "");
  EXPECT_EQ(answers.at(1).failure, "host h7 has not joined");
  EXPECT_EQ(decode_body<PairReport>(answers.at(2).text).outcome.broken, "");
  EXPECT_TRUE(cluster.hub.delegate({}, 1, never).empty());
}

TEST(Hub, LossOfAnAgentEndsItsRanksAndNothingElse) {
  Cluster cluster({"h1", "h2", "h3"});
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  control::Rank lost = lease.rank("h1.toy"), rank = lease.rank("h3.toy");
  cluster.stop("h1");
  EXPECT_THROW(while (true) lost.devices(), control::Crashed);
  EXPECT_EQ(rank.devices(), 1);
  EXPECT_EQ(measured(cluster.hub, "", "h2", "h3").outcome.broken, "");
  const auto hosts = cluster.hub.hosts();
  EXPECT_THAT(hosts.at("h1").lost, StartsWith("host h1: the connection to its agent has ended: "));
  for (const char* name : {"h2", "h3"}) EXPECT_EQ(hosts.at(name).lost, "") << name;
  const std::string order = body_of(PairOrder{.one = "h1.toy", .other = "h2.toy", .subject = toy()});
  EXPECT_EQ(delegate(cluster.hub, "h1", "h2", order).failure, hosts.at("h1").lost);
}

TEST(Hub, SaysWhyAPairCannotBeMeasured) {
  Cluster cluster({"h1", "h2"});
  const std::string order = body_of(PairOrder{.one = "h1.toy", .other = "h7.toy", .subject = toy()});
  EXPECT_EQ(delegate(cluster.hub, "h1", "h7", order).failure, "host h7 has not joined");
  EXPECT_THAT(delegate(cluster.hub, "h1", "h2", "{}").failure, HasSubstr("host h1: "));
  // h1 waits for h7 and refuses h2.
  EXPECT_THAT(delegate(cluster.hub, "h1", "h2", order).failure, HasSubstr("host h2 cannot join host h1: "));
}

// An agent h1 without ranks, with its answers to each message.
class PretendedAgent {
 public:
  using Answers = std::function<std::vector<Message>(const Message&)>;

  PretendedAgent(const Meeting& meeting, Answers answers)
      : done_(std::async(std::launch::async, [meeting, answers = std::move(answers)] { run(meeting, answers); })) {}

 private:
  static void run(const Meeting& meeting, const Answers& answers) {
    Link link(connect_to(meeting), Link::Side::kAgent, meeting.token, "h1");
    for (bool greeted = false, finished = false; !finished && link.failure().empty();) {
      pollfd ready = link.polled();
      poll(&ready, 1, 10);
      const std::vector<Message> messages = link.receive();
      if (link.established() && !std::exchange(greeted, true)) link.send({.kind = Kind::kHello, .body = "0"});
      for (const Message& message : messages) {
        for (const Message& answer : answers(message)) link.send(answer);
        finished |= message.kind == Kind::kFinish;
      }
    }
  }

  const std::future<void> done_;
};

TEST(Hub, SaysWhyAnAgentEndedARank) {
  std::optional<PretendedAgent> agent;
  Hub hub({.address = "127.0.0.1"});
  agent.emplace(hub.meeting(), [](const Message& message) -> std::vector<Message> {
    if (message.kind != Kind::kStart) return {};
    return {{.kind = Kind::kStarted, .rank = message.rank},
            {.kind = Kind::kFailed, .rank = message.rank, .body = "host h1: no descriptor is left"}};
  });
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  control::Session session(hub, toy());
  control::Lease lease = session.lease();
  try {
    lease.rank("h1.toy");
    FAIL() << "the rank has ended";
  } catch (const control::Crashed& crash) {
    EXPECT_THAT(crash.what(), HasSubstr("host h1: no descriptor is left"));
  }
}

TEST(Hub, ExaminesOnlyTheHostsThatHaveJoinedBefore) {
  std::optional<PretendedAgent> agent;
  Cluster cluster({});
  agent.emplace(cluster.hub.meeting(), [&](const Message& message) -> std::vector<Message> {
    if (message.kind != Kind::kExamine) return {{.kind = Kind::kPong}};
    cluster.join("h2");
    EXPECT_TRUE(cluster.hub.wait_for(2, 60, never));
    return {{.kind = Kind::kFacts, .body = R"({"plugin":"p"})"}};
  });
  ASSERT_TRUE(cluster.hub.wait_for(1, 60, never));
  const auto hosts = cluster.hub.examine("p", never);
  ASSERT_EQ(hosts.size(), 1u);
  EXPECT_EQ(hosts.at("h1").facts, R"({"plugin":"p"})");
}

TEST(Hub, AnExaminationEndsWhenTheUserStopsIt) {
  std::optional<PretendedAgent> agent;
  Hub hub({.address = "127.0.0.1"});
  agent.emplace(hub.meeting(), [](const Message&) { return std::vector<Message>(1, {.kind = Kind::kPong}); });
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  EXPECT_EQ(hub.examine("p", [] { return true; }).at("h1").facts, "");
}

TEST(Hub, NamesAnAgentThatDoesNotAnswer) {
  std::optional<PretendedAgent> agent;
  Hub hub({.address = "127.0.0.1", .host_seconds = 0.5});
  agent.emplace(hub.meeting(), [](const Message&) { return std::vector<Message>(); });
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  ASSERT_TRUE(wait_until([&] { return !hub.loss_of("h1").empty(); }));
  EXPECT_EQ(hub.loss_of("h1"), "host h1 has not answered for 0.5 s");
}

TEST(Hub, ARoundEndsWhenTheUserStopsIt) {
  std::optional<PretendedAgent> agent;
  Hub hub({.address = "127.0.0.1"});
  agent.emplace(hub.meeting(), [](const Message&) { return std::vector<Message>(1, {.kind = Kind::kPong}); });
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  const std::vector<OrderAnswer> answers = hub.delegate({{"h1", "h1", ""}, {"h1", "h1", ""}}, 1, [] { return true; });
  ASSERT_EQ(answers.size(), 2u);
  for (const OrderAnswer& answer : answers) EXPECT_EQ(answer.text + answer.failure, "");
}

TEST(Hub, AddsTheWaitsThatAnAgentReports) {
  std::optional<PretendedAgent> agent;
  Hub hub({.address = "127.0.0.1"});
  agent.emplace(hub.meeting(), [](const Message& message) -> std::vector<Message> {
    if (message.kind == Kind::kEnd) return {{.kind = Kind::kExited, .rank = message.rank, .body = body_of(0)}};
    if (message.kind != Kind::kStart) return {{.kind = Kind::kPong}};
    std::vector<Message> answers = {{.kind = Kind::kStarted, .rank = message.rank}};
    for (const std::string& body : {body_of(Nanoseconds{7'000'000'000'000}), body_of(Nanoseconds{-5}), std::string("x"),
                                    body_of(Nanoseconds{3'000'000'000'000})})
      answers.push_back({.kind = Kind::kWaited, .rank = message.rank, .body = body});
    return answers;
  });
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  const Descriptor output(open("/dev/null", O_WRONLY | O_CLOEXEC));
  control::LaunchRequest request;
  request.rank = "h1.toy";
  request.output_fd = output.get();
  const std::unique_ptr<control::ChildProcess> rank = hub.start(request);
  ASSERT_TRUE(wait_until([&] { return rank->waited()->load() >= 10'000'000'000'000; }));
  // The wait that this machine adds is much shorter.
  EXPECT_LT(rank->waited()->load(), 11'000'000'000'000);
}

TEST(Meeting, HasOneFormAsText) {
  const Meeting meeting{.address = "10.0.0.1", .port = 4711, .token = make_token()};
  EXPECT_EQ(Meeting::parse(meeting.text() + "\n").text(), meeting.text());
  for (const std::string& text : std::vector<std::string>{
           "", "10.0.0.1", "10.0.0.1 4711", "10.0.0.1 4711 00", "10.0.0.1 0 " + to_hex(meeting.token),
           "10.0.0.1 65536 " + to_hex(meeting.token), meeting.text() + " more"})
    EXPECT_THROW(Meeting::parse(text), std::runtime_error) << text;
}

}  // namespace
}  // namespace plugfest::cluster
