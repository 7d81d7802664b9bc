#include "harness/plugin/elf_file.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace plugfest::plugin {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kThisMachine = EM_AARCH64;
#else
#error "name this machine's EM_ constant"
#endif

std::string machine_name(unsigned machine) {
  static constexpr std::pair<unsigned, const char*> kNames[] = {
      {EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"}, {EM_ARM, "arm"},
      {EM_PPC64, "ppc64"},   {EM_RISCV, "riscv"},     {EM_S390, "s390"}};
  for (const auto& [known, name] : kNames)
    if (known == machine) return name;
  return fmt::format("machine {}", machine);
}

// The first 24 characters of the first line of a text; empty if the bytes are not text.
std::string beginning_as_text(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    if (c == '\n' || c == '\r') break;
    if (std::isprint(c) == 0 && c != '\t') return "";
    text += static_cast<char>(c == '\t' ? ' ' : c);
    if (text.size() == 24) break;
  }
  return text;
}

// The string at `offset`, which ends at a NUL or at the end of the table.
std::string_view string_at(const std::vector<std::byte>& table, std::uint64_t offset) {
  if (offset >= table.size()) throw ElfError("damaged: a name lies outside its table of strings");
  const char* begin = reinterpret_cast<const char*>(table.data()) + offset;
  return {begin, strnlen(begin, table.size() - offset)};
}

}  // namespace

std::string demangled(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> text(::abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr),
                                                    std::free);
  return text ? text.get() : name;
}

ElfFile::ElfFile(const std::string& path, Kinds kinds) : kinds_(kinds) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw ElfError(errno == ENOENT ? "no such file" : std::strerror(errno));
  try {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) throw ElfError(std::strerror(errno));
    if (S_ISDIR(status.st_mode)) throw ElfError("a folder, not a shared library");
    if (!S_ISREG(status.st_mode)) throw ElfError("not a regular file");
    size_ = static_cast<std::uint64_t>(status.st_size);
    refuse_other_kinds();
    read_segments();
    read_sections();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ElfFile::~ElfFile() { ::close(fd_); }

void ElfFile::refuse_other_kinds() const {
  if (size_ == 0) throw ElfError("an empty file");
  const std::vector<std::byte> start = read(0, std::min<std::uint64_t>(size_, 64));
  const auto begins_with = [&](std::string_view magic) {
    return start.size() >= magic.size() && std::memcmp(start.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with("!<arch>\n"))
    throw ElfError("a static library (.a), not a shared one: link its objects with -shared");
  if (!begins_with(ELFMAG)) {
    const std::string text = beginning_as_text(start);
    throw ElfError(text.empty() ? "not a shared library: not an ELF file"
                                : fmt::format("not a shared library: a text that begins with \"{}\"", text));
  }
  if (size_ < sizeof(Elf64_Ehdr)) throw ElfError(fmt::format("truncated: an ELF file of {} bytes", size_));
  Elf64_Ehdr header;
  std::memcpy(&header, start.data(), sizeof header);
  if (header.e_ident[EI_CLASS] == ELFCLASS32) throw ElfOfOtherMachine("a 32-bit library, and NCCL is a 64-bit one");
  if (header.e_ident[EI_CLASS] != ELFCLASS64) throw ElfError("damaged: neither a 32-bit nor a 64-bit ELF file");
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) throw ElfOfOtherMachine("built for a big-endian machine");
  if (header.e_machine != kThisMachine)
    throw ElfOfOtherMachine(fmt::format("built for {}, and this machine is {}", machine_name(header.e_machine),
                                        machine_name(kThisMachine)));
  switch (header.e_type) {
    case ET_DYN:
      return;
    case ET_REL:
      throw ElfError("an object file (.o), not a shared library: link it with -shared");
    case ET_EXEC:
      if (kinds_ == Kinds::kProgramsToo) return;
      throw ElfError("a program, not a shared library");
    default:
      throw ElfError("not a shared library: an ELF file of another type");
  }
}

void ElfFile::read_segments() {
  const Elf64_Ehdr header = read_table<Elf64_Ehdr>(0, 1).front();
  if (header.e_phentsize != sizeof(Elf64_Phdr)) throw ElfError("damaged: program headers of an unknown size");
  const auto headers = read_table<Elf64_Phdr>(header.e_phoff, header.e_phnum);
  for (const Elf64_Phdr& segment : headers) {
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > size_ || segment.p_filesz > size_ - segment.p_offset)
      throw ElfError(
          fmt::format("truncated: it has {} bytes, and its segments need more: copy or build it again", size_));
    segments_.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz});
  }
  for (const Elf64_Phdr& segment : headers)
    if (segment.p_type == PT_DYNAMIC) return read_dynamic(segment.p_offset, segment.p_filesz);
  throw ElfError("not a shared library: it has no dynamic section");
}

