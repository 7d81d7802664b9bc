#include "harness/control/process/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "fabric/system/text.h"

namespace plugfest::control {

void Ledger::posted(std::uint64_t comm, std::uint64_t request) {
  last_request[comm] = request;
  if (request != 0) requests.emplace(request, comm);
}

void Ledger::done(std::uint64_t request) {
  if (const auto found = requests.find(request); found != requests.end()) requests.erase(found);
}

void Ledger::deregistered(std::uint64_t comm, std::uint64_t mhandle) {
  const auto [begin, end] = registrations.equal_range(comm);
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second != mhandle) continue;
    registrations.erase(entry);
    return;
  }
}

void Ledger::unloading(pid_t pid, const std::string& path) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    UnloadedRange range{.file = path.substr(path.rfind('/') + 1)};
    if (line.ends_with(path) && std::sscanf(line.c_str(), "%lx-%lx", &range.start, &range.end) == 2)
      unloaded.push_back(std::move(range));
  }
}

std::string Ledger::describe(std::uint64_t address) const {
  for (const UnloadedRange& range : unloaded) {
    if (address < range.start || address >= range.end) continue;
    return fmt::format(
        ", in {} after it was unloaded: one of its threads, or a function that it registered, still runs", range.file);
  }
  constexpr std::uint64_t kNear = 4096;
  for (const MappedMemory& mapped : memory) {
    const std::uint64_t start = mapped.mapping.address;
    const std::uint64_t end = start + mapped.size;
    if (address >= start && address < end) {
      return fmt::format(", byte {} of {} of memory that the rule has made inaccessible", address - start,
                         counted(mapped.size, "byte"));
    }
    if (address >= end && address - end < kNear) {
      return fmt::format(", {} past the end of {} of memory", counted(address - end, "byte"),
                         counted(mapped.size, "byte"));
    }
    if (address < start && start - address <= kNear)
      return fmt::format(", {} before {} of memory", counted(start - address, "byte"), counted(mapped.size, "byte"));
  }
  return "";
}

void Ledger::closed_by(std::string_view function, std::uint64_t value) {
  const auto closed = std::find_if(objects.begin(), objects.end(), [&](const OpenObject& object) {
    return object.closed_by == function && object.value == value;
  });
  if (closed == objects.end()) return;
  const std::string_view name = closed->name;
  objects.erase(closed);
  std::erase_if(objects, [&](const OpenObject& object) {
    const auto parent = object.arguments.find(name);
    return parent != object.arguments.end() && parent->second == value;
  });
}

const OpenObject* Ledger::oldest(std::string_view name) const {
  const auto found =
      std::find_if(objects.begin(), objects.end(), [&](const OpenObject& object) { return object.name == name; });
  return found == objects.end() ? nullptr : &*found;
}

void Ledger::closed(wire::CommKind kind, std::uint64_t comm) {
  if (kind == wire::CommKind::kListen) {
    listeners.erase(comm);
    return;
  }
  comms.erase(comm);
  registrations.erase(comm);
  last_request.erase(comm);
  std::erase_if(requests, [comm](const auto& entry) { return entry.second == comm; });
}

}  // namespace plugfest::control
