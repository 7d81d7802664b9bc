// --nic: which kind of NIC a run is on, and what each kind needs from this machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"

namespace plugfest::cli {

/// roce: in user space. loopback: the same, without namespaces. rxe: the kernel's. vm: the kernel's, in a virtual
/// machine. system: what the machine has.
struct Nic {
  std::string kind = "roce";
  std::string kernel;
  bool allow_host_changes = false;

  void add_options(Command command);

  /// Errors: std::runtime_error for a kind that does not exist and for options that do not go together.
  void check() const;

  /// How much longer calls may take than elsewhere: a guest without KVM emulates its processors.
  double patience() const { return kind == "vm" ? 6 : 1; }

  /// Whether the command line is to be run once more, in a virtual machine. False within that.
  bool wants_guest() const;
};

/// How the command ended in the guest.
struct GuestOutcome {
  int exit_code = 0;
  std::map<std::string, std::string> results;  ///< by the paths given
};

/// Boots a guest and has it run this process's own command line. `results`: files that the command line has the program
/// write; they come back as content, for the caller to put there. Errors: std::runtime_error.
GuestOutcome run_in_guest(const Nic& nic, const std::vector<std::string>& results);

}  // namespace plugfest::cli
