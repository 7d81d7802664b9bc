// A running QEMU, and the two lines to it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fabric/guest/kernel.h"

namespace plugfest::guest {

enum class Acceleration { kKvm, kEmulation };

/// Killed, and with it everything in it, when this object goes and when the process ends.
class Machine {
 public:
  /// `initial_files`: the archive that the kernel unpacks. Errors: std::runtime_error.
  Machine(const Kernel& kernel, const std::string& initial_files, Acceleration acceleration);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// What the guest's processes and the host say to each other: see channel.h.
  int port() const { return port_; }
  /// What the guest's kernel and QEMU itself print.
  int console() const { return console_; }

 private:
  int port_ = -1;
  int console_ = -1;
  pid_t pid_ = -1;
};

}  // namespace plugfest::guest
