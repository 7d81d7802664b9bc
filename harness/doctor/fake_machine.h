// A machine for tests: files in a scratch folder, and trials with preset results.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fabric/system/testing.h"
#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// An ordinary user on Debian 12 with no package installed and no restriction. Tests change files, programs and trials.
class FakeMachine {
 public:
  FakeMachine() {
    kernel("6.1.0-18-amd64");
    file("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n");
    file("/proc/self/uid_map", "         0          0 4294967295\n");
    user(1000, "0000000000000000");
    limits("8388608", "8388608", "1024", "524288");
    file("/proc/sys/user/max_user_namespaces", "30000\n");
    file("/proc/sys/user/max_net_namespaces", "30000\n");
    file("/proc/sys/net/core/rmem_max", "212992\n");
    program("apt-get");
    trials = {
        .sandbox = [](bool) { return SandboxTrial{}; },
        .loopback = [] { return std::string(); },
        .kvm = [] { return KvmTrial{}; },
        .nccl = [] { return NcclTrial{}; },
        .cuda = [] { return CudaTrial{}; },
        .paused_priorities = [](const std::string&) { return std::nullopt; },
    };
  }

  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << content;
  }
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::filesystem::create_symlink(target, root_ + path);
  }
  void remove(const std::string& path) { std::filesystem::remove_all(root_ + path); }
  void program(const std::string& name) {
    file("/usr/bin/" + name, "");
    std::filesystem::permissions(root_ + "/usr/bin/" + name, std::filesystem::perms::owner_all);
  }
  void kernel(const std::string& release) { file("/proc/sys/kernel/osrelease", release + "\n"); }
  void user(int id, const std::string& capabilities) {
    file("/proc/self/status", "Name:\tplugfest\nUid:\t" + std::to_string(id) + "\t" + std::to_string(id) +
                                  "\t0\t0\nCapEff:\t" + capabilities + "\n");
  }
  void root_user() { user(0, "000001ffffffffff"); }
  void limits(const std::string& memory, const std::string& max_memory, const std::string& files,
              const std::string& max_files) {
    file("/proc/self/limits",
         "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max open files            " +
             files + "    " + max_files +
             "   files     \n"
             "Max locked memory         " +
             memory + "   " + max_memory + "   bytes     \n");
  }

  Machine machine() const {
    return Machine(root_, {"/usr/bin"}, "x86_64", "/home/user/.cache/plugfest", "plugfest", trials);
  }

  Trials trials;

 private:
  ScratchFolder folder_;
  const std::string root_ = folder_.path();
};

/// The finding `name`. Errors: std::runtime_error if it does not exist.
inline const Finding& named(const std::vector<Finding>& findings, const std::string& name) {
  const auto found =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.name == name; });
  if (found == findings.end()) throw std::runtime_error("no finding " + name);
  return *found;
}

inline bool has(const std::vector<Finding>& findings, const std::string& name) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) { return finding.name == name; });
}

}  // namespace plugfest::doctor
