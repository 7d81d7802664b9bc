// How a rule breaks the network.
#include "conformance/rules/rule_body.h"

#include <optional>

#include "harness/faults/fault_target.h"

namespace plugfest::conformance {

faults::ActiveFault RuleBody::take_link_down() {
  if (stage_.injector == nullptr) skip("the network here cannot be broken");
  const faults::Interface far = faults::find_interface(stage_.injector->graph(), stage_.path.far);
  return faults::ActiveFault(*stage_.injector, {.kind = faults::Kind::kDown, .interfaces = {far}});
}

std::unique_ptr<faults::ActiveFault> RuleBody::change_far_address() {
  if (stage_.injector == nullptr) skip("the network here cannot be broken");
  const topology::Graph& graph = stage_.injector->graph();
  const faults::Interface far = faults::find_interface(graph, stage_.path.far);
  const std::optional<topology::Ipv4Address> address = faults::free_address(graph, far);
  if (!address) return nullptr;
  const faults::Fault fault = {.kind = faults::Kind::kAddress, .address = *address, .interfaces = {far}};
  return std::make_unique<faults::ActiveFault>(*stage_.injector, fault);
}

}  // namespace plugfest::conformance
