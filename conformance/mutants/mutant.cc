#include "conformance/mutants/mutant.h"

#include <algorithm>

namespace plugfest::mutants {
namespace {

std::vector<Mutant>& program_mutants() {
  static std::vector<Mutant> list;
  return list;
}

void add(std::string_view name, Mutant mutant) {
  mutant.name = name;
  std::vector<Mutant>& list = program_mutants();
  auto place = std::upper_bound(list.begin(), list.end(), mutant,
                                [](const Mutant& left, const Mutant& right) { return left.name < right.name; });
  list.insert(place, std::move(mutant));
}

}  // namespace

const std::vector<Mutant>& mutants() { return program_mutants(); }

const Mutant* find_mutant(std::string_view name) {
  const std::vector<Mutant>& list = mutants();
  auto found = std::find_if(list.begin(), list.end(), [&](const Mutant& mutant) { return mutant.name == name; });
  return found == list.end() ? nullptr : &*found;
}

MutantDeclaration::MutantDeclaration(std::string_view name, Mutant mutant, void (*mutate)(Net& net, const Net& good)) {
  mutant.mutate = mutate;
  add(name, std::move(mutant));
}

MutantDeclaration::MutantDeclaration(std::string_view name, plugin::InterfaceKind interface, Mutant mutant,
                                     void (*mutate)(Calls& calls)) {
  mutant.interface = interface;
  mutant.mutate_calls = mutate;
  add(name, std::move(mutant));
}

}  // namespace plugfest::mutants
