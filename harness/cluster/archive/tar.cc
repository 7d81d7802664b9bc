#include "harness/cluster/archive/tar.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <set>
#include <stdexcept>

#include "fabric/system/number.h"

namespace plugfest::cluster {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kMostNameBytes = 100;
constexpr std::size_t kSizeAt = 124, kSizeDigits = 11;

std::string header_of(const ArchiveFile& file) {
  if (file.name.empty() || file.name.size() > kMostNameBytes) {
    throw std::runtime_error(fmt::format("\"{}\": expected a name of 1 to {} bytes", file.name, kMostNameBytes));
  }
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  put(0, file.name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(kSizeAt, fmt::format("{:011o}", file.content.size()));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header;
}

/// Whether the name stays in the folder where the archive is unpacked.
bool is_inside(const std::string& name) {
  return !name.empty() && name.front() != '/' && ("/" + name + "/").find("/../") == std::string::npos;
}

}  // namespace

std::string make_tar(const std::vector<ArchiveFile>& files) {
  std::string tar;
  for (const ArchiveFile& file : files) {
    tar += header_of(file);
    tar += file.content;
    tar.append((kBlock - tar.size() % kBlock) % kBlock, '\0');
  }
  return tar.append(2 * kBlock, '\0');
}

std::vector<ArchiveFile> read_tar(std::string_view tar) {
  std::vector<ArchiveFile> files;
  std::set<std::string> names;
  std::size_t at = 0;
  while (at + kBlock <= tar.size() && tar[at] != '\0') {
    const std::string_view header = tar.substr(at, kBlock);
    ArchiveFile file;
    file.name = std::string(header.substr(0, std::min(header.find('\0'), kMostNameBytes)));
    std::size_t size = 0;
    for (const char digit : header.substr(kSizeAt, kSizeDigits)) {
      if (digit < '0' || digit > '7') throw std::runtime_error(fmt::format("byte {}: not written by plugfest", at));
      size = size * 8 + static_cast<std::size_t>(digit - '0');
    }
    at += kBlock;
    if (size > tar.size() - at) throw std::runtime_error(fmt::format("{}: the archive ends in the middle", file.name));
    file.content = std::string(tar.substr(at, size));
    at += round_up(size, kBlock);
    if (at > tar.size()) throw std::runtime_error(fmt::format("{}: the archive ends in the middle", file.name));
    if (!is_inside(file.name) || !names.insert(file.name).second) {
      throw std::runtime_error(fmt::format("\"{}\": a name that plugfest does not write", file.name));
    }
    files.push_back(std::move(file));
  }
  const std::string again = make_tar(files);
  if (again != tar) {
    std::size_t first = 0;
    while (first < std::min(again.size(), tar.size()) && again[first] == tar[first]) ++first;
    throw std::runtime_error(fmt::format("byte {}: not as plugfest writes it", first));
  }
  return files;
}

}  // namespace plugfest::cluster
