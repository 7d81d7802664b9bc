#include "fabric/roce/capture/log_target.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "fabric/roce/counters/page.h"

namespace plugfest::roce {

LogTarget::LogTarget(const std::filesystem::path& device_folder) {
  const char* const named = std::getenv("PLUGFEST_ROCE_PCAP");
  if (named != nullptr && *named != '\0') {
    file_ = named;
    from_environment_ = true;
  } else if (!device_folder.empty()) {
    control_ = device_folder / "pcap";
    reload();
  }
}

bool LogTarget::reload() {
  if (control_.empty() || !version_.changed(control_)) return false;
  std::string line;
  std::ifstream stream(control_);
  std::getline(stream, line);
  if (line == file_) return false;
  file_ = line;
  return true;
}

void set_device_log(const std::filesystem::path& device_folder, const std::filesystem::path& file) {
  const std::filesystem::path control = device_folder / "pcap";
  std::ofstream stream(control);
  if (!file.empty()) stream << file.string() << '\n';
  stream.close();
  if (!stream) throw std::runtime_error(control.string() + ": cannot be written: " + std::strerror(errno));
  announce_change(device_folder);
}

}  // namespace plugfest::roce
