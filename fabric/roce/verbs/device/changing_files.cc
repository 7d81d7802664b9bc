// Writes files that others may be reading.
#include "fabric/roce/verbs/device/changing_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "fabric/system/descriptor.h"

namespace plugfest::roce {

bool replace_file(const std::filesystem::path& file, const std::string& text) {
  const std::string fresh = file.parent_path().string() + "/.new-" + std::to_string(gettid());
  {
    const Descriptor written(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!written || write(written.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return false;
  }
  return rename(fresh.c_str(), file.c_str()) == 0;
}

bool write_port_state(const std::filesystem::path& device_folder, bool up) {
  const std::filesystem::path port = device_folder / "ports" / "1";
  return replace_file(port / "state", up ? "4: ACTIVE\n" : "1: DOWN\n") &&
         replace_file(port / "phys_state", up ? "5: LinkUp\n" : "3: Disabled\n");
}

}  // namespace plugfest::roce
