// A QEMU process and its two connections to the host.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fabric/guest/kernel.h"

namespace plugfest::guest {

/// How QEMU executes the guest's instructions.
enum class Acceleration { kKvm, kEmulation };

/// A running virtual machine. It is killed when this object is destroyed or this process exits.
class Machine {
 public:
  /// `initial_files`: the content of the initial file system (kernel.h). Errors: std::runtime_error.
  Machine(const Kernel& kernel, const std::string& initial_files, Acceleration acceleration);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The socket of the virtio port: see protocol.h.
  int port() const { return port_; }
  /// The socket with the console output of the guest's kernel and of QEMU.
  int console() const { return console_; }

 private:
  int port_ = -1;
  int console_ = -1;
  pid_t pid_ = -1;
};

}  // namespace plugfest::guest
