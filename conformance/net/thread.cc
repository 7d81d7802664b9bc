// TH rules: concurrent calls from several threads.
#include <fmt/format.h>
#include <signal.h>
#include <sys/types.h>

#include <map>
#include <set>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "fabric/system/process.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

RULE_ON(
    MessageRule, TH_02, Must, ApiRange::all(),  //
    .title = "different comms may be used from different threads",
    .text =
        "Different comms of one device and context are used from different threads at the same time, and the caller "
        "takes no lock.",
    .source = "one progress thread per GPU; all GPUs of a process share a device",
    .why =
        "All GPUs of a process share the NICs, each with its own progress thread. A race between these threads "
        "corrupts messages or crashes the process.",
    .check =
        "Streams 800 messages on each of four connections, each with its own thread at both endpoints. Then, on "
        "x86-64, streams messages on two connections: one thread executes some of its calls instruction by "
        "instruction, while the other one makes whole calls in between.",
    .blind =
        "Races of calls other than isend, irecv and test, and races outside the plugin's own code that four threads "
        "do not show; run the plugin with ThreadSanitizer for those.",
    .faults = {{"aws/aws-ofi-nccl#143", "test, closeRecv and registration raced with each other"}}) {
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  constexpr std::size_t kThreads = 4;
  std::vector<Connection> connections;
  for (std::size_t i = 0; i < kThreads; ++i) connections.push_back(connect(sender, receiver));
  const auto stream_on_threads = [&](const std::vector<StreamPlan>& plans) {
    std::vector<Started<StreamOutcome>> streams;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const std::string thread = fmt::format("prog{}", i);
      streams.push_back(start_receiving(connections[i].receive.on(thread), plans[i]));
      streams.push_back(start_sending(connections[i].send.on(thread), plans[i]));
    }
    require_all_clean(std::move(streams));
  };
  std::vector<StreamPlan> plans;
  for (std::size_t i = 0; i < kThreads; ++i)
    plans.push_back({.count = repeated(std::uint64_t{800}), .seed = random()(), .sizes = {1, 64, 4096, 20000}});
  stream_on_threads(plans);
  // A step may copy 8 bytes or fewer.
  const auto plan = [&](std::uint64_t count, std::uint64_t stepping_seed) {
    return StreamPlan{.count = count,
                      .seed = random()(),
                      .sizes = {8, 64, 200},
                      .window = 8,
                      .check_sizes = true,
                      .stepping_seed = stepping_seed};
  };
  judge_sizes([&] { stream_on_threads({plan(repeated(200u), random()()), plan(repeated(800u), 0)}); });
}

RULE_ON(
    MessageRule, TH_03, Must, ApiRange::all(),  //
    .title = "service and progress threads run concurrently",
    .text =
        "One thread calls regMr, deregMr, listen, connect, close and setNetAttr while another calls isend, irecv and "
        "test, on the same comm where possible. [S] for regMr and deregMr if maxRecvs is 1, the run has a GPU and the "
        "device does not support its memory: NCCL then registers before it transfers.",
    .source = "proxy.cc: ncclProxyService and ncclProxyProgress; aws-ofi-nccl #143, #1055",
    .why =
        "The service thread connects and registers while the progress thread transfers, often on the same comm. If "
        "the threads wait for each other, the job hangs; if they race, messages are corrupted.",
    .check = "Registers, connects, sets attributes and closes 20 times while another thread streams messages.",
    .blind = "Deadlocks that need three threads.",
    .faults = {{"aws/aws-ofi-nccl#1055", "the service and the progress thread deadlocked"},
               {"aws/aws-ofi-nccl#143", "test, closeRecv and registration raced with each other"},
               {"aws/aws-ofi-nccl#968", "regMr deadlocked"}}) {
  const auto use_services = [&](bool registers) {
    Endpoint from = sender(), to = receiver();
    Connection connection = connect(from, to);
    Memory memory = from.rank.allocate(65536);
    during_streams(connection, random(), 20, [&] {
      std::optional<Registration> registration;
      if (registers) registration = connection.send.reg(memory);
      Connection other = connect(from, to);
      if (!from.rank.contexts().empty()) from.rank.on("svc").try_set_net_attributes(from.rank.contexts().front(), {});
      other.send.close();
      other.receive.close();
      if (registration) registration->dereg();
    });
  };
  const bool registers = registers_during_transfers();
  use_services(registers);
  if (!registers) probe([&] { use_services(true); });
}

