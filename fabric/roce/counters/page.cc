// The page is a sparse file with a header and one slot per process.
#include "fabric/roce/counters/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "fabric/system/clock.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kSlots = 256;
constexpr std::size_t kSlotBytes = 512;
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kPageBytes = kHeaderBytes + kSlots * kSlotBytes;
static_assert(sizeof(Counters) <= kSlotBytes);

// A process built with different counters does not use the page.
constexpr std::uint64_t kFormat = 0x706c756766000000 | sizeof(Counters);

struct Header {
  std::uint64_t format;
  std::uint64_t changes;      ///< atomic
  std::uint64_t slots_used;   ///< atomic; slots from this index on are unused
  std::int64_t published_at;  ///< guarded, as `published`, by the file lock on the header
  Counters published;         ///< values in the counter files
};
static_assert(sizeof(Header) <= kHeaderBytes);

constexpr std::size_t slot_offset(std::size_t slot) { return kHeaderBytes + slot * kSlotBytes; }

std::filesystem::path page_of(const std::filesystem::path& folder) { return folder / ".counters"; }

// Locks or unlocks one byte of a file for this open file description, without waiting.
bool lock(int file, short type, std::size_t offset) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  return fcntl(file, F_OFD_SETLK, &range) == 0;
}

bool read_exactly(int file, std::size_t offset, void* bytes, std::size_t count) {
  return pread(file, bytes, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count);
}

// Sums all slots. Aligned counters are read without tearing, but not all at the same time.
std::optional<Counters> sum_of(int file) {
  Header header;
  if (!read_exactly(file, 0, &header, sizeof(header)) || header.format != kFormat) return std::nullopt;
  const std::size_t used = std::min<std::size_t>(header.slots_used, kSlots);
  std::vector<std::byte> slots(used * kSlotBytes);
  if (!read_exactly(file, kHeaderBytes, slots.data(), slots.size())) return std::nullopt;
  Counters sum;
  for (std::size_t i = 0; i < used; ++i) {
    Counters of_process;
    std::memcpy(&of_process, slots.data() + i * kSlotBytes, sizeof(of_process));
    sum = sum + of_process;
  }
  return sum;
}

}  // namespace

void make_counter_page(const std::filesystem::path& device_folder) {
  const std::filesystem::path path = page_of(device_folder);
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  struct stat found = {};
  const Header header = {.format = kFormat, .changes = 0, .slots_used = 0, .published_at = 0, .published = {}};
  const bool made =
      file && fstat(file.get(), &found) == 0 &&
      (found.st_size != 0 || (ftruncate(file.get(), kPageBytes) == 0 &&
                              pwrite(file.get(), &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header))));
  if (!made) throw_file_error(path, "write");
}

std::optional<Counters> read_counter_page(const std::filesystem::path& device_folder) {
  const Descriptor file(open(page_of(device_folder).c_str(), O_RDONLY | O_CLOEXEC));
  return file ? sum_of(file.get()) : std::nullopt;
}

void announce_change(const std::filesystem::path& device_folder) {
  const Descriptor file(open(page_of(device_folder).c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return;
  void* const mapped = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return;
  std::atomic_ref(static_cast<Header*>(mapped)->changes).fetch_add(1);
  munmap(mapped, kHeaderBytes);
}

CounterSlot::CounterSlot(const std::filesystem::path& device_folder) : folder_(device_folder) {
  if (!folder_.empty() && claim()) return;
  file_ = Descriptor();
  private_ = std::make_unique<Counters>();
  counters_ = private_.get();
}

bool CounterSlot::claim() {
  file_ = Descriptor(open(page_of(folder_).c_str(), O_RDWR | O_CLOEXEC));
  std::uint64_t format = 0;
  if (!file_ || !read_exactly(file_.get(), 0, &format, sizeof(format)) || format != kFormat) return false;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (!lock(file_.get(), F_WRLCK, slot_offset(slot))) continue;
    // Allocates the memory now: on a full file system the first increment would raise SIGBUS.
    if (posix_fallocate(file_.get(), static_cast<off_t>(slot_offset(slot)), kSlotBytes) != 0) return false;
    void* const mapped = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (mapped == MAP_FAILED) return false;
    mapped_ = static_cast<std::byte*>(mapped);
    counters_ = reinterpret_cast<Counters*>(mapped_ + slot_offset(slot));
    before_ = *counters_;
    std::atomic_ref used(reinterpret_cast<Header*>(mapped_)->slots_used);
    for (std::uint64_t seen = used.load(); seen <= slot && !used.compare_exchange_weak(seen, slot + 1);) {
    }
    return true;
  }
  return false;
}

CounterSlot::~CounterSlot() {
  if (mapped_ != nullptr) munmap(mapped_, kPageBytes);
}

void CounterSlot::close_in_child() {
  file_ = Descriptor();
  if (mapped_ != nullptr)
    mmap(mapped_, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

std::uint64_t CounterSlot::changes() const {
  if (mapped_ == nullptr) return 0;
  return std::atomic_ref(reinterpret_cast<Header*>(mapped_)->changes).load(std::memory_order_acquire);
}

CounterSlot::Published CounterSlot::publish(std::int64_t interval_ns) {
  if (!shared()) return Published::kImpossible;
  if (!lock(file_.get(), F_WRLCK, 0)) return Published::kNotYet;
  auto& header = *reinterpret_cast<Header*>(mapped_);
  Published result = Published::kNotYet;
  if (const Nanoseconds now = now_ns(); now - header.published_at >= interval_ns) {
    const std::optional<Counters> sum = sum_of(file_.get());
    const bool done = sum && write_counter_files(folder_, *sum, header.published);
    if (done) header.published = *sum;
    header.published_at = now;
    result = done ? Published::kDone : Published::kImpossible;
  }
  lock(file_.get(), F_UNLCK, 0);
  return result;
}

}  // namespace plugfest::roce
