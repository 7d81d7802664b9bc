// libnccl.so.2 in this process, and the symbols that it does not export.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "harness/plugin/elf/elf_file.h"

namespace plugfest::plugin {

/// Owns the loaded library; destruction unloads it.
class NcclLibrary {
 public:
  /// Loads find_nccl(). `purpose` begins the messages, as in "nccl:IB". Errors: LoadError.
  explicit NcclLibrary(const std::string& purpose);

  const std::string& path() const { return path_; }
  /// From ncclGetVersion: 22809, and as text: "2.28.9".
  int version() const { return version_; }
  std::string version_text() const;
  /// Address of a symbol that need not be exported. `size`: its size in bytes, 0 for any. Errors: LoadError without
  /// such a symbol.
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

}  // namespace plugfest::plugin
