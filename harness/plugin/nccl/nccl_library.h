// libnccl in this process, with the symbols that it does not export.
#pragma once

#include <memory>
#include <string>

#include "harness/plugin/elf/elf_file.h"

namespace plugfest::plugin {

/// Loaded until destruction.
class NcclLibrary {
 public:
  /// Loads find_nccl(). `purpose` begins the messages, as in "nccl:IB". Errors: LoadError.
  explicit NcclLibrary(const std::string& purpose);

  const std::string& path() const { return path_; }
  /// As ncclGetVersion gives it: 22809 for 2.28.9; and as people write it.
  int version() const { return version_; }
  std::string version_text() const;
  /// An unexported symbol's place in memory. With `size` other than 0 the symbol must be that long. Errors: LoadError.
  void* find(const std::string& name, std::size_t size = 0) const;
  /// dlopen's handle; the caller closes it.
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
