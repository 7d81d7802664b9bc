#include "harness/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace plugfest::doctor {

const Finding* Mode::first_bad() const {
  const auto bad =
      std::find_if(findings.begin(), findings.end(), [](const Finding& it) { return it.state == State::kBad; });
  return bad == findings.end() ? nullptr : &*bad;
}

std::string os_release(const Machine& machine, const std::string& field) {
  std::istringstream lines(machine.read("/etc/os-release").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field + "=")) continue;
    std::string value = line.substr(field.size() + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'')) value = value.substr(1, value.size() - 2);
    return value;
  }
  return "";
}

std::string install(const Machine& machine, const std::string& package) {
  if (machine.program("apt-get").empty()) return "";
  return fmt::format("{}apt-get install {}", machine.is_root() ? "" : "sudo ", package);
}

Finding verbs_providers(const Machine& machine) {
  if (!machine.list("/etc/libibverbs.d").empty()) return good("verbs providers", "in /etc/libibverbs.d");
  return bad("verbs providers", "none in /etc/libibverbs.d: libibverbs needs one to find a device",
             install(machine, "ibverbs-providers"));
}

std::string package_of_rxe(const Machine& machine) {
  if (machine.program("apt-get").empty()) return "";
  // Ubuntu has no package with the module for kernels of cloud providers (-azure, -aws, -kvm). Debian's -cloud kernels
  // lack the module, Debian's standard kernels have it.
  if (os_release(machine, "ID") == "ubuntu" && machine.kernel().ends_with("-generic"))
    return install(machine, "linux-modules-extra-" + machine.kernel());
  if (os_release(machine, "ID") == "debian" && machine.kernel().find("-cloud-") != std::string::npos)
    return install(machine, machine.architecture() == "aarch64" ? "linux-image-arm64" : "linux-image-amd64") +
           "   # then boot it";
  return "";
}

}  // namespace plugfest::doctor
