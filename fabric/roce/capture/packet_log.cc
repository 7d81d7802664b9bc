#include "fabric/roce/capture/packet_log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "fabric/roce/counters/page.h"
#include "fabric/system/pcapng.h"

namespace plugfest::roce {

LogExtent LogExtent::from_environment() {
  const char* const text = std::getenv("PLUGFEST_ROCE_PCAP_SENT");
  const unsigned long bytes = text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  if (bytes == 0 || bytes > UINT32_MAX) return {};
  return {.received = false, .snap_length = static_cast<std::uint32_t>(bytes)};
}

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
  if (!stream) throw_file_error(control, "write");
  announce_change(device_folder);
}

namespace {

// Pending bytes that trigger a write.
constexpr std::size_t kWriteBytes = 256 << 10;

std::uint64_t wall_clock_ns() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

class Splitter {
 public:
  explicit Splitter(std::span<const iovec> parts) : parts_(parts) {}

  std::span<const iovec> next(std::size_t bytes) {
    pieces_.clear();
    while (bytes > 0 && part_ < parts_.size()) {
      const std::size_t length = std::min(bytes, parts_[part_].iov_len - offset_);
      if (length > 0) pieces_.push_back({static_cast<std::byte*>(parts_[part_].iov_base) + offset_, length});
      bytes -= length;
      offset_ += length;
      if (offset_ == parts_[part_].iov_len) {
        ++part_;
        offset_ = 0;
      }
    }
    return pieces_;
  }

 private:
  std::span<const iovec> parts_;
  std::vector<iovec> pieces_;
  std::size_t part_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace

PacketLog::PacketLog(const std::filesystem::path& file, std::string device, LogExtent extent)
    : path_(file.string()),
      device_(std::move(device)),
      extent_(extent),
      file_(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  if (!file_) throw_file_error(path_, "write");
  std::uint32_t begins = 0;
  if (pread(file_.get(), &begins, sizeof(begins), 0) != 0 && begins != pcapng::kSectionHeader)
    throw std::runtime_error(path_ + ": exists and is not a pcapng file: remove it or choose another name");
}

PacketLog::~PacketLog() { write_out(); }

void PacketLog::comment(const std::string& text) {
  if (!comment_.empty()) comment_ += '\n';
  comment_ += text;
}

void PacketLog::add(bool outbound, const WireHeaders& headers, std::span<const iovec> payload, std::uint64_t time_ns) {
  if (!file_) return;
  if (blocks_.empty()) {
    blocks_.reserve(kWriteBytes + (128 << 10));
    pcapng::add_section(blocks_);
    pcapng::add_interface(blocks_, device_, pcapng::LinkType::kRaw, extent_.snap_length);
  }
  std::size_t payload_bytes = 0;
  for (const iovec& piece : payload) payload_bytes += piece.iov_len;
  const IpHeaders ip(headers, payload, payload_bytes);
  pieces_.assign(1, {const_cast<std::uint8_t*>(ip.data()), ip.size()});
  pieces_.insert(pieces_.end(), payload.begin(), payload.end());
  const auto direction = outbound ? pcapng::Direction::kOutbound : pcapng::Direction::kInbound;
  pcapng::add_packet(
      blocks_, {.time_ns = time_ns, .direction = direction, .comment = comment_, .snap_length = extent_.snap_length},
      pieces_);
  comment_.clear();
  if (blocks_.size() >= kWriteBytes) write_out();
}

void PacketLog::add_sent(WireHeaders headers, std::span<const iovec> parts, std::size_t segment_bytes) {
  const std::uint64_t now = wall_clock_ns();
  Splitter splitter(parts);
  for (auto packet = splitter.next(segment_bytes); !packet.empty(); packet = splitter.next(segment_bytes)) {
    add(true, headers, packet, now);
    ++headers.identification;
  }
}

void PacketLog::add_received(const WireHeaders& headers, std::span<const std::byte> payload) {
  const iovec whole = {const_cast<std::byte*>(payload.data()), payload.size()};
  add(false, headers, {&whole, 1}, wall_clock_ns());
}

void PacketLog::write_out() {
  if (blocks_.empty() || !file_) return;
  const ssize_t written = write(file_.get(), blocks_.data(), blocks_.size());
  if (written != static_cast<ssize_t>(blocks_.size())) {
    std::fprintf(stderr, "plugfest: %s: capture ended: %s\n", path_.c_str(),
                 written < 0 ? std::strerror(errno) : "no space left");
    file_ = Descriptor();
  }
  blocks_.clear();
}

}  // namespace plugfest::roce
