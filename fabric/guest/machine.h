// A QEMU process and its two connections to the host.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fabric/guest/kernel.h"
#include "fabric/system/file.h"

namespace plugfest::guest {

/// How QEMU executes the guest's instructions.
enum class Acceleration { kKvm, kEmulation };

/// A running virtual machine. It is killed when this object is destroyed or this process exits.
class Machine {
 public:
  /// `initial_files`: the content of the initial file system (archive.h). Errors: std::runtime_error.
  Machine(const Kernel& kernel, const std::string& initial_files, Acceleration acceleration);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The socket of the virtio port: see protocol.h.
  int port() const { return port_.get(); }
  /// The socket with the console output of the guest's kernel and of QEMU.
  int console() const { return console_.get(); }

 private:
  Descriptor port_;
  Descriptor console_;
  pid_t pid_ = -1;
};

}  // namespace plugfest::guest
