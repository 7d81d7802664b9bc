// NVIDIA's own transports, taken out of libnccl.so.2 and callable without a GPU.
//
// They are no exports: their tables (`ncclNetIb`, `ncclNetSocket`) are found in the library's static symbol table. They
// judge the suite: what they are known to do right must pass.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::plugin {

/// True for what begins with "nccl:".
bool is_builtin(std::string_view plugin);

/// Releases 2.28.x keep their transports in tables that are known, of net v11.
inline constexpr int kNcclOfTransports = 228;

/// As people write it: "2.28.9" of 22809.
std::string nccl_version_text(int version);

/// Fetches the release that is known best, for who has none.
inline constexpr const char* kFetchNccl =
    "pip download --no-deps nvidia-nccl-cu12==2.28.9 && unzip -j nvidia_nccl_cu12-*.whl '*/libnccl.so.2' && export "
    "NCCL_LIBRARY=$PWD/libnccl.so.2";

/// The libnccl.so.2 to use: NCCL_LIBRARY if set; else one that is loaded already; else what the loader finds; else the
/// library folders of CUDA_HOME, CUDA_PATH and /usr/local/cuda. Empty when there is none.
std::string find_nccl();

struct Builtin {
  /// From dlopen; the caller closes it.
  void* library = nullptr;
  /// The transport's table.
  void* table = nullptr;
  /// Version of that table.
  int api = 0;
  /// The library's file.
  std::string path;
  /// As ncclGetVersion gives it: 22809 for 2.28.9.
  int nccl_version = 0;
};

/// Loads "nccl:IB" or "nccl:Socket" (any letter case). Socket asks the CUDA runtime inside libnccl for the current
/// device with each connection, which fails where there is no driver: that one function is redirected, in this
/// process's memory alone, to one that answers 0. Its settings come from the environment (NCCL_SOCKET_IFNAME, ...) and
/// are read once per process.
/// Errors: LoadError when the name is another, there is no libnccl, or it is a release whose tables are not known.
Builtin load_builtin(const std::string& plugin);

}  // namespace plugfest::plugin
