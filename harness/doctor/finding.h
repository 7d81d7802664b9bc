// What the doctor says: findings, grouped by what a user wants to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plugfest::doctor {

/// kGood: as it should be. kNote: worth knowing. kWarning: works, and will bite. kBad: the mode does not work.
enum class State : std::uint8_t { kGood, kNote, kWarning, kBad };

struct Finding {
  /// What was looked at: "user namespaces".
  std::string name;
  State state = State::kGood;
  /// What was found, one line.
  std::string text = {};
  /// The command that mends it; empty where there is none or nothing to mend.
  std::string mend = {};
};

/// One thing that a user may want to do here. It works unless a finding is bad.
struct Mode {
  /// As --for takes it: "rxe".
  std::string name;
  /// What it is, and what one types for it.
  std::string title;
  std::string command;
  std::vector<Finding> findings;

  /// The first bad finding; null if it works.
  const Finding* obstacle() const;
  bool works() const { return obstacle() == nullptr; }
};

/// Whose findings they are.
struct Patient {
  std::string system;  ///< "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  ///< "6.1.0-18-amd64"
  std::string architecture;
  std::string user;  ///< "root" or "user 1000"
};

struct Diagnosis {
  Patient patient;
  std::vector<Mode> modes;
};

}  // namespace plugfest::doctor
