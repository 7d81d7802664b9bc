// EV rules: values of an env plugin, their lifetime, threads.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conformance/interfaces/interface_rule.h"

namespace plugfest::conformance {

namespace {

// Variables that NCCL asks for, and others.
constexpr const char* kVariables[] = {
    "NCCL_DEBUG",        "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA",        "NCCL_IB_TIMEOUT",   "NCCL_NET_PLUGIN",
    "NCCL_TUNER_PLUGIN", "NCCL_NET",           "NCCL_ALGO",          "NCCL_PROTO",        "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",     "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_IB_GID_INDEX", "NCCL_IB_TC",
    "NCCL_P2P_LEVEL",    "NCCL_TOPO_FILE",     "NCCL_COMM_ID",       "NCCL_LAUNCH_MODE",  "PATH",
    "LD_LIBRARY_PATH"};

class EnvRule : public InterfaceRule {
 protected:
  // The address of the value; 0: none.
  std::uint64_t address_of(Rank& rank, const char* variable) {
    return rank.call("getEnv", {{"name", variable}}).pointer(kReturned);
  }
  // "(none)" if there is none.
  std::string value_of(Rank& rank, const char* variable) { return text_at(rank, address_of(rank, variable)); }
  std::map<std::string, std::string> values_of_all(Rank& rank) {
    std::map<std::string, std::string> values;
    for (const char* const variable : kVariables) values[variable] = value_of(rank, variable);
    return values;
  }
  static std::string text_at(Rank& rank, std::uint64_t address) {
    return address == 0 ? "(none)" : rank.text_at(address);
  }
};

}  // namespace

RULE_ON(EnvRule, EV_01, Must, ApiRange::env(),  //
        .title = "each symbol is an exported struct of its version's size",
        .text =
            "ncclEnvPlugin_vN is a data object with default visibility and has the size of that version's struct. Its "
            "name and its three functions are set.",
        .source = "plugin/env/env_v*.cc; plugin/env.cc: ncclEnvPluginLoad",
        .why = "NCCL reads the struct of its own headers at the symbol and calls its functions without a check.",
        .check = "Reads the ELF symbols of the file without loading it, and the struct after init.",
        .blind = "A function that is set and has other parameters.") {
  Rank rank = near_rank();
  require_table(rank);
}

RULE_ON(
    EnvRule, EV_02, Must, ApiRange::env(),  //
    .title = "a value is valid until its variable is read again",
    .text =
        "getEnv returns the address of a text, or NULL. The text stays as it is while other variables are asked for. "
        "The next call for the same variable returns the same text.",
    .source = "plugin/env/env_v2.h: getEnv",
    .why = "NCCL keeps the address, and reads the text later, for example in a message.",
    .check = "Asks for 21 variables, then for each again, and compares the texts of the first calls and the second.",
    .blind = "Values that the plugin changes later.") {
  Rank rank = near_rank({.state = RankState::kReady, .fresh = true});
  std::map<std::string, std::uint64_t> addresses;
  std::map<std::string, std::string> texts;
  for (const char* const variable : kVariables) {
    addresses[variable] = address_of(rank, variable);
    texts[variable] = text_at(rank, addresses[variable]);
  }
  for (const auto& [variable, text] : texts) {
    const std::string now = text_at(rank, addresses[variable]);
    expect(now == text, [&, &name = variable, &before = text] {
      return fmt::format(
          "rank {}: getEnv({}) had returned \"{}\"; after it returned other variables, that text is "
          "\"{}\"",
          rank.name(), name, before, now);
    });
  }
  for (const char* const variable : kVariables) {
    const std::string again = value_of(rank, variable);
    expect(again == texts[variable], [&] {
      return fmt::format("rank {}: getEnv({}) returned \"{}\", then \"{}\"", rank.name(), variable, texts[variable],
                         again);
    });
  }
  if (std::all_of(texts.begin(), texts.end(), [](const auto& text) { return text.second == "(none)"; }))
    observe("the plugin has no value of any of these variables");
}

RULE_ON(EnvRule, EV_03, Must, ApiRange::env(),  //
        .title = "unknown variables have no value",
        .text = "getEnv returns NULL for names that it does not know, of any length.",
        .source = "misc/param.cc: ncclGetEnv",
        .why = "NCCL takes an empty text for a value. Some variables have another meaning then than without a value.",
        .check = "Asks for an unknown name, the empty name and a name of 4,000 characters.",
        .blind = "Names that are not valid variables.") {
  Rank rank = near_rank();
  const std::string endless(4000, 'X');
  for (const char* const variable : {"NCCL_PLUGFEST_NO_SUCH_VARIABLE", "", endless.c_str()}) {
    const std::uint64_t address = address_of(rank, variable);
    expect(address == 0, [&] {
      return fmt::format("rank {}: getEnv({}) returned \"{}\", expected NULL", rank.name(),
                         std::string(variable).substr(0, 40), text_at(rank, address));
    });
  }
}

RULE_ON(EnvRule, EV_04, Must, ApiRange::env(),  //
        .title = "several threads may call getEnv at the same time",
        .text = "Several threads call getEnv at the same time, and get the same answers as one thread.",
        .source = "misc/param.cc: each thread of the application and of NCCL asks for itself",
        .why = "NCCL reads variables in the threads of several communicators.",
        .check =
            "Two threads ask 200 times each for different variables, and the values are compared with the values in "
            "one thread.",
        .blind = "Data races that change no result. A plugin built with -fsanitize=thread shows them.") {
  Rank rank = near_rank();
  const std::map<std::string, std::string> texts = values_of_all(rank);
  std::vector<Rank> threads = {rank.on("app0"), rank.on("app1")};
  const std::size_t half = std::size(kVariables) / 2;
  for (int i = 0; i < repeated(200); ++i) {
    const char* const variables[] = {kVariables[random_between(0, half - 1)],
                                     kVariables[random_between(half, std::size(kVariables) - 1)]};
    std::vector<Started<CallOutcome>> started;
    for (std::size_t thread = 0; thread < 2; ++thread)
      started.push_back(threads[thread].start_call("getEnv", {{"name", variables[thread]}}));
    for (std::size_t thread = 0; thread < 2; ++thread) {
      const std::string text = text_at(rank, started[thread].get().pointer(kReturned));
      expect(text == texts.at(variables[thread]), [&] {
        return fmt::format("rank {}: getEnv({}) returned \"{}\" while another thread asked, and \"{}\" before",
                           rank.name(), variables[thread], text, texts.at(variables[thread]));
      });
    }
  }
}

RULE_ON(
    EnvRule, EV_05, Must, ApiRange::env(),  //
    .title = "the plugin can be initialized again",
    .text =
        "init succeeds after finalize, dlclose and dlopen, and values are the same then. [S]: also without the two "
        "in between.",
    .source = "plugin/env.cc: ncclEnvPluginFinalize unloads the library", .why = "A program may load NCCL again.",
    .check =
        "Calls finalize, loads the library again and calls init, and compares the values of 21 variables with those "
        "before. Then does that without loading it again.",
    .blind = "Other versions of NCCL in one process.") {
  const auto initialize_again = [&](bool loads) {
    Rank rank = near_rank({.state = RankState::kReady, .fresh = true});
    const std::map<std::string, std::string> texts = values_of_all(rank);
    rank.call("finalize");
    if (loads) {
      rank.unload();
      rank.load();
    }
    rank.init();
    for (const char* const variable : kVariables) {
      const std::string now = value_of(rank, variable);
      expect(now == texts.at(variable), [&] {
        return fmt::format("rank {}: getEnv({}) returned \"{}\" after the second init, and \"{}\" after the first one",
                           rank.name(), variable, now, texts.at(variable));
      });
    }
  };
  initialize_again(true);
  probe([&] { initialize_again(false); });
}

}  // namespace plugfest::conformance
