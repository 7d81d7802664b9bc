// NVIDIA's libnccl.so.2 as an oracle, without a GPU: its transports, which must pass the rules, and its own loader of
// plugins. The library does not export their tables and functions; its static symbol table contains them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "harness/abi/base.h"
#include "harness/plugin/elf_file.h"
#include "harness/plugin/layout.h"

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

/// The path of libnccl.so.2: NCCL_LIBRARY if set; else a loaded one; else the first one in the loader's search
/// path and in the library folders of CUDA_HOME, CUDA_PATH and /usr/local/cuda. Empty when none is found.
std::string find_nccl();
/// Returns find_nccl(). `purpose`: the beginning of the message, such as "nccl:IB". Errors: LoadError when none is
/// found.
std::string require_nccl(const std::string& purpose);

struct Builtin {
  /// The handle of dlopen; the caller closes it.
  void* library = nullptr;
  void* table = nullptr;
  InterfaceKind kind = InterfaceKind::kNet;
  int api = 0;
  std::string path;
  /// The version that ncclGetVersion returns: 22809 for 2.28.9.
  int nccl_version = 0;
};

/// Loads "nccl:IB", "nccl:Socket" or "nccl:GIN", GIN in proxy mode over IB (any letter case). Socket calls
/// cudaGetDevice inside libnccl for each connection, which fails without a CUDA driver; this process replaces it by a
/// function that returns device 0. The transports read their settings (NCCL_SOCKET_IFNAME, …) from the environment once
/// per process. Errors: LoadError for other names, without libnccl, and for releases whose tables are unknown.
Builtin load_builtin(const std::string& plugin);

/// libnccl.so.2 in this process, and the symbols that it does not export. Destruction unloads it.
class NcclLibrary {
 public:
  /// Loads require_nccl(). `purpose` begins the messages. Errors: LoadError.
  explicit NcclLibrary(const std::string& purpose);

  const std::string& path() const { return path_; }
  /// The version of ncclGetVersion as a number, 22809, and as text: "2.28.9".
  int version() const { return version_; }
  std::string version_text() const;
  /// Address of a symbol that need not be exported. `size`: its size in bytes, 0 for any. Errors: LoadError if no such
  /// symbol exists.
  void* find(const std::string& name, std::size_t size = 0) const;
  /// The functions in the static symbol table whose names start with `prefix`, with their addresses.
  std::map<std::string, void*> functions(const std::string& prefix) const;
  /// Gives up ownership of dlopen's handle, which the caller closes.
  void* release() { return handle_.release(); }

 private:
  struct Close {
    void operator()(void* handle) const;
  };

  std::string purpose_;
  std::string path_;
  std::unique_ptr<ElfFile> file_;
  std::unique_ptr<void, Close> handle_;
  std::uint64_t load_address_ = 0;
  int version_ = 0;
};

/// Replaces a function of a loaded library in the memory of this process: overwrites the first bytes of `function` (14
/// on x86-64, 16 on aarch64; the function must not be shorter) with a jump to `target`. No other thread may execute
/// code of its pages at the same time. Errors: false with errno set when the memory cannot be made writable; ENOSYS on
/// other architectures.
bool redirect(void* function, const void* target);

}  // namespace plugfest::plugin
