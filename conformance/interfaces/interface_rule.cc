#include "conformance/interfaces/interface_rule.h"

#include <fmt/format.h>

#include "conformance/rules/library_check.h"
#include "harness/plugin/layout.h"

namespace plugfest::conformance {

Rank InterfaceRule::ready_rank(std::size_t number) {
  try {
    return rank(number);
  } catch (const CallFailed& failure) {
    not_applicable(
        fmt::format("{}: NCCL continues without {}", failure.what(), plugin::interface_of(context().interface).title));
  }
}

Rank InterfaceRule::rank_with_devices(std::size_t number) {
  Rank ready = ready_rank(number);
  if (ready.devices() == 0) not_applicable("devices() wrote 0");
  return ready;
}

std::vector<Rank> InterfaceRule::all_ranks() {
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < context().ranks.ranks.size(); ++i) ranks.push_back(rank_with_devices(i));
  return ranks;
}

void InterfaceRule::require_table(Rank& rank) {
  const plugin::Interface& interface = plugin::interface_of(context().interface);
  if (const auto flaw = flaw_of_symbols(context().library, interface.kind)) broken(*flaw);
  const std::string table = fmt::format("rank {}: {} v{}", rank.name(), interface.name, api());
  expect(!rank.library().name.empty(), fmt::format("{}: name is NULL or empty, expected a string", table));
  for (const std::string& function : missing_functions(rank))
    broken(fmt::format("{}: {} is NULL after init, expected a function", table, function));
}

void InterfaceRule::end_all_but(std::size_t left, std::vector<std::uint64_t>& contexts,
                                const std::function<void(std::uint64_t)>& end) {
  while (contexts.size() > left) {
    const auto chosen = contexts.begin() + static_cast<std::ptrdiff_t>(random_between(0, contexts.size() - 1));
    const std::uint64_t context = *chosen;
    contexts.erase(chosen);
    end(context);
  }
}

std::size_t OneSidedRule::most_requests(OneSidedGroup& group) {
  const auto receives = static_cast<std::size_t>(group[0].rank().try_properties(Device{0}).integer("maxRecvs"));
  return 32 * std::min<std::size_t>(receives, 32);
}

std::vector<Rank> OneSidedRule::ranks_with_data() {
  if (plugin::api_layout(context().interface, api()).find("iput") == nullptr)
    not_applicable("NCCL calls the GPU's code, or the data calls of RMA");
  return all_ranks();
}

void require_same(const Check& check, const std::string& what) {
  if (!check) throw Broken(fmt::format("{}: {}", what, check.difference));
}

}  // namespace plugfest::conformance
