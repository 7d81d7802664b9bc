// The NIC kind `rxe`: the kernel's Soft-RoCE on a fabric of namespaces, or of interfaces in one namespace where the
// kernel needs that.
#include "fabric/rxe/rxe.h"

#include <utility>

#include "fabric/netns/sandbox.h"
#include "harness/bed/factories.h"

namespace plugfest::bed {
namespace {

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

}  // namespace

std::unique_ptr<NicKind> make_rxe(const NicOptions& options) {
  return std::make_unique<Rxe>(options.allow_host_changes);
}

}  // namespace plugfest::bed
