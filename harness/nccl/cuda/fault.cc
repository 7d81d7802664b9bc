// Names the function of a plugin that accesses device memory with the CPU, or of a kernel that accesses a multicast
// address or an address without memory, and ends the process.
#include "harness/nccl/cuda/memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "harness/kernels/run/block.h"
#include "harness/nccl/cuda/virtual_memory.h"
#include "harness/plugin/elf_file.h"

namespace plugfest::nccl::cuda {
namespace {

struct sigaction earlier;

// The name of the function at `address` of a loaded file; "" if its symbols are stripped.
std::string function_at(const Dl_info& file, std::uintptr_t address) {
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(file.dli_fbase);
  std::string name;
  try {
    for (const plugin::ElfSymbol& symbol :
         plugin::ElfFile(file.dli_fname, plugin::ElfFile::Kinds::kProgramsToo).static_symbols(""))
      if (symbol.type == STT_FUNC && offset - symbol.value < symbol.size) name = symbol.name;
  } catch (const plugin::ElfError&) {
    // A deleted file.
  }
  if (name.empty() && file.dli_sname != nullptr) name = file.dli_sname;
  return plugin::demangled(name);
}

// Whether plugins call the library at `path`, so that the caller, not the library, is reported.
bool is_called_by_plugins(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view known :
       {"libc.so", "ld-linux", "libpthread.so", "libibverbs.so", "libasan.so", "libtsan.so"})
    if (name.starts_with(known)) return true;
  return false;
}

// The innermost function outside the C library and verbs: "copy() of /x/libnccl-net-foo.so".
std::string culprit() {
  std::array<void*, 64> frames{};
  const auto count = static_cast<std::size_t>(::backtrace(frames.data(), static_cast<int>(frames.size())));
  Dl_info own{};
  ::dladdr(reinterpret_cast<void*>(&culprit), &own);
  const auto is_own = [&](void* frame) {
    Dl_info file{};
    return ::dladdr(frame, &file) != 0 && file.dli_fbase == own.dli_fbase;
  };
  std::size_t i = 0;
  while (i < count && !is_own(frames[i])) ++i;  // AddressSanitizer's backtrace() is a frame itself
  while (i < count && is_own(frames[i])) ++i;
  // The frames: the code that called the handler, then the instruction that faulted, then its callers.
  const std::size_t fault = i + 1;
  for (i = fault; i < count; ++i) {
    Dl_info file{};
    const auto address = reinterpret_cast<std::uintptr_t>(frames[i]);
    if (::dladdr(frames[i], &file) == 0 || is_called_by_plugins(file.dli_fname)) continue;
    // The address of a caller is behind its call, which may be the last instruction of the function.
    const std::string function = function_at(file, i == fault ? address : address - 1);
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(file.dli_fbase);
    return fmt::format("{} of {}", function.empty() ? fmt::format("code at offset {:#x}", offset) : function,
                       file.dli_fname);
  }
  return "unknown code";
}

void on_fault(int number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  // The process ends here, so code that is unsafe in a signal handler can at worst hang or crash it.
  if (const kernels::Block* const block = kernels::Block::current(); block != nullptr)
    block->fault_of_access(
        info->si_addr,
        is_reserved(info->si_addr) ? fault_of_reserved(info->si_addr) : "an access to an address without memory",
        context);
  const bool is_split = address - device_views.begin < device_views.bytes;
  if (!is_split && !is_reserved(info->si_addr)) {
    ::sigaction(number, &earlier, nullptr);  // the access faults again
    return;
  }
  std::string line;
  if (is_split) {
    const std::optional<Allocation> memory = allocation_of(info->si_addr);
    line = fmt::format(
        "{}the CPU accessed device memory in {}: address {}, {}\n", kFault, culprit(), info->si_addr,
        memory ? fmt::format("byte {} of {} bytes from cudaMalloc", address - memory->address, memory->bytes)
               : std::string("memory that is not allocated"));
  } else {
    line = fmt::format("{}{} in {}: address {}\n", kFault, fault_of_reserved(info->si_addr), culprit(), info->si_addr);
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kFaultCode);
}

}  // namespace

void report_access_to_device_memory() {
  static std::atomic_flag done;
  if (done.test_and_set()) return;
  // backtrace() loads a library at its first call.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // the threads of kernels may have small stacks
  ::sigaction(SIGSEGV, &action, &earlier);
}

}  // namespace plugfest::nccl::cuda
