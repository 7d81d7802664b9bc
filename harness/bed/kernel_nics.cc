// The NIC kinds of the kernel: `rxe`, `vm`, `system`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "fabric/guest/guest.h"
#include "fabric/netns/sandbox.h"
#include "fabric/rxe/rxe.h"
#include "fabric/system/process.h"
#include "harness/bed/nic_kind.h"

namespace plugfest::bed {
namespace {

// `rxe`: Soft-RoCE on a fabric of namespaces, or of interfaces in one namespace where the kernel requires that.
class Rxe final : public NicKind {
 public:
  explicit Rxe(bool allow_host_changes) : allow_host_changes_(allow_host_changes) {}

  std::string name() const override { return "rxe"; }
  std::string description() const override { return "the kernel's Soft-RoCE"; }
  NicSupport support() const override { return {.host_changes = true}; }

  std::optional<int> enter() override {
    rxe_ = std::make_unique<rxe::Rxe>(allow_host_changes_);
    return flat() ? netns::contain_processes() : netns::enter_sandbox();
  }

  std::string layout() const override { return flat() ? rxe::describe(rxe_->layout()) : ""; }

  TestBed build(const topology::Graph& graph, bool out_of_band) override {
    netns::Options options;
    options.prepare_host = [this](const topology::Host& host) { rxe_->prepare_host(host); };
    options.flat = flat();
    options.out_of_band = out_of_band && !flat();
    TestBedParts parts;
    parts.fabric = std::make_unique<netns::Fabric>(graph, std::move(options));
    parts.graph = graph;
    parts.common_interface = flat() ? "lo" : out_of_band ? "oob0" : "eth";
    return TestBed(std::move(parts));
  }

 private:
  bool flat() const { return rxe_->layout() == rxe::Layout::kFlat; }

  const bool allow_host_changes_;
  std::unique_ptr<rxe::Rxe> rxe_;
};

// Names of the RDMA devices whose first port is active, sorted.
std::vector<std::string> active_devices() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::string state;
    std::getline(std::ifstream(device.path() / "ports" / "1" / "state"), state);
    if (state.find("ACTIVE") != std::string::npos) names.push_back(device.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// `system`: the RDMA devices of this machine, without a fabric.
class System final : public NicKind {
 public:
  std::string name() const override { return "system"; }
  std::string description() const override { return "the RDMA devices of this machine, without a fabric"; }
  std::optional<int> enter() override { return netns::contain_processes(); }
  std::string layout() const override { return "ranks on this machine"; }

  // The ranks "near" and "far" both run on this machine, on two different devices if it has two.
  TestBed build(const topology::Graph&, bool) override {
    const std::vector<std::string> devices = active_devices();
    if (devices.empty()) {
      throw std::runtime_error(
          "--nic system: this machine has no RDMA device whose port is active: ibv_devinfo lists its devices; --nic "
          "roce needs none");
    }
    TestBedParts parts;
    parts.launcher = std::make_unique<control::PlainLauncher>();
    parts.paths = {{"near." + devices.front(), "far." + devices[devices.size() > 1 ? 1 : 0]}};
    return TestBed(std::move(parts));
  }
};

// Set for the command in the guest, which then starts no further guest.
constexpr const char* kInGuest = "PLUGFEST_IN_GUEST";

guest::ModuleNames modules() {
  guest::ModuleNames names = guest::boot_modules();
  for (const char* name : {"rdma_rxe", "ib_uverbs", "rdma_ucm", "veth"}) names.required.emplace_back(name);
  // rdma_rxe requests its checksum by name, so that the kernel's dependency files do not list one.
  for (const char* name : {"crc32_generic", "crc32_pclmul", "sch_tbf", "sch_netem"}) names.optional.emplace_back(name);
  return names;
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

// `vm`: Soft-RoCE in a virtual machine. The whole command runs again in the guest, where this kind equals `rxe`.
class Vm final : public NicKind {
 public:
  explicit Vm(std::string kernel) : kernel_(std::move(kernel)), rxe_(make_rxe({})) {}

  std::string name() const override { return "vm"; }
  std::string description() const override { return "the kernel's Soft-RoCE in a virtual machine"; }
  NicSupport support() const override { return {.kernel = true}; }
  // Without KVM the guest's processors are emulated: calls take longer.
  double timeout_scale() const override { return 6; }

  std::optional<GuestResult> run_in_guest(const std::vector<std::string>& result_paths) override {
    if (std::getenv(kInGuest) != nullptr) return std::nullopt;
    guest::CommandLine command;
    command.argv = own_arguments();
    command.program = std::filesystem::read_symlink("/proc/self/exe").string();
    command.working_directory = std::filesystem::current_path().string();
    for (char** line = environ; *line != nullptr; ++line) command.environment.emplace_back(*line);
    command.environment.push_back(fmt::format("{}=1", kInGuest));
    for (const std::string& path : result_paths) command.results.push_back(absolute(path));

    const auto wanted_kernel = kernel_.empty() ? std::nullopt : std::optional<std::filesystem::path>(kernel_);
    const auto print = [](const std::string& message) { fmt::print(stderr, "plugfest: {}\n", message); };
    const guest::Kernel kernel = guest::find_kernel(wanted_kernel, modules(), print);
    print("starting a virtual machine, which takes half a minute without /dev/kvm");
    guest::Outcome outcome = guest::run_in_guest(kernel, command);
    GuestResult result{outcome.exit_code, {}};
    for (const std::string& path : result_paths) {
      const auto found = outcome.results.find(absolute(path));
      if (found != outcome.results.end()) result.files[path] = std::move(found->second);
    }
    return result;
  }

  std::optional<int> enter() override { return rxe_->enter(); }
  std::string layout() const override { return rxe_->layout(); }
  TestBed build(const topology::Graph& graph, bool out_of_band) override { return rxe_->build(graph, out_of_band); }

 private:
  const std::string kernel_;
  const std::unique_ptr<NicKind> rxe_;
};

}  // namespace

std::unique_ptr<NicKind> make_rxe(const NicOptions& options) {
  return std::make_unique<Rxe>(options.allow_host_changes);
}

std::unique_ptr<NicKind> make_system(const NicOptions&) { return std::make_unique<System>(); }

std::unique_ptr<NicKind> make_vm(const NicOptions& options) { return std::make_unique<Vm>(options.kernel); }

}  // namespace plugfest::bed
