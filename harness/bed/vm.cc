// The NIC kind `vm`: the kernel's Soft-RoCE in a virtual machine. The whole command runs again inside it, where this
// kind is the same as `rxe`.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "fabric/guest/guest.h"
#include "fabric/system/process.h"
#include "harness/bed/factories.h"

namespace plugfest::bed {
namespace {

/// Set for the command in the guest, so that it starts no further guest.
constexpr const char* kInGuest = "PLUGFEST_IN_GUEST";

guest::ModuleNames modules() {
  guest::ModuleNames names = guest::boot_modules();
  for (const char* name : {"rdma_rxe", "ib_uverbs", "rdma_ucm", "veth"}) names.required.emplace_back(name);
  // rdma_rxe requests its checksum by name, so that the kernel's dependency files do not list one.
  for (const char* name : {"crc32_generic", "crc32_pclmul", "sch_tbf", "sch_netem"}) names.optional.emplace_back(name);
  return names;
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

class Vm final : public NicKind {
 public:
  explicit Vm(std::string kernel) : kernel_(std::move(kernel)), rxe_(make_rxe({})) {}

  std::string name() const override { return "vm"; }
  std::string description() const override { return "the kernel's Soft-RoCE in a virtual machine"; }
  NicSupport support() const override { return {.kernel = true}; }
  /// Without KVM the guest's processors are emulated.
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
    guest::Outcome outcome = guest::run_in_guest(guest::find_kernel(wanted_kernel, modules(), print), command);
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

std::unique_ptr<NicKind> make_vm(const NicOptions& options) { return std::make_unique<Vm>(options.kernel); }

}  // namespace plugfest::bed
