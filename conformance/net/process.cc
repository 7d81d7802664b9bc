// IN and LD rules: unload, exit and fork of a process, side effects of loading, and other versions of the interface.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/library_check.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/plugin/inspect.h"

namespace plugfest::conformance {

RULE(
    IN_04, Must, ApiRange::up_to(10).libraries_only(),  //
    .title = "the library can be unloaded with comms open",
    .text =
        "Versions up to v10 have no finalize: NCCL unloads the library when the last communicator is destroyed, even "
        "when comms were left open.",
    .source = "plugin/net/net_v10.cc: ncclNet_finalize only counts",
    .why =
        "If a thread or a handler of the plugin still runs after the unload, it runs code that is no longer mapped, "
        "and the process crashes.",
    .check = "Unloads the library with a listener, a half-open connection and a connection open, and waits a moment.") {
  Endpoint endpoint = near_endpoint({.fresh = true}), peer = far_endpoint({.fresh = true});
  Connection open = connect(endpoint, peer);
  deliver(endpoint, peer, open, {.size = 1000, .seed = random()()});
  Listener own = endpoint.rank.listen(endpoint.device), listener = peer.rank.listen(peer.device);
  Connect half_open = endpoint.rank.connect(endpoint.device, listener.handle());
  half_open.poll();
  endpoint.rank.unload();
  for (int i = 0; i < 400; ++i) endpoint.rank.process();  // a crash of a thread ends the rule
}

RULE(IN_16, Should, ApiRange::all(),  //
     .title = "a process exits with comms open",
     .text =
         "A process that calls exit without closing its comms and without finalize neither hangs nor crashes. A "
         "program may also close its comms in an exit handler that runs after the plugin's handlers.",
     .source = "frameworks that never destroy their communicators, or do so in a destructor of a global object",
     .why = "If exit hangs or crashes, the job does not end, or ends with a crash report.",
     .check =
         "Sends a message and calls exit(0) in one rank. In a second process, also closes the comms in an exit handler "
         "that was registered before the library was loaded.",
     .faults = {{"aws/aws-ofi-nccl#730", "an exit handler freed memory that a later close used"}}) {
  for (const bool close_comms : {false, true}) {
    on_new_ranks([&] {
      Endpoint leaver = near_endpoint(), other = far_endpoint();
      Connection out = connect(leaver, other), back = connect(other, leaver);
      deliver(leaver, other, out, {.size = 1000, .seed = random()()});
      deliver(other, leaver, back, {.size = 70000, .seed = random()()});
      leaver.rank.exit(close_comms);
    });
  }
}

RULE(IN_17, Should, ApiRange::all(),  //
     .title = "a process may fork and run other programs",
     .text =
         "After a fork whose child exits, and after a program has been started, comms still work. Descriptors of the "
         "plugin are close-on-exec.",
     .source = "Python's subprocess in data loaders",
     .why =
         "A child that inherits descriptors keeps connections open after its parent has closed them. A child that runs "
         "the plugin's exit handlers ends the connections of its parent.",
     .check = "Forks and starts /bin/true between messages. Lists the descriptors that a started program inherits.") {
  Endpoint sender = near_endpoint({.fresh = true}), receiver = far_endpoint({.fresh = true});
  Connection connection = connect(sender, receiver);
  for (Rank rank : {sender.rank, receiver.rank}) {
    for (const auto child : {Rank::Child::kExits, Rank::Child::kRunsAnotherProgram}) {
      const int status = rank.fork(child);
      expect(status == 0, fmt::format("rank {}: a child process ended with status {:#x}", rank.name(), status));
      deliver(sender, receiver, connection, {.size = 70000, .seed = random()()});
    }
    const std::vector<std::string> inherited = inherited_descriptors(rank.pid());
    should(inherited.empty(), [&] {
      return fmt::format("rank {}: programs inherit {} of the plugin, expected close-on-exec: {}", rank.name(),
                         counted(inherited.size(), "descriptor"), fmt::join(inherited, ", "));
    });
  }
}

RULE(IN_18, Should, ApiRange::all().libraries_only(),  //
     .title = "a child process may use a library that its parent loaded",
     .text = "When the parent has only loaded the library, init and devices succeed in a forked child.",
     .source = "launchers that import a framework and then fork",
     .why =
         "If a constructor of the library creates state that is valid in the parent's process only, init fails in "
         "every child.",
     .check = "Loads the library, forks, and calls init and devices in the child.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const int status = rank.fork(Rank::Child::kCallsInit);
  expect(status == 0,
         fmt::format("rank {}: init and devices in a forked child: {}", rank.name(),
                     status == 1 << 8 ? std::string("one of them failed") : fmt::format("wait status {:#x}", status)));
}

RULE(LD_11, Should, ApiRange::all().libraries_only(),  //
     .title = "no thread remains after finalize",
     .text =
         "After the last finalize (v11 and later), or after dlclose (up to v10), no thread of the plugin runs. A "
         "thread may end some time after the call.",
     .source = "plugin/net.cc: ncclNetPluginUnload follows the last finalize",
     .why = "NCCL unloads the library next, and the thread runs code that is no longer mapped.",
     .check = "Counts the threads before init and after a connection, a message, the closes and finalize.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const int before = rank.process().threads;
  const std::uint64_t context = context_of_init(rank);
  Endpoint endpoint = near_endpoint();
  endpoint.rank = endpoint.rank.on("main");  // uses no further thread of the harness
  Connection connection = connect(endpoint, far_endpoint());
  connection.send.close();
  connection.receive.close();
  rank.finalize(context);
  if (api() <= 10) rank.unload();
  const int after =
      settled(rank, stall_limit(), [&](const ProcessFacts& now) { return now.threads <= before; }).threads;
  expect(after <= before, fmt::format("rank {}: {} threads after {}, expected {} as before init", rank.name(), after,
                                      api() <= 10 ? "dlclose" : "the last finalize", before));
}

RULE(LD_12, Should, ApiRange::all().libraries_only(),  //
     .title = "loading has no side effects",
     .text =
         "dlopen, init and devices write nothing to stdout and stderr, install no signal handler and change no "
         "environment variable.",
     .source = "nccl_net.h: init gets a function for messages",
     .why =
         "The plugin runs inside the user's program. Its output mixes with the program's output, its handlers replace "
         "the program's handlers, and its variables change the settings of other libraries.",
     .check =
         "Compares output, handlers and environment before dlopen and after devices. The message names changed "
         "variables.",
     .faults = {{"aws/aws-ofi-nccl", "init sets NCCL_PROTO and other variables of the process"}}) {
  Rank rank = near_rank({.state = RankState::kBare, .fresh = true});
  const std::vector<std::string> environment = rank.process().environment;  // also waits until the rank has started
  const std::uint64_t handlers = caught_signals(rank.pid());
  rank.load();
  context_of_init(rank);
  rank.devices();
  const std::uint64_t added = caught_signals(rank.pid()) & ~handlers;
  for (int signal = 1; signal <= 64; ++signal) {
    expect((added >> (signal - 1) & 1) == 0, [&] {
      return fmt::format("rank {}: the plugin installed a handler for signal {}, expected none", rank.name(), signal);
    });
  }
  const std::string output = rank.output();
  expect(output.empty(), [&] {
    return fmt::format("rank {}: the plugin wrote to stdout or stderr, expected the logger: {}", rank.name(),
                       output.substr(0, output.find('\n')));
  });
  for (const std::string& variable : rank.process().environment) {
    if (std::find(environment.begin(), environment.end(), variable) != environment.end()) continue;
    should(false, fmt::format("rank {}: the plugin changed the environment: {}", rank.name(), variable));
  }
}

RULE(LD_13, Info, ApiRange::all().libraries_only(),  //
     .title = "how NCCL finds the library",
     .text = "Without NCCL_NET_PLUGIN, NCCL loads libnccl-net.so; NCCL_NET_PLUGIN=foo also loads libnccl-net-foo.so.",
     .source = "plugin/plugin_open.cc: openPluginLib",
     .why = "A library with another name is loaded only if NCCL_NET_PLUGIN names its file.",
     .check = "Reports which value of NCCL_NET_PLUGIN loads this file.") {
  const std::string file = std::filesystem::path(context().library).filename().string();
  constexpr std::string_view kPrefix = "libnccl-net-", kSuffix = ".so";
  if (file == "libnccl-net.so") {
    observe("NCCL loads it without NCCL_NET_PLUGIN if its folder is in LD_LIBRARY_PATH");
  } else if (file.starts_with(kPrefix) && file.ends_with(kSuffix) && file.size() > kPrefix.size() + kSuffix.size()) {
    const std::size_t length = file.size() - kPrefix.size() - kSuffix.size();
    observe(fmt::format("NCCL_NET_PLUGIN={} loads it if its folder is in LD_LIBRARY_PATH",
                        file.substr(kPrefix.size(), length)));
  } else {
    observe(fmt::format("NCCL_NET_PLUGIN={} loads it", context().library));
  }
}

RULE(
    LD_16, Must, ApiRange::all().libraries_only(),  //
    .title = "tuners and profilers in the library are structs",
    .text =
        "ncclTunerPlugin_vN and ncclProfiler_vN that the library exports are data, the struct of that version itself. "
        "A symbol without a size is accepted.",
    .source = "plugin/plugin_open.cc: ncclGetNetPluginLib",
    .why =
        "NCCL takes the tuner and the profiler from the net library if no other library has them, and calls the "
        "functions that it finds at the symbol.",
    .check =
        "Reads the ELF symbols of the file without loading it, and compares their sizes with the sizes of the structs.",
    .blind = "Whether the functions work. The PI and TU rules call them.") {
  const plugin::Inspection inspection = plugin::inspect(context().library);
  for (const auto kind : {plugin::InterfaceKind::kTuner, plugin::InterfaceKind::kProfiler}) {
    const plugin::Interface& interface = plugin::interface_of(kind);
    const std::vector<int> versions = inspection.exported_versions(kind);
    const bool has_known = std::any_of(versions.begin(), versions.end(), [&](int version) {
      return version >= interface.oldest && version <= interface.newest;
    });
    if (!has_known) continue;
    if (const auto flaw = flaw_of_symbols(context().library, kind)) broken(*flaw);
  }
}

RULE(LD_17, Info, ApiRange::all().libraries_only(),  //
     .title = "other interfaces in the library",
     .text =
         "NCCL looks for CollNet and GIN only in a library with a net version, and takes tuners and profilers from it "
         "if no other library has them. Their versions may differ.",
     .source = "plugin/net.cc: ncclNetPluginLoad; plugin/plugin_open.cc: ncclGetNetPluginLib",
     .why =
         "Users who install a net plugin may also get CollNet, GIN, tuner and profiler plugins that are in the same "
         "file.",
     .check = "Lists the symbols of other interfaces.") {
  std::vector<std::string> others;
  for (const plugin::PluginSymbol& symbol : plugin::inspect(context().library).symbols) {
    const bool exported = symbol.reach == plugin::SymbolReach::kExported && symbol.type == plugin::SymbolType::kObject;
    if (exported && !symbol.name.starts_with("ncclNetPlugin_v")) others.push_back(symbol.name);
  }
  observe(others.empty() ? "the library has only the net interface"
                         : fmt::format("exports {}", fmt::join(others, ", ")));
}

namespace {

// Loads and initializes another version. Returns the device with the name of `usual`, or else with its index, since
// versions may name devices differently.
Endpoint start_version(Rank rank, int version, const Device& usual, const std::string& name) {
  rank.load(version);
  rank.init({.context = Preset::kNull});
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index)
    if (rank.properties(Device{index}).name == name) return {rank, Device{index}};
  if (usual.index >= devices)
    throw NotApplicable(fmt::format("rank {}: version {} has {} and no \"{}\"", rank.name(), version,
                                    counted(static_cast<std::size_t>(devices), "device"), shortened(name, 64)));
  return {rank, usual};
}

}  // namespace

