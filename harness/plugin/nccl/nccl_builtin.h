// NVIDIA's own transports inside libnccl.so.2, callable without a GPU.
//
// The library does not export their tables (`ncclNetIb`, `ncclNetSocket`); its static symbol table contains them. They
// are the suite's oracles: the rules must pass on them.
#pragma once

#include <string>
#include <string_view>

namespace plugfest::plugin {

/// True for names that begin with "nccl:".
bool is_builtin(std::string_view plugin);

/// The releases whose tables are known: 2.28.x, with tables of net v11.
inline constexpr int kNcclOfTransports = 228;

/// "2.28.9" for 22809.
std::string nccl_version_text(int version);

/// Shell command that downloads NCCL 2.28.9.
inline constexpr const char* kFetchNccl =
    "pip download --no-deps nvidia-nccl-cu12==2.28.9 && unzip -j nvidia_nccl_cu12-*.whl '*/libnccl.so.2' && export "
    "NCCL_LIBRARY=$PWD/libnccl.so.2";

/// The path of libnccl.so.2: NCCL_LIBRARY if set; else that of a loaded one; else the first one in the loader's search
/// and in the library folders of CUDA_HOME, CUDA_PATH and /usr/local/cuda. Empty when none is found.
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

/// Loads "nccl:IB" or "nccl:Socket" (any letter case). Socket calls cudaGetDevice inside libnccl for each connection,
/// which fails without a CUDA driver; it is replaced in this process's memory by a function that returns device 0. The
/// transports read their settings (NCCL_SOCKET_IFNAME, …) from the environment once per process.
/// Errors: LoadError for other names, without libnccl, and for releases whose tables are not known.
Builtin load_builtin(const std::string& plugin);

}  // namespace plugfest::plugin
