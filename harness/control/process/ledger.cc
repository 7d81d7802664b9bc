#include "harness/control/process/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/system/memory_map.h"
#include "fabric/system/text.h"

namespace plugfest::control {
namespace {

std::vector<MappedFile> mapped_files(pid_t pid) {
  std::vector<MappedFile> files;
  visit_mappings(fmt::format("/proc/{}/maps", pid), [&](const MemoryMapping& mapping) {
    if (!mapping.file.empty()) files.push_back({mapping.begin, mapping.end, std::string(mapping.file)});
    return true;
  });
  return files;
}

// The path of the file at `address`; "" if there is none.
std::string file_at(const std::vector<MappedFile>& files, std::uint64_t address) {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const MappedFile& file) { return file.contains(address); });
  return found == files.end() ? "" : found->path;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

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
  unloadings.push_back({.pid = pid, .path = path, .files = mapped_files(pid)});
}

std::string Ledger::describe(std::uint64_t address) const {
  for (const Unloading& unloading : unloadings) {
    const std::string file = file_at(unloading.files, address);
    if (file.empty() || file == file_at(mapped_files(unloading.pid), address)) continue;
    // Libraries that only the plugin needs, such as libstdc++, are unloaded with it.
    const std::string when =
        file == unloading.path ? " after it was unloaded" : ", which was unloaded with " + base_name(unloading.path);
    return fmt::format(", in {}{}: one of its threads, or a function that it registered, still runs", base_name(file),
                       when);
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
