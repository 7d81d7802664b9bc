#include "fabric/roce/verbs/device/gid_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "fabric/system/file.h"
#include "fabric/system/wait.h"

namespace plugfest::roce::verbs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kType = "RoCE v2";

fs::path gid_file(const fs::path& device, std::size_t index) {
  return device / "ports" / "1" / "gids" / std::to_string(index);
}
fs::path type_file(const fs::path& device, std::size_t index) {
  return device / "ports" / "1" / "gid_attrs" / "types" / std::to_string(index);
}
fs::path interface_file(const fs::path& device, std::size_t index) {
  return device / "ports" / "1" / "gid_attrs" / "ndevs" / std::to_string(index);
}

// Format: 0000:0000:0000:0000:0000:ffff:c0a8:6401
std::string gid_text(const Address& address) {
  std::string text;
  for (std::size_t i = 0; i < address.bytes.size(); i += 2) {
    char group[6];
    std::snprintf(group, sizeof(group), "%s%02x%02x", i == 0 ? "" : ":", address.bytes[i], address.bytes[i + 1]);
    text += group;
  }
  return text;
}

std::optional<Address> address_from(const std::string& text) {
  Address address;
  unsigned groups[8] = {};
  if (std::sscanf(text.c_str(), "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &groups[0], &groups[1], &groups[2], &groups[3],
                  &groups[4], &groups[5], &groups[6], &groups[7]) != 8)
    return std::nullopt;
  for (std::size_t i = 0; i < 8; ++i) {
    address.bytes[2 * i] = static_cast<std::uint8_t>(groups[i] >> 8);
    address.bytes[2 * i + 1] = static_cast<std::uint8_t>(groups[i]);
  }
  return address;
}

// Empty text makes an empty file: an empty entry has no attributes.
bool write_text(const fs::path& file, const std::string& text) {
  return replace_file(file, text.empty() ? text : text + '\n');
}

bool write_entry(const fs::path& device, std::size_t index, const Address& address, const std::string& interface) {
  const bool empty = address == Address();
  return write_text(interface_file(device, index), empty ? "" : interface) &&
         write_text(type_file(device, index), empty ? "" : kType) &&
         write_text(gid_file(device, index), gid_text(address));
}

std::optional<GidEntries> read_entries(const fs::path& device) {
  GidEntries entries = {};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::ifstream file(gid_file(device, i));
    std::string text;
    if (!std::getline(file, text)) return std::nullopt;
    const std::optional<Address> address = address_from(text);
    if (!address) return std::nullopt;
    entries[i] = *address;
  }
  return entries;
}

// Locks the files for an update; the lock ends with the descriptor. Returns false if another process holds the lock for
// more than 100 ms.
bool lock_files(const Descriptor& file) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto lock = [&] { return fcntl(file.get(), F_OFD_SETLK, &whole) == 0; };
  return wait_until(lock, std::chrono::milliseconds(100));
}

}  // namespace

GidEntries updated_entries(const GidEntries& before, std::span<const Address> addresses) {
  GidEntries entries = before;
  entries[kIpv4Index] = Address();
  for (Address& entry : entries)
    if (std::find(addresses.begin(), addresses.end(), entry) == addresses.end()) entry = Address();
  for (const Address& address : addresses) {
    if (std::find(entries.begin(), entries.end(), address) != entries.end()) continue;
    auto empty = std::find(entries.begin(), entries.end(), Address());
    if (empty == entries.begin() + kIpv4Index) empty = std::find(empty + 1, entries.end(), Address());
    if (empty == entries.end()) break;
    *empty = address;
  }
  const auto ipv4 = std::find_if(entries.begin(), entries.end(), [](const Address& entry) { return entry.is_ipv4(); });
  if (ipv4 != entries.end()) entries[kIpv4Index] = *ipv4;
  return entries;
}

GidTable::GidTable(fs::path device_folder, std::string interface_name)
    : folder_(std::move(device_folder)), interface_(std::move(interface_name)) {}

GidEntries GidTable::update(std::span<const Address> addresses, bool force, std::uint64_t order) {
  const std::lock_guard guard(mutex_);
  if (order < order_) return entries_;
  order_ = order;
  if (!force && !waits_for_lock_ && std::ranges::equal(addresses, addresses_)) return entries_;
  addresses_.assign(addresses.begin(), addresses.end());
  const Descriptor lock(open((folder_ / ".gids").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  const bool is_locked = lock && lock_files(lock);
  waits_for_lock_ = lock && !is_locked;
  const std::optional<GidEntries> written = read_entries(folder_);
  if (written) entries_ = *written;
  entries_ = updated_entries(entries_, addresses);
  for (std::size_t i = 0; is_locked && written && i < entries_.size(); ++i)
    if (entries_[i] != (*written)[i] && !write_entry(folder_, i, entries_[i], interface_)) break;
  return entries_;
}

GidEntries GidTable::entries() const {
  const std::lock_guard guard(mutex_);
  return entries_;
}

bool GidTable::waits_for_lock() const {
  const std::lock_guard guard(mutex_);
  return waits_for_lock_;
}

void make_gid_files(const fs::path& device) {
  for (const fs::path& folder : {gid_file(device, 0).parent_path(), type_file(device, 0).parent_path(),
                                 interface_file(device, 0).parent_path()}) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw_file_error(folder, "create", error.value());
  }
  std::error_code ignored;
  if (fs::exists(gid_file(device, kGidTableSize - 1), ignored)) return;
  // All entries are equal, and files are replaced, not modified: the other entries start as hard links to entry 0.
  bool made = write_entry(device, 0, Address(), "");
  for (std::size_t i = 1; made && i < kGidTableSize; ++i)
    for (const auto& file : {interface_file, type_file, gid_file})
      made = made && (link(file(device, 0).c_str(), file(device, i).c_str()) == 0 || errno == EEXIST);
  if (!made) throw_file_error(gid_file(device, 0), "write");
}

}  // namespace plugfest::roce::verbs
