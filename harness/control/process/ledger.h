// Objects that a rule has open in a rank; they are closed at the end of the rule.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/wire/process.h"

namespace plugfest::control {

struct MappedMemory {
  wire::Mapping mapping;
  std::uint64_t size = 0;
};

/// Addresses where a process has mapped a file.
struct MappedFile {
  std::uint64_t start = 0, end = 0;
  std::string path;

  bool contains(std::uint64_t address) const { return address >= start && address < end; }
};

/// What process `pid` had mapped when it began to unload the library at `path`.
struct Unloading {
  pid_t pid = 0;
  std::string path;
  std::vector<MappedFile> files = {};
};

/// An object that a call of an interface other than the net has opened.
struct OpenObject {
  std::uint64_t value = 0;
  /// The name of the parameter in the functions that take it: "collComm".
  std::string_view name;
  /// The function that closes it; the object is its last argument.
  std::string_view closed_by;
  /// The numeric arguments of the call that opened it: its parents, and parameters of the function that closes it.
  std::map<std::string_view, std::uint64_t> arguments = {};
};

struct Ledger {
  /// Open objects: parents precede their children.
  std::vector<OpenObject> objects;
  /// The first ones stay open for other rules.
  std::size_t kept_objects = 0;
  std::vector<std::uint64_t> contexts;
  std::set<std::uint64_t> listeners;
  std::map<std::uint64_t, wire::CommKind> comms;
  /// mhandles by comm.
  std::multimap<std::uint64_t, std::uint64_t> registrations;
  /// Requests that are not done, with their comm.
  std::multimap<std::uint64_t, std::uint64_t> requests;
  /// Connects and accepts that have been called and have no comm yet.
  std::set<std::uint64_t> attempts;
  /// Connects and accepts that have a comm. The rank holds their buffers until wire::EndAttempts.
  std::vector<std::uint64_t> finished_attempts;
  std::uint64_t next_attempt = 1;
  std::vector<MappedMemory> memory;
  std::vector<Unloading> unloadings;
  /// *request after the last isend, irecv or iflush of a comm: the value of Preset::kStale.
  std::map<std::uint64_t, std::uint64_t> last_request;

  void posted(std::uint64_t comm, std::uint64_t request);
  void done(std::uint64_t request);
  void deregistered(std::uint64_t comm, std::uint64_t mhandle);
  void closed(wire::CommKind kind, std::uint64_t comm);
  /// Removes the object that `function` closes, and its children.
  void closed_by(std::string_view function, std::uint64_t value);
  /// The oldest object of this name; null if there is none.
  const OpenObject* oldest(std::string_view name) const;

  /// Records where process `pid` has mapped the library at `path`, which is about to be unloaded, and the libraries
  /// that may be unloaded with it.
  void unloading(pid_t pid, const std::string& path);

  /// Describes an address in or near memory of the rule, or in a library that is no longer mapped: ", 3 bytes past the
  /// end of 1000 bytes of memory"; "" for other addresses.
  std::string describe(std::uint64_t address) const;
};

}  // namespace plugfest::control
