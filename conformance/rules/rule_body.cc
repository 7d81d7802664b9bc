#include "conformance/rules/rule_body.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "conformance/rules/runner.h"
#include "conformance/rules/turns.h"
#include "harness/control/call.h"
#include "harness/faults/script.h"

namespace plugfest::conformance {

std::optional<bed::RankPath> second_path(const topology::Graph& graph, const bed::RankPath& first) {
  const std::string near = faults::find_interface(graph, first.near).node;
  const std::string far = faults::find_interface(graph, first.far).node;
  for (const topology::Path& path : graph.paths()) {
    bed::RankPath other{graph.interface_name(path.from), graph.interface_name(path.to)};
    const std::string &from = graph.hosts[path.from.host].name, &to = graph.hosts[path.to.host].name;
    if (from == far && to == near)
      std::swap(other.near, other.far);
    else if (from != near || to != far)
      continue;
    if (other.near != first.near && other.far != first.far) return other;
  }
  return std::nullopt;
}

void RuleBody::on_new_ranks(const std::function<void()>& part) {
  control::Lease* const usual = context_.lease;
  control::Lease other = usual->with_new_ranks();
  context_.lease = &other;
  try {
    part();
    other.check();
  } catch (...) {
    context_.lease = usual;
    usual->keep_evidence_of(std::move(other));
    throw;
  }
  context_.lease = usual;
}

void RuleBody::check_codes(const std::function<void()>& part) {
  try {
    part();
  } catch (const control::UndefinedCode& undefined) {
    broken(undefined.what());
  }
}

void RuleBody::probe(const std::function<void()>& part, const std::function<std::string()>& situation) {
  const std::optional<Breach> breach = breach_in([&] { on_new_ranks(part); }, context_.library);
  should(!breach, [&] {
    const std::string before = situation ? situation() : "";
    return before.empty() ? breach->message : fmt::format("{}: {}", before, breach->message);
  });
}

void RuleBody::be_alone() {
  if (context_.turn != nullptr) context_.turn->be_alone();
}

void RuleBody::require_injector() {
  if (context_.injector == nullptr) skip("faults cannot be injected into this network");
  if (context_.turn == nullptr) return;
  context_.turn->note_change();
  context_.lease->wait_for_retransmissions();
  context_.turn->be_alone();
}

faults::ActiveFault RuleBody::take_link_down() {
  require_injector();
  const faults::Interface far = faults::find_interface(context_.injector->graph(), context_.ranks.interfaces[1][0]);
  return faults::ActiveFault(*context_.injector, {.kind = faults::Kind::kDown, .interfaces = {far}});
}

std::unique_ptr<faults::ActiveFault> RuleBody::change_far_address() {
  require_injector();
  const topology::Graph& graph = context_.injector->graph();
  const faults::Interface far = faults::find_interface(graph, context_.ranks.interfaces[1][0]);
  const std::optional<topology::Ipv4Address> address = faults::free_address(graph, far);
  if (!address) return nullptr;
  const faults::Fault fault = {.kind = faults::Kind::kAddress, .address = *address, .interfaces = {far}};
  return std::make_unique<faults::ActiveFault>(*context_.injector, fault);
}

std::unique_ptr<faults::ActiveFault> RuleBody::shrink_far_mtu(int mtu_bytes) {
  require_injector();
  const faults::Interface far = faults::find_interface(context_.injector->graph(), context_.ranks.interfaces[1][0]);
  const faults::Fault fault = {.kind = faults::Kind::kMtu, .mtu_bytes = mtu_bytes, .interfaces = {far}};
  return std::make_unique<faults::ActiveFault>(*context_.injector, fault);
}

}  // namespace plugfest::conformance
