// Load, Unload and HasFunction.
#include "harness/rank/subject.h"

#include <memory>
#include <stdexcept>

#include "fabric/system/text.h"
#include "harness/plugin/library.h"
#include "harness/rank/calls/dispatch.h"

namespace plugfest::rank {

namespace {

/// NCCL prints the name; nothing limits it.
constexpr std::size_t kMostNameBytes = 64;

std::unique_ptr<plugin::Library>& loaded() {
  // Never destroyed: threads of the plugin may run while the process exits.
  static auto* library = new std::unique_ptr<plugin::Library>;
  return *library;
}

}  // namespace

LoadAnswer execute(const Load& request) {
  if (loaded()) throw std::logic_error("a plugin is loaded already");
  loaded() = std::make_unique<plugin::Library>(request.plugin, request.api,
                                               static_cast<plugin::InterfaceKind>(request.interface));
  const plugin::Library& library = *loaded();
  LoadAnswer answer;
  answer.path = library.path();
  answer.api = library.layout().api;
  answer.apis.assign(library.apis().rbegin(), library.apis().rend());
  answer.built_in = library.built_in();
  const char* name = library.name();
  answer.name_is_null = name == nullptr;
  if (name != nullptr) answer.name = shortened(name, kMostNameBytes);
  return answer;
}

Nothing execute(const Unload&) {
  loaded().reset();
  return {};
}

HasFunctionAnswer execute(const HasFunction& request) {
  const bool is_net = library().layout().kind == plugin::InterfaceKind::kNet;
  if (!is_net) return {library().function(request.name) != nullptr};
  const plugin::SlotLayout* const slot = library().layout().find(request.name);
  return {slot != nullptr && subject().has(slot->slot)};
}

Text execute(const Name&) {
  const char* name = library().name();
  return {name == nullptr ? "" : shortened(name, kMostNameBytes)};
}

plugin::Library& library() {
  if (!loaded()) throw std::logic_error("no plugin is loaded");
  return *loaded();
}

plugin::Net& subject() {
  if (library().layout().kind != plugin::InterfaceKind::kNet) throw std::logic_error("the plugin is no net");
  return library().net();
}

}  // namespace plugfest::rank
