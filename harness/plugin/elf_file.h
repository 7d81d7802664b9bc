// Reads the symbols and the dependencies of an ELF shared library. Safe for untrusted files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::plugin {

/// Why a file cannot be used; the text does not name the file: "no such file", "built for aarch64, and this machine is
/// x86-64".
class ElfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A valid library for another architecture, which the dynamic loader skips in a search.
class ElfOfOtherMachine : public ElfError {
 public:
  using ElfError::ElfError;
};

/// The readable form of the name of a C++ symbol or of a type; any other name unchanged.
std::string demangled(const std::string& name);

struct ElfSymbol {
  std::string name;
  /// Address before loading.
  std::uint64_t value = 0;
  std::uint64_t size = 0;
  /// STT_*, STB_*, STV_* of <elf.h>.
  std::uint8_t type = 0;
  std::uint8_t binding = 0;
  std::uint8_t visibility = 0;
  bool defined = false;
};

/// A shared library for this machine's architecture, or a program if the reader requests it. Every offset and count in
/// the file is checked against the file's size before use. The file is not mapped, so a file that is truncated while it
/// is read gives an error.
class ElfFile {
 public:
  enum class Kinds { kLibraries, kProgramsToo };

  /// Errors: ElfError unless the file is a complete shared library that this process could load, or a program if
  /// `kinds` includes programs.
  explicit ElfFile(const std::string& path, Kinds kinds = Kinds::kLibraries);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  const std::string& soname() const { return soname_; }
  const std::vector<std::string>& needed() const { return needed_; }

  /// Symbols whose names contain `part`, from the dynamic table and from the static table, which stripped files lack.
  /// Errors: ElfError.
  std::vector<ElfSymbol> dynamic_symbols(std::string_view part) const;
  std::vector<ElfSymbol> static_symbols(std::string_view part) const;

 private:
  struct Segment {
    std::uint64_t address, offset, size;
  };
  struct SymbolTable {
    std::uint64_t offset = 0, size = 0;
    std::uint64_t strings_offset = 0, strings_size = 0;
  };

  void refuse_other_kinds() const;
  void read_segments();
  void read_sections();
  void read_dynamic(std::uint64_t offset, std::uint64_t size);
  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t size) const;
  template <typename T>
  std::vector<T> read_table(std::uint64_t offset, std::uint64_t count) const;
  /// File offset of `size` bytes at an address.
  std::uint64_t file_offset(std::uint64_t address, std::uint64_t size) const;
  std::vector<ElfSymbol> symbols(const SymbolTable& table, std::string_view part) const;

  Kinds kinds_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::vector<Segment> segments_;
  SymbolTable dynamic_;
  SymbolTable static_;
  std::string soname_;
  std::vector<std::string> needed_;
};

}  // namespace plugfest::plugin
