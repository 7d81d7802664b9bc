#include "harness/cli/options/nic.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "fabric/guest/guest.h"

namespace plugfest::cli {
namespace {

// Set for the command in the guest, which then does not ask for another.
constexpr const char* kInGuest = "PLUGFEST_IN_GUEST";

bool in_guest() { return std::getenv(kInGuest) != nullptr; }

guest::ModuleNames modules() {
  guest::ModuleNames names = guest::boot_modules();
  // rxe asks for its checksum by name, so nothing in the kernel says that it depends on one.
  for (const char* name : {"rdma_rxe", "ib_uverbs", "rdma_ucm", "veth"}) names.required.emplace_back(name);
  for (const char* name : {"crc32_generic", "crc32_pclmul", "sch_tbf", "sch_netem"}) names.optional.emplace_back(name);
  return names;
}

std::vector<std::string> own_arguments() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(stream, word, '\0');) words.push_back(word);
  return words;
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

}  // namespace

void Nic::add_options(Command command) {
  command
      .add_option("--nic", kind,
                  "Kind of NIC: roce, the one in user space; loopback, the same on 127.x.y.z, for machines that bar "
                  "namespaces; rxe, the kernel's; vm, the kernel's in a virtual machine; "
                  "system, what this machine has, without a fabric")
      .type_name("KIND");
  command
      .add_option("--kernel", kernel,
                  "With --nic vm: a kernel image, or a folder with boot/ and lib/modules/; default: the distribution's")
      .type_name("PATH");
  command.add_flag("--allow-host-changes", allow_host_changes,
                   "With --nic rxe: load the kernel's module for the time of the run");
}

void Nic::check() const {
  if (kind != "roce" && kind != "loopback" && kind != "rxe" && kind != "vm" && kind != "system") {
    throw std::runtime_error(fmt::format("--nic \"{}\": there are roce, loopback, rxe, vm and system", kind));
  }
  if (!kernel.empty() && kind != "vm") throw std::runtime_error("--kernel: only --nic vm boots one");
  if (allow_host_changes && kind != "rxe") throw std::runtime_error("--allow-host-changes: only --nic rxe makes any");
}

bool Nic::wants_guest() const { return kind == "vm" && !in_guest(); }

GuestOutcome run_in_guest(const Nic& nic, const std::vector<std::string>& results) {
  guest::CommandLine command;
  command.argv = own_arguments();
  command.program = std::filesystem::read_symlink("/proc/self/exe").string();
  command.working_directory = std::filesystem::current_path().string();
  for (char** line = environ; *line != nullptr; ++line) command.environment.emplace_back(*line);
  command.environment.push_back(fmt::format("{}=1", kInGuest));
  for (const std::string& path : results) command.results.push_back(absolute(path));

  const auto asked = nic.kernel.empty() ? std::nullopt : std::optional<std::filesystem::path>(nic.kernel);
  const auto say = [](const std::string& what) { fmt::print(stderr, "plugfest: {}\n", what); };
  guest::Outcome outcome = guest::run_in_guest(guest::find_kernel(asked, modules(), say), command);
  GuestOutcome result{outcome.exit_code, {}};
  for (const std::string& path : results) {
    const auto found = outcome.results.find(absolute(path));
    if (found != outcome.results.end()) result.results[path] = std::move(found->second);
  }
  return result;
}

}  // namespace plugfest::cli
