// A session with ranks of the toy plugin on this machine.
#pragma once

#include <signal.h>

#include <cerrno>
#include <string>

#include "harness/control/script.h"
#include "harness/control/session.h"
#include "test_paths.h"

namespace plugfest::control {

/// `fault`: a value of TOY_FAULT (toy_plugin.cc); "": none.
class ToySession {
 public:
  explicit ToySession(const std::string& fault = "", Limits limits = {})
      : session(launcher, {.plugin = PLUGFEST_TOY_PLUGIN, .api = 0, .environment = {{"TOY_FAULT", fault}}}, limits) {}

  PlainLauncher launcher;
  Session session;
};

/// Two ranks of the toy plugin with a connection between them.
struct Pair {
  explicit Pair(const std::string& fault = "", Limits limits = {}) : toy(fault, limits) {}
  ToySession toy;
  Lease lease = toy.session.lease();
  Rank a = lease.rank("a.eth0"), b = lease.rank("b.eth0");
  Connection ab = connect({a, Device{0}}, {b, Device{0}});
};

/// A Pair with memory that the sender has registered.
struct PairWithBuffer : Pair {
  using Pair::Pair;
  Memory memory = a.allocate(100);
  Buffer buffer = ab.send.reg(memory);
};

/// Limits for tests in which something hangs.
inline Limits short_timeout() { return {.call_seconds = 1, .last_calls = 12, .output_bytes = 64 * 1024}; }

/// Whether the process `pid` exists.
inline bool exists(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

/// The message of the `Error` that `action` throws; "(nothing was thrown)" when `action` throws no exception.
template <typename Error, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace plugfest::control
