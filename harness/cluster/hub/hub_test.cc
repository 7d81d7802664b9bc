// A controller and agents in one process: ranks behind a connection, and connections that are refused.
#include "harness/cluster/hub/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fabric/system/file.h"
#include "harness/cluster/measure/delegation.h"
#include "harness/cluster/wire/link.h"
#include "harness/control/call.h"
#include "harness/control/workload.h"
#include "test_paths.h"

namespace plugfest::cluster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

bool never() { return false; }

/// A hub on 127.0.0.1 with agents in threads, which join in the order of their names.
class Cluster {
 public:
  explicit Cluster(const std::vector<std::string>& names, std::size_t fan_out = 32)
      : hub({.address = "127.0.0.1", .fan_out = fan_out}) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      join(names[i]);
      EXPECT_TRUE(hub.wait_for(i + 1, 60, never));
    }
  }
  /// The result: "" or the error of the agent.
  std::future<std::string>& join(const std::string& name, std::optional<Meeting> meeting = std::nullopt) {
    Descriptor& stop = stops_[name] = Descriptor(eventfd(0, EFD_CLOEXEC));
    agents_.push_back(
        std::async(std::launch::async, [it = meeting.value_or(hub.meeting()), name, stop_fd = stop.get()] {
          try {
            run_agent(it, name, "0", stop_fd, true);
            return std::string();
          } catch (const std::exception& error) {
            return std::string(error.what());
          }
        }));
    return agents_.back();
  }
  /// Ends an agent, which closes its connections.
  void stop(const std::string& name) { EXPECT_EQ(eventfd_write(stops_.at(name).get(), 1), 0); }

 private:
  std::map<std::string, Descriptor> stops_;
  std::list<std::future<std::string>> agents_;

 public:
  /// Before the agents, which end with it.
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
  // Memory of a rank, through a thread of its own.
  const control::Memory memory = one.allocate(300'000);
  one.fill(memory, 7);
  EXPECT_TRUE(one.check(memory, 7));
  EXPECT_FALSE(one.check(memory, 8));
  two.freeze();
  two.thaw();
  EXPECT_EQ(two.devices(), 1);
  EXPECT_THROW(one.pid(), control::Unusable);
  two.kill();
  EXPECT_FALSE(two.alive());
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
  // The output has a channel of its own, which may be behind.
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

TEST(Hub, RefusesStrangersAndCountsThem) {
  Cluster cluster({"h1"});
  Meeting stranger = cluster.hub.meeting();
  stranger.token = make_token();
  EXPECT_THAT(cluster.join("h2", stranger).get(), HasSubstr("the controller: "));
  // The same host twice, and names that no host can have.
  for (const char* name : {"h1", "", "../h3", "h 3"})
    EXPECT_THAT(cluster.join(name).get(), HasSubstr("closed")) << name;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(cluster.hub.meeting().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(socket.get(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  char bytes[64];
  while (recv(socket.get(), bytes, sizeof bytes, 0) > 0) {
  }
  EXPECT_EQ(cluster.hub.counters().refused, 6u);
  EXPECT_EQ(cluster.hub.hosts().size(), 1u);
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
  cluster.hub.examine(PLUGFEST_TOY_PLUGIN);
  EXPECT_THAT(cluster.hub.hosts().at("h1").facts, HasSubstr(sha256_of_file(PLUGFEST_TOY_PLUGIN)));
}

Hub::Answer delegate(Hub& hub, const std::string& host, const std::string& peer, const std::string& order) {
  return hub.delegate({{host, peer, order}}, 1, never).at(0);
}

/// What the agent of one host measures with that of another one.
PairReport measured(Hub& hub, const std::string& fault = "", const std::string& one = "h1",
                    const std::string& other = "h2") {
  PairOrder order{.one = one + ".toy", .other = other + ".toy", .subject = toy(fault)};
  order.settings.seconds = 0.001;
  const Hub::Answer answer = delegate(hub, one, other, order.text());
  EXPECT_EQ(answer.failure, "");
  return PairReport::parse(answer.text);
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

TEST(Hub, AgentsCarryTheMessagesOfOthers) {
  Cluster cluster({"h1", "h2", "h3", "h4", "h5", "h6"}, 2);
  EXPECT_EQ(cluster.hub.counters().connections, 2u);
  cluster.hub.examine(PLUGFEST_TOY_PLUGIN);
  for (const auto& [name, host] : cluster.hub.hosts()) EXPECT_THAT(host.facts, HasSubstr("sha256")) << name;
  // Of one carrier, of both, and a carrier itself.
  for (const auto& [one, other] : {std::pair("h3", "h5"), {"h3", "h4"}, {"h6", "h1"}}) {
    EXPECT_EQ(measured(cluster.hub, "", one, other).outcome.broken, "") << one << " " << other;
  }
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank("h3.toy");
  const control::Memory memory = rank.allocate(300'000);
  rank.fill(memory, 7);
  EXPECT_TRUE(rank.check(memory, 7));
  lease.release(true);
  EXPECT_EQ(cluster.hub.counters().connections, 2u);
}

TEST(Hub, ReportsOfOneRoundComeInFewBatches) {
  std::vector<std::string> names;
  for (int i = 1; i <= 12; ++i) names.push_back("h" + std::to_string(i));
  Cluster cluster(names, 2);
  std::vector<Hub::Order> orders;
  for (std::size_t i = 2; i < names.size(); i += 2) {
    const PairOrder order{.one = names[i] + ".toy", .other = names[i + 1] + ".toy", .subject = toy()};
    orders.push_back({names[i], names[i + 1], order.text()});
  }
  const HubCounters before = cluster.hub.counters();
  for (const Hub::Answer& answer : cluster.hub.delegate(orders, orders.size(), never)) {
    EXPECT_EQ(PairReport::parse(answer.text).outcome.broken, "");
  }
  const HubCounters after = cluster.hub.counters();
  EXPECT_EQ(after.messages - after.watching - (before.messages - before.watching), 20u);
  EXPECT_LT(after.batches - after.watching_batches - (before.batches - before.watching_batches), 20u);
}

TEST(Hub, MeasuresNoMorePairsAtTheSameTimeThanTheWidth) {
  Cluster cluster({"h1", "h2"});
  const std::string order = PairOrder{.one = "h1.toy", .other = "h2.toy", .subject = toy()}.text();
  const std::string lost = PairOrder{.one = "h1.toy", .other = "h7.toy", .subject = toy()}.text();
  const std::vector<Hub::Answer> answers =
      cluster.hub.delegate({{"h1", "h2", order}, {"h1", "h7", lost}, {"h1", "h2", order}}, 1, never);
  EXPECT_EQ(PairReport::parse(answers.at(0).text).outcome.broken, "");
  EXPECT_EQ(answers.at(1).failure, "host h7 has not joined");
  EXPECT_EQ(PairReport::parse(answers.at(2).text).outcome.broken, "");
  EXPECT_TRUE(cluster.hub.delegate({}, 1, never).empty());
}

TEST(Hub, AgentsFindAnotherWayWhenTheirCarrierIsLost) {
  Cluster cluster({"h1", "h2", "h3", "h4"}, 1);
  control::Session session(cluster.hub, toy());
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank("h3.toy");
  EXPECT_EQ(rank.devices(), 1);
  cluster.stop("h1");
  // Nothing of the rank is lost meanwhile.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rank.devices(), 1);
  EXPECT_EQ(measured(cluster.hub, "", "h2", "h4").outcome.broken, "");
  lease.release(true);
  const auto hosts = cluster.hub.hosts();
  EXPECT_THAT(hosts.at("h1").lost, StartsWith("host h1: its agent is gone: "));
  for (const char* name : {"h2", "h3", "h4"}) EXPECT_EQ(hosts.at(name).lost, "") << name;
}

/// An agent in a process of its own.
class AgentProcess {
 public:
  explicit AgentProcess(const std::string& name) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    input_ = Descriptor(ends[1]);
    const Descriptor output(ends[0]);
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char text[256];
    const ssize_t size = read(output.get(), text, sizeof text);
    run_agent(Meeting::parse({text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))}), name, "0", -1, true);
    _exit(0);
  }
  ~AgentProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  void join(Hub& hub) {
    const std::string text = hub.meeting().text();
    EXPECT_EQ(write(input_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_TRUE(hub.wait_for(1, 60, never));
  }
  void freeze() const { EXPECT_EQ(kill(pid_, SIGSTOP), 0); }

 private:
  Descriptor input_;
  pid_t pid_ = -1;
};

TEST(Hub, AgentsFindAnotherWayWhenTheirCarrierIsFrozen) {
  AgentProcess carrier("h1");  // before this process has threads
  Cluster cluster({}, 1);
  carrier.join(cluster.hub);
  cluster.join("h2");
  ASSERT_TRUE(cluster.hub.wait_for(2, 60, never));
  control::Limits limits;
  limits.call_seconds = 60;
  control::Session session(cluster.hub, toy(), limits);
  control::Lease lease = session.lease();
  control::Rank rank = lease.rank("h2.toy");
  carrier.freeze();
  EXPECT_EQ(rank.devices(), 1);
  EXPECT_EQ(cluster.hub.loss_of("h2"), "");
  lease.release(true);
}

TEST(Hub, ARoundEndsWhenTheUserStopsIt) {
  AgentProcess agent("h1");
  Cluster cluster({});
  agent.join(cluster.hub);
  cluster.join("h2");
  ASSERT_TRUE(cluster.hub.wait_for(2, 60, never));
  agent.freeze();
  const std::string order = PairOrder{.one = "h1.toy", .other = "h2.toy", .subject = toy()}.text();
  const std::vector<Hub::Answer> answers =
      cluster.hub.delegate({{"h1", "h2", order}, {"h1", "h2", order}}, 1, [] { return true; });
  ASSERT_EQ(answers.size(), 2u);
  for (const Hub::Answer& answer : answers) EXPECT_EQ(answer.text + answer.failure, "");
}

TEST(Hub, NamesAnAgentThatIsGoneBehindItsCarrier) {
  Cluster cluster({"h1", "h2"}, 1);
  cluster.stop("h2");
  const std::string order = PairOrder{.one = "h2.toy", .other = "h1.toy", .subject = toy()}.text();
  EXPECT_THAT(delegate(cluster.hub, "h2", "h1", order).failure, StartsWith("host h2: its agent is gone: "));
  EXPECT_EQ(cluster.hub.loss_of("h1"), "");
}

TEST(Hub, SaysWhyAPairCannotBeMeasured) {
  Cluster cluster({"h1", "h2"});
  const std::string order = PairOrder{.one = "h1.toy", .other = "h7.toy", .subject = toy()}.text();
  EXPECT_EQ(delegate(cluster.hub, "h1", "h7", order).failure, "host h7 has not joined");
  EXPECT_THAT(delegate(cluster.hub, "h1", "h2", "{}").failure, HasSubstr("host h1: "));
  // h1 waits for h7 and refuses h2.
  EXPECT_THAT(delegate(cluster.hub, "h1", "h2", order).failure, HasSubstr("host h2 cannot join host h1: "));
}

/// An agent without a rank: it says that the rank has started and waited.
void pretend_to_start(const Meeting& meeting) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(meeting.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  Link link(std::move(socket), Link::Side::kAgent, meeting.token);
  for (bool greeted = false, finished = false; !finished && link.failure().empty();) {
    link.flush();
    if (link.established() && !std::exchange(greeted, true)) {
      link.send({.kind = Kind::kHello, .body = R"({"name": "h1", "version": "0"})"});
    }
    pollfd ready{link.fd(), POLLIN, 0};
    poll(&ready, 1, 10);
    for (const Message& message : link.receive()) {
      if (message.kind == Kind::kPing) link.send({.kind = Kind::kPong});
      if (message.kind == Kind::kEnd) link.send({.kind = Kind::kExited, .rank = message.rank, .body = "0"});
      finished |= message.kind == Kind::kFinish;
      if (message.kind != Kind::kStart) continue;
      link.send({.kind = Kind::kStarted, .rank = message.rank});
      for (const char* nanoseconds : {"7000000000000", "-5", "x", "3000000000000"})
        link.send({.kind = Kind::kWaited, .rank = message.rank, .body = nanoseconds});
    }
  }
}

TEST(Hub, AddsTheWaitsThatAnAgentReports) {
  std::future<void> agent;
  Hub hub({.address = "127.0.0.1"});
  agent = std::async(std::launch::async, pretend_to_start, hub.meeting());
  ASSERT_TRUE(hub.wait_for(1, 60, never));
  const Descriptor output(open("/dev/null", O_WRONLY | O_CLOEXEC));
  control::LaunchRequest request;
  request.rank = "h1.toy";
  request.output_fd = output.get();
  const std::unique_ptr<control::ChildProcess> rank = hub.start(request);
  while (rank->waited()->load() < 10'000'000'000'000) std::this_thread::yield();
  // What this machine adds is much less.
  EXPECT_LT(rank->waited()->load(), 11'000'000'000'000);
}

TEST(Meeting, HasOneFormAsText) {
  const Meeting meeting{.address = "10.0.0.1", .port = 4711, .token = make_token()};
  EXPECT_EQ(Meeting::parse(meeting.text() + "\n").text(), meeting.text());
  for (const std::string& text : std::vector<std::string>{
           "", "10.0.0.1", "10.0.0.1 4711", "10.0.0.1 4711 00", "10.0.0.1 0 " + to_hex(meeting.token),
           "10.0.0.1 65536 " + to_hex(meeting.token), meeting.text() + " more"}) {
    EXPECT_THROW(Meeting::parse(text), std::runtime_error) << text;
  }
}

}  // namespace
}  // namespace plugfest::cluster
