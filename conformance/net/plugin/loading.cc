// LD rules: what loading and init leave behind, and how NCCL finds the library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "conformance/net/script/message.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"
#include "conformance/rules/symbol_check.h"
#include "harness/plugin/inspect.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::ProcessFacts;
using control::Rank;
using control::RankState;

RULE(LD_11, Should, ApiRange::all().libraries_only(),  //
     .title = "no thread remains after finalize",
     .text =
         "After the last finalize (v11 and later), or after dlclose (up to v10), no thread of the plugin runs. A "
         "thread may "
         "end some time after the call.",
     .source = "plugin/net.cc: ncclNetPluginUnload follows the last finalize",
     .why = "NCCL unloads the library next, and the thread runs code that is no longer mapped.",
     .check = "Counts the threads before init and after a connection, a message, the closes and finalize.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const int before = rank.process().threads;
  const std::uint64_t context = rank.init();
  Endpoint endpoint = near_endpoint();
  endpoint.rank = endpoint.rank.on("main");  // no further thread of the harness
  Connection connection = control::connect(endpoint, endpoint);
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
         "environment "
         "variable.",
     .source = "the plugin runs inside the user's program",
     .why = "The program's output, its signal handlers and the settings of other libraries belong to the user.",
     .check = "Compares output, handlers and environment before dlopen and after devices. Names changed variables.",
     .faults = {{"aws/aws-ofi-nccl", "init sets NCCL_PROTO and other variables of the process"}}) {
  Rank rank = near_rank({.state = RankState::kBare, .fresh = true});
  const std::vector<std::string> environment = rank.process().environment;  // also waits until the rank has started
  const std::uint64_t handlers = caught_signals(rank.pid());
  rank.load();
  rank.init();
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
     .check = "Says which value of NCCL_NET_PLUGIN loads this file.") {
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

RULE(LD_16, Must, ApiRange::all().libraries_only(),  //
     .title = "tuners and profilers in the library are structs",
     .text =
         "ncclTunerPlugin_vN and ncclProfiler_vN that the library exports are data, the struct of that version itself. "
         "A symbol without a size is accepted.",
     .source = "plugin/plugin_open.cc: ncclGetNetPluginLib",
     .why =
         "NCCL takes the tuner and the profiler from the net library if no other library has them, and calls the "
         "functions that it finds at the symbol.",
     .check =
         "Reads the ELF symbols of the file without loading it. A tuner has at least 32 bytes: a name and three "
         "functions.",
     .blind = "Whether the functions work. The PI rules call those of a profiler; no rule calls a tuner.") {
  constexpr std::uint64_t kSmallestTuner = 4 * sizeof(void*);
  bool any_profiler = false;
  for (const plugin::PluginSymbol& symbol : plugin::inspect(context().library).symbols) {
    const bool tuner = symbol.name.starts_with("ncclTunerPlugin_v");
    const bool profiler = symbol.name.starts_with(plugin::interface_of(plugin::InterfaceKind::kProfiler).symbol_prefix);
    if (symbol.reach != plugin::SymbolReach::kExported || (!tuner && !profiler)) continue;
    expect(symbol.type == plugin::SymbolType::kObject,
           fmt::format("{} is not data, expected the struct itself", symbol.name));
    expect(!tuner || symbol.size == 0 || symbol.size >= kSmallestTuner,
           fmt::format("{} has {} bytes, expected at least {}, the struct itself", symbol.name, symbol.size,
                       kSmallestTuner));
    any_profiler |= profiler;
  }
  if (!any_profiler) return;
  if (const auto flaw = flaw_of_symbols(context().library, plugin::InterfaceKind::kProfiler)) broken(*flaw);
}

RULE(LD_17, Info, ApiRange::all().libraries_only(),  //
     .title = "other interfaces in the library",
     .text =
         "NCCL looks for CollNet and GIN only in a library with a net version, and takes tuners and profilers from it "
         "if no "
         "other library has them. Their versions may differ.",
     .source = "plugin/net.cc: ncclNetPluginLoad; plugin/plugin_open.cc: ncclGetNetPluginLib",
     .why = "NCCL loads CollNet, GIN, tuner and profiler plugins from the same file.",
     .check = "Lists the symbols of other interfaces.") {
  std::vector<std::string> others;
  for (const plugin::PluginSymbol& symbol : plugin::inspect(context().library).symbols) {
    const bool exported = symbol.reach == plugin::SymbolReach::kExported && symbol.type == plugin::SymbolType::kObject;
    if (exported && !symbol.name.starts_with("ncclNetPlugin_v")) others.push_back(symbol.name);
  }
  observe(others.empty() ? "the library has only the net interface"
                         : fmt::format("exports {}", fmt::join(others, ", ")));
}

}  // namespace plugfest::conformance
