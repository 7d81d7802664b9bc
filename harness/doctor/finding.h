// Findings about a machine, grouped by mode, and the commands that install missing software.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/doctor/machine.h"
#include "harness/wire/fields.h"

namespace plugfest::doctor {

/// kGood: as required. kNote: information. kWarning: the mode works but has problems. kBad: the mode does not work.
enum class State : std::uint8_t { kGood, kNote, kWarning, kBad };
inline std::array<std::string_view, 4> texts_of(State) { return {"ok", "note", "warn", "bad"}; }

struct Finding {
  /// The examined subject: "namespaces".
  std::string name;
  State state = State::kGood;
  /// The result, one line.
  std::string text = {};
  /// The command that fixes it; empty if none is known or needed.
  std::string fix = {};
  PLUGFEST_FIELDS(name, state, text, unless_empty(fix))
};

inline Finding good(std::string name, std::string text) { return {.name = std::move(name), .text = std::move(text)}; }
inline Finding note(std::string name, std::string text, std::string fix = "") {
  return {std::move(name), State::kNote, std::move(text), std::move(fix)};
}
inline Finding warning(std::string name, std::string text, std::string fix = "") {
  return {std::move(name), State::kWarning, std::move(text), std::move(fix)};
}
inline Finding bad(std::string name, std::string text, std::string fix = "") {
  return {std::move(name), State::kBad, std::move(text), std::move(fix)};
}

inline void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// One way to use plugfest. It works unless a finding is bad.
struct Mode {
  /// The name for --for: "rxe".
  std::string name;
  std::string title;
  /// The command of this mode; may be empty.
  std::string command;
  std::vector<Finding> findings;

  /// The first bad finding; null if the mode works.
  const Finding* first_bad() const;
  bool works() const { return first_bad() == nullptr; }
  PLUGFEST_FIELDS(name, title, command, computed("works", [this] { return works(); }), findings)
};

struct MachineSummary {
  std::string system;  ///< "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  ///< "6.1.0-18-amd64"
  std::string architecture;
  std::string user;  ///< "root" or "user 1000"
  PLUGFEST_FIELDS(system, kernel, architecture, user)
};

struct MeshNic {
  std::string name;                  ///< "mlx5_0"; "mlx5_0:2" with several ports
  int path_mtu = 0;                  ///< bytes
  std::vector<std::string> subnets;  ///< "10.0.0.0/24"
  PLUGFEST_FIELDS(name, path_mtu, subnets)
};

/// The host as the mesh plugin uses it.
struct MeshHost {
  std::string name;
  std::vector<MeshNic> nics;
  PLUGFEST_FIELDS(key("host", name), nics)
};

/// See docs/doctor.md for the format in JSON.
struct Diagnosis {
  int schema = 1;
  std::string version;  ///< plugfest's
  MachineSummary machine;
  std::optional<MeshHost> mesh;  ///< this machine, if mode mesh was examined
  std::vector<Mode> modes;
  PLUGFEST_FIELDS(schema, version, machine, modes, mesh)
};

/// A field of /etc/os-release without its quotes: "debian" for "ID". Empty if the field does not exist.
std::string os_release(const Machine& machine, const std::string& field);

/// "sudo apt-get install tshark"; empty if the machine has no apt-get. `package`: Debian's name.
std::string install(const Machine& machine, const std::string& package);

/// Whether libibverbs has user-space drivers for the kernel's devices.
Finding verbs_providers(const Machine& machine);

/// Installs rdma_rxe, or a kernel that has it; empty if no package is known for this distribution.
std::string package_of_rxe(const Machine& machine);

}  // namespace plugfest::doctor
