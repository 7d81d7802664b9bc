#include "harness/report/results.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace plugfest::report {
namespace {

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    // Only x86 has "model name".
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor";
}

}  // namespace

Environment this_environment() {
  Environment environment;
  utsname names{};
  uname(&names);
  environment.kernel = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  environment.cpu = fmt::format("{} × {}", sysconf(_SC_NPROCESSORS_ONLN), processor_model());
  environment.privileges = geteuid() == 0 ? "root" : fmt::format("user {}", geteuid());
  return environment;
}

}  // namespace plugfest::report