RULE(LD_05, Must, ApiRange::all().libraries_only(),  //
     .title = "every exported version works",
     .text = "Each version of the interface that the library exports can be loaded alone, initialized and used.",
     .source = "plugin/net.cc: ncclNetPluginLoad stops at the newest version that it knows, even if its init fails",
     .why =
         "Each release of NCCL loads the newest version that it knows and does not fall back to an older one. A broken "
         "version makes the plugin useless for some releases.",
     .check =
         "Starts each other version in new processes, connects two ranks and sends one message. plugfest run --api all "
         "applies all rules to each version.",
     .blind = "Bugs in another version that one message does not show.") {
  const Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const auto name_of = [](const Endpoint& endpoint) { return Rank(endpoint.rank).properties(endpoint.device).name; };
  const std::string sender_device = name_of(sender), receiver_device = name_of(receiver);
  for (const int version : sender.rank.library().apis) {
    if (version == api()) continue;
    on_new_ranks([&] {
      try {
        const Endpoint from =
            start_version(near_rank({.state = RankState::kBare}), version, sender.device, sender_device);
        const Endpoint to =
            start_version(far_rank({.state = RankState::kBare}), version, receiver.device, receiver_device);
        const Connection connection = connect(from, to);
        deliver(from, to, connection, {.size = 1000, .seed = random()()});
      } catch (const CallFailed& failure) {
        broken(fmt::format("net v{}: {}", version, failure.what()));
      } catch (const Broken& failure) {
        broken(fmt::format("net v{}: {}", version, failure.what()));
      }
    });
  }
}

