// LD rules: exported symbols of the library, loading and unloading.
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>

#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"
#include "harness/bed/devices.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/layout.h"
#include "harness/plugin/releases.h"

namespace plugfest::conformance {
namespace {

constexpr std::string_view kNetSymbol = "ncclNetPlugin_v";

// Whether the symbol is ncclNetPlugin_v and a number.
bool is_net_symbol(const plugin::PluginSymbol& symbol) {
  const std::string_view name = symbol.name;
  return name.starts_with(kNetSymbol) && name.size() > kNetSymbol.size() &&
         name.find_first_not_of("0123456789", kNetSymbol.size()) == std::string_view::npos;
}

std::string_view type_name(plugin::SymbolType type) {
  switch (type) {
    case plugin::SymbolType::kObject:
      return "a data object";
    case plugin::SymbolType::kFunction:
      return "a function";
    case plugin::SymbolType::kOther:
      break;
  }
  return "neither a data object nor a function";
}

}  // namespace

RULE(LD_01, Must, ApiRange::all().libraries_only(),  //
     .title = "each interface is an exported data symbol",
     .text = "ncclNetPlugin_vN is a data object with default visibility in the dynamic symbol table.",
     .source = "plugin/net/net_v*.cc: getNcclNet_v*",
     .why =
         "NCCL finds an interface by dlsym. If dlsym does not find the symbol, NCCL falls back to its own transport "
         "without an error.",
     .check =
         "Reads the ELF symbol tables of the file without loading it. Each ncclNetPlugin_vN must be exported and a "
         "data object.",
     .blind = "Symbols that a constructor or a symbol version hides only when the library is loaded.",
     .faults = {
         {"NVIDIA/nccl#513", "a plugin lacked the symbol of the version that NCCL looked for, and the run was slow"}}) {
  const plugin::Inspection library = plugin::inspect(context().library);
  int found = 0;
  for (const plugin::PluginSymbol& symbol : library.symbols) {
    if (!is_net_symbol(symbol)) continue;
    ++found;
    expect(symbol.reach == plugin::SymbolReach::kExported,
           fmt::format("{} is {}, expected default visibility: dlsym does not find it", symbol.name,
                       symbol.reach == plugin::SymbolReach::kHidden ? "hidden" : "local"));
    expect(
        symbol.type == plugin::SymbolType::kObject,
        fmt::format("{} is {}, expected a data object that is the struct itself", symbol.name, type_name(symbol.type)));
  }
  expect(found > 0, fmt::format("the library has no symbol {}N, expected one for each version", kNetSymbol));
}

RULE(LD_02, Should, ApiRange::all().libraries_only(),  //
     .title = "each symbol has the size of its struct",
     .text =
         "The ELF size of ncclNetPlugin_vN equals the size of that version's struct. A symbol without a size is "
         "accepted.",
     .source = "NCCL's headers ext-net/example/nccl/net_v*.h",
     .why =
         "NCCL reads the struct with the layout of the version in the symbol's name. A struct of another version calls "
         "the wrong function.",
     .check = "Compares the size of each symbol in the ELF file with the size of that version's struct.",
     .blind = "A struct of the right size with functions in the wrong order, and symbols without a size.",
     .faults = {{"Mellanox/nccl-rdma-sharp-plugins#151",
                 "a plugin was built for another version of the interface than NCCL loaded"}}) {
  const plugin::Inspection library = plugin::inspect(context().library);
  for (int version = plugin::kOldestApi; version <= plugin::kNewestApi; ++version) {
    const plugin::ApiLayout& layout = plugin::api_layout(version);
    const plugin::PluginSymbol* symbol = library.exported(layout.symbol);
    if (symbol == nullptr || symbol->size == 0) continue;
    expect(symbol->size == layout.table_size,
           fmt::format("{} has {} bytes, expected {}, the size of the struct that NCCL reads", symbol->name,
                       symbol->size, layout.table_size));
  }
}

RULE(LD_03, Must, ApiRange::all().libraries_only(),  //
     .title = "the library loads without symbols of NCCL or CUDA",
     .text =
         "dlopen with RTLD_NOW and RTLD_LOCAL succeeds in a process that has no symbols of NCCL or CUDA: the library's "
         "own dependencies resolve all its symbols.",
     .source = "plugin/plugin_open.cc: tryOpenLib",
     .why =
         "NCCL opens the plugin with RTLD_NOW before it has loaded anything for it. A library that relies on symbols "
         "of its host process loads in one application and not in the next.",
     .check = "Loads the library with RTLD_NOW and RTLD_LOCAL in a process that has loaded neither NCCL nor CUDA.",
     .blind = "Libraries that the plugin opens later by dlopen.", .loads_plugin = true) {
  near_rank({.state = RankState::kBare, .fresh = true}).load();
}

RULE(
    LD_04, Should, ApiRange::all().libraries_only(),  //
    .title = "NCCL 2.28.9 finds a version that it knows",
    .text =
        "The library exports ncclNetPlugin_vN for at least one N from 6 to 11, the versions that NCCL 2.28.9 looks up.",
    .source = "plugin/net.cc: ncclNetPluginLoad takes the newest version that it knows",
    .why = "NCCL closes a library without a known version, logs that at INFO only, and uses its own transports.",
    .check = "Reads the symbols of the file, and lists the version that each release of NCCL selects.") {
  constexpr auto kNet = plugin::InterfaceKind::kNet;
  const plugin::Inspection library = plugin::inspect(context().library);
  const std::vector<int> apis = library.net_apis(), exported = library.exported_versions(kNet);
  const auto releases = plugin::releases();
  for (auto first = releases.begin(), last = first; first != releases.end(); first = last) {
    const int version = first->choose(kNet, exported);
    last = std::find_if(first, releases.end(), [&](const auto& one) { return one.choose(kNet, exported) != version; });
    const std::string names =
        last - first == 1 ? std::string(first->name) : fmt::format("{} to {}", first->name, (last - 1)->name);
    observe(version == 0 ? fmt::format("NCCL {} finds no version", names)
                         : fmt::format("NCCL {} selects v{}", names, version));
  }
  expect(apis.front() <= 11,
         fmt::format("the oldest exported version is v{}, expected one from v6 to v11 for NCCL 2.28.9", apis.front()));
}

RULE(LD_06, Must, ApiRange::all(),  //
     .title = "the plugin has a name before init",
     .text = "The struct's first member, name, is a non-empty string before init is called.",
     .source = "plugin/net.cc: ncclNetInit compares it with NCCL_NET",
     .why = "NCCL compares the name with NCCL_NET before it calls init, and prints it.",
     .check = "Loads the library and reads the first member of the struct before any call.",
     .blind = "A name that init changes.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const LibraryFacts& library = rank.library();
  expect(!library.name_is_null,
         fmt::format("rank {}: net v{}: name is NULL before init, expected a string", rank.name(), library.api));
  expect(!library.name.empty(),
         fmt::format("rank {}: net v{}: name is empty before init, expected a string", rank.name(), library.api));
}

RULE(LD_07, Should, ApiRange::all().libraries_only(),  //
     .title = "the plugin's name does not change",
     .text =
         "name is the same before and after init and in all exported versions, and is neither IB nor Socket in any "
         "letter case.",
     .source = "plugin/net.cc: ncclNetInit compares names before init; the older versions copy the pointer at load",
     .why =
         "NCCL compares NCCL_NET with the name before init, and logs the name later. A user who sets NCCL_NET to the "
         "name in the log does not get the plugin.",
     .check = "Compares the name before and after init, and with the names of the other versions.",
     .faults = {{"aws/aws-ofi-nccl", "the name is replaced by the value of NCCL_NET"}}) {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const std::string before = rank.library().name;
  for (const char* reserved : {"IB", "Socket"}) {
    should(strcasecmp(before.c_str(), reserved) != 0,
           fmt::format("rank {}: the name is {}, the name of NCCL's own transport", rank.name(), before));
  }
  context_of_init(rank);
  const std::string after = rank.plugin_name();
  expect(after == before, fmt::format("rank {}: the name is \"{}\" before init and \"{}\" after it, expected no change",
                                      rank.name(), before, after));
  for (const int version : rank.library().apis) {
    if (version == api()) continue;
    on_new_ranks([&] {
      const std::string other = near_rank({.state = RankState::kBare}).load(version).name;
      expect(other == before,
             fmt::format("net v{} is named \"{}\" and v{} \"{}\", expected one name", version, other, api(), before));
    });
  }
}

RULE(LD_09, Must, ApiRange::from(11).libraries_only(),  //
     .title = "finalize exists after init",
     .text = "finalize is not NULL after init, even if init fails. The plugin may set it in init.",
     .source = "plugin/net.cc: the error path of ncclNetPluginInit in NCCL 2.28 and 2.29 calls finalize",
     .why = "When init fails, NCCL 2.28 and 2.29 call finalize without a NULL check, and the application crashes.",
     .check = "Hides all devices, so that init may fail, calls init, and reads the function table.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true, .environment = bed::without_devices()});
  const std::string result = result_name(rank.try_init().code);
  expect(rank.has_function("finalize"),
         fmt::format("rank {}: net v{}: finalize is NULL after init, which returned {}, expected a function",
                     rank.name(), api(), result));
}

RULE(LD_08, Must, ApiRange::all(),  //
     .title = "every mandatory function is non-NULL after init",
     .text =
         "After init every function pointer is non-NULL, except the optional regMrDmaBuf, getDeviceMr, irecvConsumed, "
         "makeVDevice and setNetAttr. iflush is optional if no device supports GPU memory.",
     .source = "transport/net.cc, plugin/net.cc: calls without a NULL check",
     .why = "NCCL calls these functions without a check for NULL, and the process crashes.",
     .check =
         "After init, looks at each function pointer of the version's struct. iflush is required only if a device "
         "supports GPU memory.",
     .blind = "Pointers that point to no function, unless another rule calls them.") {
  Rank rank = near_rank();
  constexpr int kGpuMemory = 2 | 4;  // CUDA, DMABUF
  bool flushes = false;
  for (int device = rank.devices(); device-- > 0;)
    flushes = flushes || (rank.properties(Device{device}).ptr_support & kGpuMemory) != 0;
  for (const plugin::SlotLayout& slot : plugin::api_layout(api()).slots) {
    if (slot.may_be_null || rank.has_function(slot.name)) continue;
    expect(std::string_view(slot.name) == "iflush" && !flushes,
           fmt::format("rank {}: net v{}: {} is NULL after init, expected a function", rank.name(), api(), slot.name));
  }
}

RULE(LD_10, Must, ApiRange::all().libraries_only(),  //
     .title = "load, init, finalize and unload can be repeated",
     .text =
         "The cycle succeeds many times in one process. [S]: it leaves no thread and no open file descriptor behind.",
     .source = "plugin/net.cc: ncclNetPluginUnload after the last communicator is destroyed",
     .why =
         "NCCL unloads the plugin with the last communicator and loads it again for the next one. A thread that "
         "remains runs unmapped code. Descriptors that remain accumulate.",
     .check =
         "Repeats load, init, devices, finalize and unload 22 times in one process and compares the numbers of threads "
         "and descriptors after the second and the last time.",
     .blind = "Leaked memory, and what only a used connection leaves behind.",
     .faults = {{"NVIDIA/nccl#1978", "after the last communicator was destroyed, NCCL could not load the plugin again"},
                {"aws/aws-ofi-nccl#620", "the plugin released nothing when it was unloaded"}}) {
  Rank rank = near_rank({.state = RankState::kBare, .fresh = true});
  auto cycle = [&] {
    rank.load();
    const std::uint64_t context = rank.init();
    rank.devices();
    rank.finalize(context);
    rank.unload();
  };
  for (int i = 0; i < 2; ++i) cycle();  // excludes objects that a library creates once and keeps
  const ProcessFacts before = rank.process();
  constexpr int kCycles = 20;
  for (int i = 0; i < kCycles; ++i) cycle();
  const ProcessFacts after = settled(rank, stall_limit(), [&](const ProcessFacts& now) {
    return now.threads <= before.threads && now.file_descriptors <= before.file_descriptors;
  });
  should(after.threads <= before.threads,
         fmt::format("rank {}: {} threads after {} cycles of load, init, finalize and unload, expected at most {}",
                     rank.name(), after.threads, kCycles, before.threads));
  should(after.file_descriptors <= before.file_descriptors,
         fmt::format(
             "rank {}: {} file descriptors after {} cycles of load, init, finalize and unload, expected at most {}",
             rank.name(), after.file_descriptors, kCycles, before.file_descriptors));
}

}  // namespace plugfest::conformance
