// SK rules, and the CN and CL rules about repeated connections: bugs that show only after many messages, bytes,
// connections or descriptors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "conformance/net/script/flow.h"
#include "fabric/system/clock.h"
#include "harness/control/workload.h"
#include "harness/traffic/growth.h"

namespace plugfest::conformance {

namespace {

class SoakRule : public MessageRule {
 protected:
  // [S]: the work leaves no descriptors, threads or memory behind in either process.
  void require_no_growth(const Endpoint& sender, const Endpoint& receiver, const traffic::RepeatedWork& repeated) {
    for (const std::string& leak : traffic::growth({sender.rank, receiver.rank}, stall_limit(), repeated))
      should(false, leak);
  }
};

}  // namespace

RULE_ON(SoakRule, SK_01, Must, ApiRange::all(),  //
        .title = "a comm carries any number of messages",
        .text =
            "Messages arrive with their sizes and bytes however many the comm has carried. No counter or identifier of "
            "about 16 bits overflows.",
        .source =
            "transport/net.cc: a comm lives as long as its communicator, and the proxies count its messages in 64 bits",
        .why = "If a counter overflows, a job fails, or computes a wrong result, after minutes or days.",
        .check = "Sends 102,400 small messages on one comm and compares the size and the bytes of each.",
        .blind = "Counters of more than 16 bits; plugfest run --thorough sends ten times as many messages.",
        .alone = true) {
  be_alone();
  const Connection connection = connect(near_endpoint(), far_endpoint());
  judge_sizes([&] {
    stream(connection.send, connection.receive,
           {.count = repeated(std::uint64_t{102'400}),
            .seed = random()(),
            .sizes = {1, 8, 24, 64},
            .window = 8,
            .check_sizes = true});
  });
}

RULE_ON(
    SoakRule, SK_02, Should, ApiRange::all(),  //
    .title = "messages leave nothing behind",
    .text = "After messages are done, the process has as many descriptors and threads and as much memory as before.",
    .source = "applications that run for weeks",
    .why = "If each message leaves something behind, the memory of a job grows until it is killed.",
    .check =
        "Sends three batches of 8,192 messages on one comm, and compares the descriptors, threads and resident "
        "memory of both processes after each batch. What grows in every batch leaks.",
    .blind = "Leaks of less than 32 bytes for each message.", .alone = true) {
  be_alone();
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection connection = connect(sender, receiver);
  constexpr int kMessages = 8192;
  require_no_growth(
      sender, receiver,
      {.calls = repeated(1), .units = kMessages, .name = "messages", .least_bytes = 32, .work = [&] {
         stream(connection.send, connection.receive,
                {.count = kMessages, .seed = random()(), .sizes = {8, 1000}, .window = 8, .check_every = 64});
       }});
}

RULE_ON(SoakRule, SK_03, Must, ApiRange::all(),  //
        .title = "a comm carries more than 4 GiB",
        .text = "Messages arrive however many bytes the comm has carried. No counter of 32 bits overflows.",
        .source = "transport/net.cc: a comm lives as long as its communicator",
        .why =
            "If a counter overflows at 4 GiB, a job fails after its first seconds of traffic, and no shorter test "
            "shows it.",
        .check = "Sends 4.1 GiB in messages of 1 MiB on one comm, and compares the bytes of every 512th message.",
        .blind =
            "Counters of bytes with more than 32 bits. A plugin that needs more than 30 s is tested with --thorough "
            "only.",
        .alone = true) {
  be_alone();
  constexpr std::uint64_t kMessages = 4200, kTrial = 128;
  constexpr double kMaxSeconds = 30;
  const Connection connection = connect(near_endpoint(), far_endpoint());
  const auto send = [&](std::uint64_t count) {
    stream(connection.send, connection.receive,
           {.count = count, .seed = random()(), .sizes = {1 << 20}, .window = 4, .check_every = 512});
  };
  const Stopwatch stopwatch;
  send(kTrial);
  const double seconds = stopwatch.seconds() * kMessages / kTrial;
  if (seconds > kMaxSeconds && !context().thorough)
    skip(fmt::format("takes about {:.0f} s with this plugin: add --thorough", seconds));
  send(kMessages - kTrial);
}

RULE_ON(SoakRule, SK_04, Must, ApiRange::all(),  //
        .title = "a process may have more than 1,024 descriptors",
        .text =
            "A plugin works in a process that has many descriptors, so that its own have numbers above 1,024, the size "
            "of select's sets.",
        .source = "bootstrap.cc: setFilesLimit raises the limit of descriptors; frameworks open thousands",
        .why =
            "If the plugin uses select with larger numbers, select writes past the end of its set: large jobs fail at "
            "start, or "
            "their memory is damaged.",
        .check = "Opens 2,000 descriptors before init, then connects and sends messages.") {
  const RankOptions crowded = {.environment = {{"PLUGFEST_RANK_DESCRIPTORS", "2000"}}};
  const Endpoint sender = near_endpoint(crowded), receiver = far_endpoint(crowded);
  deliver(sender, receiver, connect(sender, receiver), {.size = 100'000, .seed = random()()});
}

RULE_ON(
    SoakRule, SK_05, Should, ApiRange::all(),  //
    .title = "registrations leave nothing behind",
    .text = "After regMr and deregMr, the process has as many descriptors and threads and as much memory as before.",
    .source = "transport/net.cc: NCCL registers buffers of the application again and again",
    .why = "If each registration leaves something behind, the memory of a job grows until it is killed.",
    .check =
        "Registers and deregisters memory of eight sizes three times 2,048 times on both comms, and compares the "
        "descriptors, threads and resident memory of both processes after each 2,048. What grows each time leaks.",
    .blind = "Leaks of less than 32 bytes for each registration, and leaks of GPU memory.", .alone = true) {
  be_alone();
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection connection = connect(sender, receiver);
  constexpr int kRegistrations = 2048;
  // A plugin may start a thread with the first message of each of its sockets.
  stream(connection.send, connection.receive, {.count = 256, .seed = random()(), .sizes = {8}, .window = 8});
  require_no_growth(
      sender, receiver,
      {.calls = repeated(1), .units = kRegistrations, .name = "registrations", .least_bytes = 32, .work = [&] {
         stream(connection.send, connection.receive, {.count = 1, .seed = random()(), .registrations = kRegistrations});
       }});
}

RULE_ON(SoakRule, CN_16, Should, ApiRange::all(),  //
        .title = "listen and closeListen without accept leak nothing",
        .text = "NCCL may close a listener without an accept. This leaves no file descriptor, thread or memory behind.",
        .source = "transport/net.cc: of the ranks that share a comm, one accepts and the others close their listeners",
        .why =
            "Only one of the ranks that share a comm accepts; the others close their listeners unused. What is left "
            "accumulates with each communicator.",
        .check =
            "Calls listen and closeListen three times 150 times, and compares descriptors, threads and resident memory "
            "after each 150. What grows each time leaks.",
        .blind = "Leaks of less than 4 KiB for each cycle.",
        .faults = {{"aws/aws-ofi-nccl#598", "listen leaked a string on every call"},
                   {"NVIDIA/nccl#550", "descriptors ran out while connecting"}}) {
  Endpoint endpoint = near_endpoint();
  const std::vector<std::string> leaks = traffic::growth(
      {endpoint.rank}, stall_limit(),
      {.warm_up = 50, .calls = repeated(150), .name = "listeners were closed", .least_bytes = 4096, .work = [&] {
         endpoint.rank.listen(endpoint.device).close();
       }});
  expect(leaks.empty(), fmt::format("{}", fmt::join(leaks, "\n")));
}

RULE_ON(
    SoakRule, CN_27, Should, ApiRange::all(),  //
    .title = "connections can be made and closed many times",
    .text =
        "Two processes connect and close again any number of times. No identifier runs out, and no descriptor, thread "
        "or memory stays behind. Descriptors may close some time after the call.",
    .source = "applications that create and destroy communicators in a loop",
    .why =
        "If each connection leaves something behind, a job that creates and destroys communicators fails after hours.",
    .check =
        "Connects and closes three times 100 times between two processes, and compares the descriptors, threads and "
        "resident memory of both after each 100. What grows each time leaks.",
    .blind = "Leaks of less than 1 KiB for each connection, and identifiers with more than 8 bits.",
    .faults = {{"aws/aws-ofi-nccl#310", "identifiers of comms ran out"},
               {"aws/aws-ofi-nccl#1182", "each closed receive comm left memory behind"},
               {"NVIDIA/nccl#127", "descriptors leaked while connecting"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  require_no_growth(
      sender, receiver,
      {.warm_up = 20, .calls = repeated(100), .name = "connections were closed", .least_bytes = 1024, .work = [&] {
         Connection connection = connect(sender, receiver);
         connection.send.close();
         connection.receive.close();
       }});
}

RULE_ON(
    SoakRule, CL_05, Should, ApiRange::all(),  //
    .title = "connections that were used leave nothing behind",
    .text =
        "After messages, deregMr and close, the process has as many descriptors and threads and as much memory as "
        "before. They may disappear some time after the call.",
    .source = "applications that create and destroy communicators in a loop",
    .why =
        "If each connection leaves something behind, a job that creates and destroys communicators fails after hours.",
    .check =
        "Connects, registers, sends 64 KiB, deregisters and closes three times 20 times, and compares descriptors, "
        "threads and resident memory after each 20. What grows each time leaks.",
    .faults = {{"aws/aws-ofi-nccl#1182", "each closed receive comm left memory behind"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kSize = 65536;
  Memory source = sender.rank.allocate(kSize), target = receiver.rank.allocate(kSize);
  require_no_growth(
      sender, receiver,
      {.warm_up = 10, .calls = 20, .name = "connections with a message", .least_bytes = 4096, .work = [&] {
         Connection connection = connect(sender, receiver);
         Registration from = connection.send.reg(source), to = connection.receive.reg(target);
         transfer(sender.rank, connection.send, from, receiver.rank, connection.receive, to, random()(), "a message");
         from.dereg();
         to.dereg();
         connection.send.close();
         connection.receive.close();
       }});
}

}  // namespace plugfest::conformance
