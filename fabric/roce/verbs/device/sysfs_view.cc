#include "fabric/roce/verbs/device/sysfs_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/verbs/device/gid_table.h"
#include "fabric/system/file.h"

namespace plugfest::roce::verbs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDev = "/dev";
constexpr const char* kNodes = "/dev/infiniband";
constexpr unsigned long kMountFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// Replaces /dev, where no folder can be created, by one that can be written. Its entries are links to the old ones,
// which a bind mount keeps together: the kernel finds the folder of terminals beside ptmx.
void make_dev_writable() {
  const Descriptor machine(open(kDev, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!machine) throw_file_error(kDev, "open");
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kDev)) names.push_back(entry.path().filename());
  if (mount("plugfest", kDev, "tmpfs", kMountFlags, "mode=755") != 0) throw_errno("mount tmpfs on /dev");
  const fs::path kept = fs::path(kDev) / ".machine";
  fs::create_directory(kept);
  const std::string source = fmt::format("/proc/thread-self/fd/{}", machine.get());
  if (mount(source.c_str(), kept.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    throw_errno("mount the old /dev on " + kept.string());
  // Removes the copy of the new /dev, which covers the old one.
  if (umount2(kept.c_str(), MNT_DETACH) != 0) throw_errno("unmount the copy of the new /dev from " + kept.string());
  for (const std::string& name : names) fs::create_symlink(kept.filename() / name, fs::path(kDev) / name);
}

void show_nodes(const std::vector<Interface>& interfaces) {
  const auto node_of = [](const Interface& interface) { return fs::path(kNodes) / node_name(interface); };
  const auto is_shown = [&](const Interface& interface) { return fs::is_symlink(node_of(interface)); };
  if (std::all_of(interfaces.begin(), interfaces.end(), is_shown)) return;
  if (!fs::exists(kNodes)) {
    make_dev_writable();
    fs::create_directory(kNodes);
  } else if (mount("plugfest", kNodes, "tmpfs", kMountFlags, "mode=755") != 0) {
    throw_errno(fmt::format("mount tmpfs on {}", kNodes));
  }
  for (const Interface& interface : interfaces) fs::create_symlink("/dev/null", node_of(interface));
}

void write_line(const fs::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << '\n';
  stream.close();
  if (!stream) throw_file_error(file, "write");
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_file_error(folder, "create", error.value());
}

// Replaces an existing link.
void make_link(const fs::path& target, const fs::path& link) {
  std::error_code error;
  if (fs::is_symlink(link, error)) fs::remove(link, error);
  fs::create_symlink(target, link, error);
  if (error) throw_file_error(link, "create", error.value());
}

std::string guid_text(__be64 guid) {
  std::array<std::uint8_t, 8> bytes = {};
  std::memcpy(bytes.data(), &guid, bytes.size());
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  return text;
}

void write_port(const fs::path& folder, const Interface& interface) {
  const ibv_port_attr port = port_attributes(interface);
  make_folder(folder);
  write_line(folder / "rate", link_speed(interface.speed_mbps).text);
  write_line(folder / "link_layer", "Ethernet");
  write_line(folder / "lid", "0x0");
  write_line(folder / "lid_mask_count", "0");
  write_line(folder / "sm_lid", "0x0");
  write_line(folder / "sm_sl", "0");
  write_line(folder / "cap_mask", fmt::format("0x{:08x}", port.port_cap_flags));

  make_folder(folder / "pkeys");
  write_line(folder / "pkeys" / "0", fmt::format("0x{:04x}", kDefaultPKey));
}

// Writes the folder of the PCI function with the files that NCCL, UCX and plugins read. The values describe a fast
// single-function device on NUMA node 0 without a known vendor. Programs merge the functions and slots of one bus, so
// each NIC has a bus. The link `subsystem` of the kernel leads to /sys/bus/pci, which a host without PCI lacks.
void write_pci_function(const fs::path& device, const Interface& interface) {
  const auto index = static_cast<unsigned>(interface.index);
  const std::string address = fmt::format("{:04x}:{:02x}:00.0", index >> 8 & 0xffff, index & 0xff);
  const fs::path folder = device / address;
  make_folder(folder / "net");
  const std::pair<const char*, const char*> files[] = {
      {"vendor", "0xfffe"},
      {"device", "0x0001"},
      {"subsystem_vendor", "0xfffe"},
      {"subsystem_device", "0x0001"},
      {"class", "0x020000"},
      {"revision", "0x00"},
      {"numa_node", "0"},
      {"max_link_speed", "16.0 GT/s PCIe"},
      {"max_link_width", "16"},
      {"current_link_speed", "16.0 GT/s PCIe"},
      {"current_link_width", "16"},
  };
  for (const auto& [name, text] : files) write_line(folder / name, text);
  make_link("/sys/class/net/" + interface.name, folder / "net" / interface.name);
  make_folder(folder / "bus" / "pci");
  make_link("bus/pci", folder / "subsystem");
  make_link(address, device / "device");
}

}  // namespace

void write_sysfs_view(const fs::path& class_infiniband, std::span<const Interface> interfaces) {
  make_folder(class_infiniband);
  for (const Interface& interface : interfaces) {
    const std::string name = device_name(interface);
    const fs::path device = class_infiniband / name;
    make_folder(device);
    write_line(device / "node_guid", guid_text(guid_of(interface)));
    write_line(device / "sys_image_guid", guid_text(guid_of(interface)));
    write_line(device / "node_type", "1: CA");
    write_line(device / "node_desc", name);
    write_line(device / "fw_ver", kFirmwareVersion);
    write_line(device / "hca_type", kBoardName);
    write_line(device / "hw_rev", "0x0");
    write_pci_function(device, interface);
    write_port(device / "ports" / std::to_string(kPortNumber), interface);
    if (!write_port_state(device, interface.up)) throw_file_error(device, "write");
    make_gid_files(device);
    GidTable(device, interface.name).update(interface.addresses, true);
    make_counter_files(device);
  }
}

void show_nics_of_this_host() {
  const std::vector<Interface> interfaces = list_nic_interfaces();
  write_sysfs_view("/sys/class/infiniband", interfaces);
  show_nodes(interfaces);
}

}  // namespace plugfest::roce::verbs
