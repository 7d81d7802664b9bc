#include "harness/control/exported_memory.h"

#include <vector>

#include "harness/control/rank_process.h"
#include "harness/wire/exported_memory.h"

namespace plugfest::control {

ExportedMemory allocate_exported(const Rank& rank, std::size_t size) {
  const std::shared_ptr<RankProcess>& process = rank.rank_process();
  const wire::ExportedMapping mapping = process->ask(wire::MapExported{size});
  process->ledger.memory.push_back({mapping, size});
  return {Memory(process, {mapping.address, size}, {mapping.pages_address, mapping.pages_size}), mapping.descriptor,
          mapping.is_dma_buf};
}

void replace_descriptor(const Rank& rank, int descriptor) {
  rank.rank_process()->ask(wire::ReplaceDescriptor{descriptor});
}

Window register_exported(OneSidedGroup& group, const std::vector<ExportedMemory>& exported) {
  Window window;
  std::vector<CallArguments> arguments;
  for (const ExportedMemory& one : exported) {
    window.memory.push_back(one.memory);
    arguments.push_back(
        with(reg_arguments(one.memory), {{"type", static_cast<int>(abi::kPointerCuda)}, {"fd", one.descriptor}}));
  }
  window.mhandles = group.register_all("regMrSymDmaBuf", arguments, "*mhandle");
  return window;
}

}  // namespace plugfest::control
