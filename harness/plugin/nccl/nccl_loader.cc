// Calls NCCL's internal ncclNetInit and ncclNetFinalize with a communicator of zero bytes.
#include "harness/plugin/nccl/nccl_loader.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "harness/plugin/elf/inspect.h"
#include "harness/plugin/library.h"
#include "harness/plugin/nccl/nccl_library.h"

namespace plugfest::plugin {
namespace {

constexpr const char* kPurpose = "loader nccl";
/// Larger than the communicator of any release. Untouched pages use no memory.
constexpr std::size_t kCommunicatorBytes = std::size_t{64} << 20;

/// The text between `before` and `after` in the first line with `before`; empty if that line lacks `after`.
std::string between(const std::string& log, const std::string& before, const std::string& after) {
  const std::size_t start = log.find(before);
  if (start == std::string::npos) return "";
  const std::size_t begin = start + before.size();
  const std::string line = log.substr(begin, log.find('\n', begin) - begin);
  const std::size_t end = line.rfind(after);
  return end == std::string::npos ? "" : line.substr(0, end);
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (off_t offset = 0;;) {
    const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    offset += got;
  }
}

/// Name and version in "Loaded net plugin mesh (v11)"; "" and 0 without such a line.
std::pair<std::string, int> loaded(const std::string& log) {
  const std::string text = between(log, "Loaded net plugin ", ")");
  const std::size_t mark = text.rfind(" (v");
  if (mark == std::string::npos) return {};
  int version = 0;
  std::from_chars(text.data() + mark + 3, text.data() + text.size(), version);
  return {text.substr(0, mark), version};
}

}  // namespace

bool is_own_network(std::string_view name) { return name == "IB" || name == "Socket"; }

NcclLoad load_with_nccl(const std::string& plugin, int log) {
  ::setenv("NCCL_NET_PLUGIN", plugin.c_str(), 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  ::setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", log).c_str(), 1);

  NcclLibrary nccl(kPurpose);
  if (nccl.version() != kNcclOfLoader)
    throw LoadError(
        fmt::format("{}: {} is NCCL {}, and only the internal functions of 2.28.9 are known: set NCCL_LIBRARY "
                    "to that release",
                    kPurpose, nccl.path(), nccl.version_text()));
  using OnCommunicator = abi::Result (*)(void* communicator);
  const auto init = reinterpret_cast<OnCommunicator>(nccl.find("_Z11ncclNetInitP8ncclComm"));
  const auto finalize = reinterpret_cast<OnCommunicator>(nccl.find("_Z15ncclNetFinalizeP8ncclComm"));
  void* const communicator =
      ::mmap(nullptr, kCommunicatorBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (communicator == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");

  NcclLoad load;
  load.nccl = nccl.version_text();
  load.init = init(communicator);
  load.log = read_all(log);
  std::tie(load.name, load.api) = loaded(load.log);
  load.network = between(load.log, "Assigned NET plugin ", " to comm");
  if (load.init == abi::Result::kSuccess) {
    if (load.api != 0 && (load.network == load.name || !is_own_network(load.network)))
      Library(plugin, load.api).net().devices(&load.devices);
    load.finalize = finalize(communicator);
  }
  // NCCL keeps pointers to what it has loaded, so it must stay loaded.
  nccl.release();
  ::munmap(communicator, kCommunicatorBytes);
  load.log = read_all(log);
  return load;
}

}  // namespace plugfest::plugin
