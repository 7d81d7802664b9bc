#include "conformance/rules/rule_body.h"

#include <fmt/format.h>

#include <optional>

#include "conformance/rules/runner.h"
#include "conformance/rules/turns.h"
#include "harness/control/call.h"
#include "harness/faults/script.h"

namespace plugfest::conformance {

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

void RuleBody::judge_codes(const std::function<void()>& part) {
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