void ElfFile::read_dynamic(std::uint64_t offset, std::uint64_t size) {
  std::uint64_t strings = 0, strings_size = 0, symbols = 0, soname = 0;
  std::vector<std::uint64_t> needed;
  for (const Elf64_Dyn& entry : read_table<Elf64_Dyn>(offset, size / sizeof(Elf64_Dyn))) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) strings_size = entry.d_un.d_val;
    if (entry.d_tag == DT_SYMTAB) symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_SONAME) soname = entry.d_un.d_val;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
    if (kinds_ == Kinds::kLibraries && entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0)
      throw ElfError("a program, not a shared library");
  }
  if (strings == 0 || symbols == 0) throw ElfError("damaged: its dynamic section names no tables");
  dynamic_.strings_offset = file_offset(strings, strings_size);
  dynamic_.strings_size = strings_size;
  // The dynamic section does not contain the number of symbols. Linkers place the strings after the symbols, so the
  // distance is the size. read_sections replaces it by the exact size.
  if (symbols < strings) {
    dynamic_.size = strings - symbols;
    dynamic_.offset = file_offset(symbols, dynamic_.size);
  }
  const std::vector<std::byte> table = read(dynamic_.strings_offset, strings_size);
  if (soname != 0) soname_ = string_at(table, soname);
  for (const std::uint64_t name : needed) needed_.emplace_back(string_at(table, name));
}

void ElfFile::read_sections() {
  const Elf64_Ehdr header = read_table<Elf64_Ehdr>(0, 1).front();
  if (header.e_shoff == 0) return;
  if (header.e_shentsize != sizeof(Elf64_Shdr)) throw ElfError("damaged: section headers of an unknown size");
  const auto sections = read_table<Elf64_Shdr>(header.e_shoff, header.e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) continue;
    if (section.sh_link >= sections.size()) throw ElfError("damaged: a symbol table without a table of strings");
    const Elf64_Shdr& strings = sections[section.sh_link];
    (section.sh_type == SHT_DYNSYM ? dynamic_ : static_) = {section.sh_offset, section.sh_size, strings.sh_offset,
                                                            strings.sh_size};
  }
}

std::vector<std::byte> ElfFile::read(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset)
    throw ElfError(
        fmt::format("truncated or damaged: it has {} bytes and refers to more: copy or build it again", size_));
  std::vector<std::byte> bytes(size);
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ElfError(std::strerror(errno));
    if (got == 0) throw ElfError("truncated while it was read");
    done += static_cast<std::uint64_t>(got);
  }
  return bytes;
}

template <typename T>
std::vector<T> ElfFile::read_table(std::uint64_t offset, std::uint64_t count) const {
  // Larger counts would overflow the product.
  const std::vector<std::byte> bytes = read(offset, count > size_ ? size_ + 1 : count * sizeof(T));
  std::vector<T> table(count);
  if (count != 0) std::memcpy(table.data(), bytes.data(), bytes.size());
  return table;
}

std::uint64_t ElfFile::file_offset(std::uint64_t address, std::uint64_t size) const {
  for (const Segment& segment : segments_) {
    if (address < segment.address) continue;
    const std::uint64_t distance = address - segment.address;
    if (distance <= segment.size && size <= segment.size - distance) return segment.offset + distance;
  }
  throw ElfError("damaged: its dynamic section points outside the file");
}

std::vector<ElfSymbol> ElfFile::symbols(const SymbolTable& table, std::string_view part) const {
  std::vector<ElfSymbol> found;
  if (table.size == 0) return found;
  const std::vector<std::byte> strings = read(table.strings_offset, table.strings_size);
  for (const Elf64_Sym& entry : read_table<Elf64_Sym>(table.offset, table.size / sizeof(Elf64_Sym))) {
    if (entry.st_name == 0) continue;
    const std::string_view name = string_at(strings, entry.st_name);
    if (name.find(part) == std::string_view::npos) continue;
    found.push_back({.name = std::string(name),
                     .value = entry.st_value,
                     .size = entry.st_size,
                     .type = static_cast<std::uint8_t>(ELF64_ST_TYPE(entry.st_info)),
                     .binding = static_cast<std::uint8_t>(ELF64_ST_BIND(entry.st_info)),
                     .visibility = static_cast<std::uint8_t>(ELF64_ST_VISIBILITY(entry.st_other)),
                     .defined = entry.st_shndx != SHN_UNDEF});
  }
  return found;
}

std::vector<ElfSymbol> ElfFile::dynamic_symbols(std::string_view part) const { return symbols(dynamic_, part); }
std::vector<ElfSymbol> ElfFile::static_symbols(std::string_view part) const { return symbols(static_, part); }

}  // namespace plugfest::plugin
