// Calls NCCL's internal set-up of a communicator's network on a communicator that is all zero.
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
/// More than the communicator of any release; the pages that are not touched cost nothing.
constexpr std::size_t kCommunicatorBytes = std::size_t{64} << 20;

/// What stands between `before` and `after` in the first line that has both; empty if there is none.
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

/// Name and version in "Loaded net plugin mesh (v11)"; "" and 0 when no such line is there.
std::pair<std::string, int> loaded(const std::string& log) {
  const std::string text = between(log, "Loaded net plugin ", ")");
  const std::size_t mark = text.rfind(" (v");
  if (mark == std::string::npos) return {};
  int version = 0;
  std::from_chars(text.data() + mark + 3, text.data() + text.size(), version);
  return {text.substr(0, mark), version};
}

}  // namespace

Witness load_with_nccl(const std::string& plugin, int log) {
  ::setenv("NCCL_NET_PLUGIN", plugin.c_str(), 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
  ::setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", log).c_str(), 1);

  NcclLibrary nccl(kPurpose);
  if (nccl.version() != kNcclOfLoader)
    throw LoadError(fmt::format("{}: {} is NCCL {}, and the inside of 2.28.9 alone is known: set NCCL_LIBRARY to it",
                                kPurpose, nccl.path(), nccl.version_text()));
  using OnCommunicator = abi::Result (*)(void* communicator);
  const auto init = reinterpret_cast<OnCommunicator>(nccl.find("_Z11ncclNetInitP8ncclComm"));
  const auto finalize = reinterpret_cast<OnCommunicator>(nccl.find("_Z15ncclNetFinalizeP8ncclComm"));
  void* const communicator =
      ::mmap(nullptr, kCommunicatorBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (communicator == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");

  Witness witness;
  witness.nccl = nccl.version_text();
  witness.init = init(communicator);
  witness.log = read_all(log);
  std::tie(witness.name, witness.api) = loaded(witness.log);
  witness.network = between(witness.log, "Assigned NET plugin ", " to comm");
  if (witness.init == abi::Result::kSuccess) {
    if (witness.api != 0 && witness.network == witness.name)
      Library(plugin, witness.api).net().devices(&witness.devices);
    witness.finalize = finalize(communicator);
  }
  // NCCL keeps its settings, and with them pointers to what it has loaded: it stays.
  nccl.release();
  ::munmap(communicator, kCommunicatorBytes);
  witness.log = read_all(log);
  return witness;
}

}  // namespace plugfest::plugin
