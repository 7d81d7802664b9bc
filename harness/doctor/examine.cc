#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::doctor {
namespace {

using report::kBold, report::kDim, report::kGreen, report::kRed, report::kYellow;

struct KnownMode {
  const char* name;
  const char* title;
  const char* arguments;  // arguments of plugfest; empty if the mode is not a command
  std::vector<Finding> (*examine)(const Machine&);
};

constexpr std::array kModes = {
    KnownMode{kDefaultMode, "emulated hosts, the user-space NIC", "run", examine_fabric},
    KnownMode{"loopback", "hosts as addresses 127.x.y.z, no namespaces", "run --nic loopback", examine_loopback},
    KnownMode{"rxe", "emulated hosts, the kernel's software NIC", "run --nic rxe", examine_rxe},
    KnownMode{"vm", "the kernel's software NIC in a VM", "run --nic vm", examine_vm},
    KnownMode{"system", "this machine's own RDMA devices", "run --nic system", examine_system},
    KnownMode{kMeshMode, "the mesh plugin on these RDMA devices", "run --plugin mesh --nic system", examine_mesh},
    KnownMode{"nccl", "NCCL and its built-in transports", "run --plugin nccl:IB", examine_nccl},
    KnownMode{"tools", "optional programs", "", examine_tools},
};

// The required content of another host's diagnosis.
struct MeshFile {
  int schema = 0;
  MeshHost mesh;
  PLUGFEST_FIELDS(schema, mesh)
};

constexpr std::size_t kModeIndent = 14;

std::string_view color_of(State state) {
  return state == State::kBad ? kRed : state == State::kWarning ? kYellow : state == State::kGood ? kGreen : kDim;
}

}  // namespace

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const KnownMode& known : kModes) names.emplace_back(known.name);
  return names;
}

Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted, const std::vector<MeshHost>& peers) {
  const std::vector<std::string> names = mode_names();
  for (const std::string& name : wanted)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw std::runtime_error(fmt::format("--for \"{}\": expected one of {}", name, fmt::join(names, ", ")));
  Diagnosis diagnosis;
  diagnosis.machine = {.system = os_release(machine, "PRETTY_NAME"),
                       .kernel = machine.kernel(),
                       .architecture = machine.architecture(),
                       .user = machine.is_root() ? "root" : fmt::format("user {}", machine.user())};
  for (const KnownMode& known : kModes) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), known.name) == wanted.end()) continue;
    const std::string command = *known.arguments == '\0' ? "" : machine.plugfest() + " " + known.arguments;
    diagnosis.modes.push_back({known.name, known.title, command, known.examine(machine)});
    if (known.name != std::string_view(kMeshMode)) continue;
    diagnosis.mesh = mesh_host(machine);
    std::vector<MeshHost> hosts = {*diagnosis.mesh};
    hosts.insert(hosts.end(), peers.begin(), peers.end());
    append(diagnosis.modes.back().findings, examine_pairs(hosts));
  }
  return diagnosis;
}

std::string to_text(const Diagnosis& diagnosis, bool color) {
  const auto paint = [color](std::string_view code, std::string_view word) {
    return color ? report::painted(code, word) : std::string(word);
  };
  const MachineSummary& machine = diagnosis.machine;
  std::string out = fmt::format("{}Linux {} {}, as {}\n\n", machine.system.empty() ? "" : machine.system + ", ",
                                machine.kernel, machine.architecture, machine.user);
  for (const Mode& mode : diagnosis.modes) {
    const Finding* const bad = mode.first_bad();
    const std::string verdict = fmt::format("{:<3}", bad == nullptr ? "yes" : "no");
    const std::string indent(kModeIndent, ' ');
    out += fmt::format("{}  {:<8} {}\n", paint(bad == nullptr ? kGreen : kRed, verdict), mode.name, mode.title);
    if (!mode.command.empty()) out += fmt::format("{}{}\n", indent, paint(kDim, mode.command));
    if (bad == nullptr) continue;
    out += fmt::format("{}{}\n", indent, report::wrapped(fmt::format("{}: {}", bad->name, bad->text), kModeIndent));
    if (!bad->fix.empty()) out += fmt::format("{}→ {}\n", indent, bad->fix);
  }
  for (const Mode& mode : diagnosis.modes) {
    out += fmt::format("\n{}\n", paint(kBold, mode.name));
    std::size_t width = 0;
    for (const Finding& finding : mode.findings) width = std::max(width, finding.name.size());
    for (const Finding& finding : mode.findings) {
      const std::string state = fmt::format("{:<5}", texts_of(finding.state)[static_cast<std::size_t>(finding.state)]);
      out += fmt::format("  {} {:<{}}  {}\n", paint(color_of(finding.state), state), finding.name, width,
                         report::wrapped(finding.text, 10 + width));
      if (!finding.fix.empty()) out += fmt::format("        {:<{}}  → {}\n", "", width, finding.fix);
    }
  }
  return out;
}

std::string to_json(Diagnosis diagnosis, const std::string& version) {
  diagnosis.version = version;
  return wire::json_text(diagnosis);
}

MeshHost read_mesh_host(std::string_view text, const std::string& file) {
  try {
    MeshFile read = wire::decode_json<MeshFile>(text);
    if (read.schema == Diagnosis().schema) return std::move(read.mesh);
  } catch (const wire::JsonError&) {
  }
  throw std::runtime_error(file + ": not written by plugfest doctor --plugin mesh --json");
}

const Finding* Mode::first_bad() const {
  const auto bad = std::find_if(findings.begin(), findings.end(),
                                [](const Finding& finding) { return finding.state == State::kBad; });
  return bad == findings.end() ? nullptr : &*bad;
}

std::string os_release(const Machine& machine, const std::string& field) {
  for (const std::string& line : report::lines_of(machine.read("/etc/os-release").value_or(""))) {
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
