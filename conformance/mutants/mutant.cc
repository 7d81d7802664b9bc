#include "conformance/mutants/mutant.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

namespace plugfest::mutants {
namespace {

std::vector<Mutant>& program_mutants() {
  static std::vector<Mutant> list;
  return list;
}

// The path under which this library was loaded.
std::string own_path() {
  static const char here = 0;
  Dl_info info{};
  dladdr(&here, &info);
  return info.dli_fname != nullptr ? info.dli_fname : "";
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

std::string own_name() {
  constexpr std::string_view kPrefix = "libnccl-net-", kSuffix = ".so";
  const std::string path = own_path(), file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) return "";
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

const Mutant* selected_mutant() {
  const std::string name = own_name();
  for (const Mutant& mutant : mutants())
    if (mutant.name == name) return &mutant;
  std::fprintf(stderr, "mutant: %s: no mutant of that name\n", own_path().c_str());
  return nullptr;
}

std::string own_folder() {
  const std::string path = own_path();
  return path.substr(0, path.rfind('/') + 1);
}

MutantRegistration::MutantRegistration(std::string_view name, Mutant mutant,
                                       void (*mutate)(Net& net, const Net& good)) {
  mutant.mutate = mutate;
  add(name, std::move(mutant));
}

MutantRegistration::MutantRegistration(std::string_view name, plugin::InterfaceKind interface, Mutant mutant,
                                       void (*mutate)(Calls& calls)) {
  mutant.interface = interface;
  mutant.mutate_calls = mutate;
  add(name, std::move(mutant));
}

}  // namespace plugfest::mutants
