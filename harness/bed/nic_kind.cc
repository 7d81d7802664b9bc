// The table of NIC kinds.
#include "harness/bed/nic_kind.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace plugfest::bed {
namespace {

// All kinds, in the order in which messages list them.
constexpr std::array kFactories = {make_roce, make_loopback, make_rxe, make_vm, make_system};

std::vector<std::unique_ptr<NicKind>> all_kinds(const NicOptions& options = {}) {
  std::vector<std::unique_ptr<NicKind>> kinds;
  for (const auto make : kFactories) kinds.push_back(make(options));
  return kinds;
}

// "a, b and c": the names of the kinds for which `wanted` is true.
template <typename Predicate>
std::string names_of(Predicate wanted) {
  std::vector<std::string> names;
  for (const auto& kind : all_kinds())
    if (wanted(kind->support())) names.push_back(kind->name());
  std::string list = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) list += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return list;
}

}  // namespace

std::optional<GuestResult> NicKind::run_in_guest(const std::vector<std::string>&) { return std::nullopt; }

std::unique_ptr<NicKind> default_nic_kind() { return make_roce({}); }

std::unique_ptr<NicKind> make_nic_kind(const std::string& name, const NicOptions& options) {
  for (auto& kind : all_kinds(options)) {
    if (kind->name() != name) continue;
    if (!options.kernel.empty() && !kind->support().kernel) {
      const std::string names = names_of([](const NicSupport& support) { return support.kernel; });
      throw std::runtime_error(fmt::format("--kernel: only --nic {} boots one", names));
    }
    if (options.allow_host_changes && !kind->support().host_changes) {
      const std::string names = names_of([](const NicSupport& support) { return support.host_changes; });
      throw std::runtime_error(fmt::format("--allow-host-changes: only --nic {} makes any", names));
    }
    return std::move(kind);
  }
  const std::string names = names_of([](const NicSupport&) { return true; });
  throw std::runtime_error(fmt::format("--nic \"{}\": expected one of {}", name, names));
}

std::string describe_nic_kinds() {
  std::string text;
  for (const auto& kind : all_kinds())
    text += fmt::format("{}{}, {}", text.empty() ? "" : "; ", kind->name(), kind->description());
  return text;
}

}  // namespace plugfest::bed