RULE(DP_25, Should, ApiRange::all().libraries_only(),  //
     .title = "all versions report the same devices",
     .text =
         "Number, name, pciPath, guid, port and speed of the devices are the same in each exported version. Other "
         "properties may differ, such as maxRecvs.",
     .source = "graph/topo.cc; plugins with one implementation behind several versions",
     .why = "An upgrade of NCCL changes the version, and with it the topology that NCCL sees.",
     .check =
         "Compares the properties of each other version, read in a new process, with the properties of this version.") {
  Rank rank = near_rank();
  std::vector<Properties> expected;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) expected.push_back(rank.properties(Device{index}));
  for (const int version : rank.library().apis) {
    if (version == api()) continue;
    on_new_ranks([&] {
      Rank other = near_rank({.state = RankState::kBare});
      other.load(version);
      other.init({.context = Preset::kNull});
      const int count = other.devices();
      expect(count == devices, fmt::format("net v{} has {} devices and v{} {}, expected the same devices", version,
                                           count, api(), devices));
      for (int index = 0; index < count; ++index) {
        const Properties here = other.properties(Device{index});
        const Properties& there = expected[static_cast<std::size_t>(index)];
        const auto same = [&](const char* field, const auto& seen, const auto& wanted) {
          expect(seen == wanted, [&] {
            return fmt::format("device {}: {} is {} in net v{} and {} in v{}, expected the same value", index, field,
                               seen, version, wanted, api());
          });
        };
        same("name", here.name, there.name);
        same("pciPath", here.pci_path.value_or("NULL"), there.pci_path.value_or("NULL"));
        same("guid", here.guid, there.guid);
        same("port", here.port, there.port);
        same("speed", here.speed_mbit_per_second, there.speed_mbit_per_second);
      }
    });
  }
}

}  // namespace plugfest::conformance