RULE_ON(MessageRule, TH_04, Should, ApiRange::all(),  //
        .title = "a comm may be used by any thread",
        .text = "The threads that create, use and close a comm may all be different ones.",
        .source = "proxy.cc: the service thread connects and closes, the progress thread transfers",
        .why =
            "If the plugin keeps state in one thread, it is missing in another one. NCCL uses only two threads for a "
            "comm, but another program or a later NCCL may use more.",
        .check =
            "Posts six messages from six threads, tests them from the same six, removes the registrations on another "
            "thread and closes on yet another.") {
  constexpr std::size_t kMessages = 6;
  Flow flow = make_flow(kMessages, 3000);
  for (std::size_t i = 0; i < kMessages; ++i) {
    const std::string thread = fmt::format("prog{}", i);
    traffic().receive(flow.recv_comm().on(thread), flow.target(i));
    traffic().send(flow.send_comm().on(thread), flow.fill(i));
  }
  flow.finish();
  for (const Registered* memory : {&flow.from(), &flow.to()}) memory->registration.on("svc2").dereg();
  flow.send_comm().on("svc3").close();
  flow.recv_comm().on("svc3").close();
}

RULE(TH_06, Should, ApiRange::all(),  //
     .title = "threads of the plugin take no signals and sleep when idle",
     .text =
         "A thread that the plugin starts blocks the signals of the application and uses no processor while no "
         "connection has anything to do.",
     .source = "the plugin runs inside the user's program, whose handlers belong to its own threads",
     .why =
         "If a thread of the plugin does not block signals, a signal handler of the application runs on a thread that "
         "is not prepared for it, or a system call of the plugin is interrupted. A thread that polls takes a processor "
         "from the application.",
     .check =
         "Notes the threads before init. After a message and the closes, looks whether each new thread blocks SIGINT, "
         "SIGUSR1, SIGALRM, SIGTERM and SIGCHLD, and waits until it sleeps.",
     .blind = "Threads that end before the comms are closed, and those that poll with short pauses.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  for (const char* thread : {"main", "svc", "prog"}) rank.on(thread).plugin_name();  // starts the harness's threads
  rank.process();
  std::set<pid_t> before;
  for (const ThreadFacts& thread : threads_of(rank.pid())) before.insert(thread.id);
  const std::uint64_t context = rank.init();
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  Connection connection = connect(sender, receiver);
  deliver(sender, receiver, connection, {.size = 1000, .seed = random()()});
  connection.send.close();
  connection.receive.close();

  // A thread that is still ending uses little CPU time, even if it waits long for a processor.
  constexpr double kMaxSeconds = 0.2;
  std::set<pid_t> asleep;
  std::map<pid_t, double> used;
  for (bool awake = true; awake;) {
    awake = false;
    for (const ThreadFacts& thread : threads_of(rank.pid())) {
      // The threads of plugfest's NIC are not part of the plugin, and also forward packets to other processes.
      if (before.contains(thread.id) || thread.name.starts_with("roce-")) continue;
      for (const int signal : {SIGINT, SIGUSR1, SIGALRM, SIGTERM, SIGCHLD}) {
        expect((thread.blocked >> (signal - 1) & 1) != 0, [&] {
          return fmt::format("rank {}: thread \"{}\" of the plugin does not block {}, expected that it blocks all",
                             rank.name(), thread.name, signal_name(signal));
        });
      }
      if (!thread.runs) asleep.insert(thread.id);
      if (asleep.contains(thread.id)) continue;
      awake = true;
      const double first = used.emplace(thread.id, thread.cpu_seconds).first->second;
      expect(thread.cpu_seconds < first + kMaxSeconds, [&] {
        return fmt::format(
            "rank {}: thread \"{}\" of the plugin has used {} s of CPU time without a pause since the last "
            "close, expected that it sleeps",
            rank.name(), thread.name, kMaxSeconds);
      });
    }
  }
  rank.finalize(context);
}

namespace {

// Several processes on each of the two devices.
class SharedDevice : public MessageRule {
 protected:
  // Sends a message before and after `processes` - 1 more pairs of processes do the same.
  void exchange(int processes) {
    Flow flow = make_flow(2, 4700);
    flow.exchange(0);
    if (processes > 1) on_new_ranks([&] { exchange(processes - 1); });
    flow.exchange(1);
  }
};

}  // namespace

RULE_ON(SharedDevice, TH_08, Should, ApiRange::all(),  //
        .title = "several processes use one device",
        .text = "Eight processes of a host use the same device at the same time.",
        .source = "one process per GPU is the usual launch",
        .why = "If a device serves only some processes, the other processes of a host cannot use the NIC.",
        .check =
            "Connects two ranks and sends a message, starts seven more pairs of ranks on the same hosts and devices, "
            "one after the other, which do the same, and sends a message on each connection again.",
        .blind = "More than eight processes for each device, and messages of all at the same time.") {
  exchange(8);
}

}  // namespace plugfest::conformance
