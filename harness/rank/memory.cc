#include "harness/rank/memory.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "fabric/system/file.h"
#include "fabric/system/number.h"
#include "harness/rank/gpu.h"
#include "harness/rank/server.h"
#include "harness/wire/channel.h"
#include "harness/wire/exported_memory.h"

namespace plugfest::rank {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

Mapping map_guarded(std::size_t size, bool at_end) {
  const std::size_t page = page_size();
  const std::size_t pages = std::max(round_up(size, page), page);
  void* whole = mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) throw_errno("map memory");
  const auto start = reinterpret_cast<std::uint64_t>(whole) + page;
  if (mprotect(reinterpret_cast<void*>(start), pages, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(whole, pages + 2 * page);
    throw_errno("change the protection of memory", error);
  }
  return {at_end ? start + pages - size : start, start, pages};
}

void unmap_guarded(Range pages) {
  const std::size_t page = page_size();
  munmap(reinterpret_cast<void*>(pages.address - page), pages.size + 2 * page);
}

void unmap_guarded(const Mapping& mapping) { unmap_guarded(Range{mapping.pages_address, mapping.pages_size}); }

namespace {

enum class Access { kReads, kWrites };

// Returns use(bytes) for memory of this process. The bytes of GPU memory are a copy, which is written back afterwards.
template <typename Use>
auto with_bytes(std::uint64_t address, std::size_t size, Access access, Use use) {
  const Gpu* const gpu = Gpu::owner(address);
  if (gpu == nullptr) return use(static_cast<std::byte*>(pointer(address)));
  std::vector<std::byte> copy(size);
  if (access == Access::kReads) gpu->read(copy.data(), address, size);
  const auto answer = use(copy.data());
  if (access == Access::kWrites) gpu->write(address, copy.data(), size);
  return answer;
}

// The DMA-BUF of a memory file; -1 without /dev/udmabuf, or if this user may not open it.
int make_dma_buf(int file, std::size_t size) {
  const int udmabuf = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  if (udmabuf < 0) return -1;
  udmabuf_create create = {
      .memfd = static_cast<std::uint32_t>(file), .flags = UDMABUF_FLAGS_CLOEXEC, .offset = 0, .size = size};
  const int made = ioctl(udmabuf, UDMABUF_CREATE, &create);
  close(udmabuf);
  return made;
}

}  // namespace

ExportedMapping execute(const MapExported& request) {
  ExportedMapping mapping{map_guarded(request.size, false)};
  const int file = memfd_create("plugfest-exported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const auto length = static_cast<off_t>(mapping.pages_size);
  // udmabuf demands the seal.
  if (file < 0 || ftruncate(file, length) != 0 || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    throw_errno("create a memory file");
  void* const pages =
      mmap(pointer(mapping.pages_address), mapping.pages_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  if (pages == MAP_FAILED) throw_errno("map memory");
  mapping.descriptor = make_dma_buf(file, mapping.pages_size);
  mapping.is_dma_buf = mapping.descriptor >= 0;
  if (mapping.is_dma_buf)
    close(file);
  else
    mapping.descriptor = file;
  return mapping;
}

Mapping execute(const Map& request) {
  if (!request.gpu) return map_guarded(request.size, request.at_end);
  const std::uint64_t address = Gpu::open().allocate(request.size);
  return {address, address, request.size};
}

Nothing execute(const Unmap& request) {
  // A mapping without access reserves the address range.
  void* kept = mmap(pointer(request.address), request.size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (kept == MAP_FAILED) throw_errno("map memory");
  return {};
}

Nothing execute(const MapAgain& request) {
  void* fresh = mmap(pointer(request.address), request.size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (fresh == MAP_FAILED) throw_errno("map memory");
  return {};
}

Nothing execute(const Free& request) {
  if (Gpu* const gpu = Gpu::owner(request.address))
    gpu->free(request.address);
  else
    unmap_guarded(request);
  return {};
}

Nothing execute(const ReplaceDescriptor& request) {
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (other < 0 || dup3(other, request.descriptor, O_CLOEXEC) < 0) throw_errno("replace a descriptor");
  close(other);
  return {};
}

Nothing execute(const Protect& request) {
  if (mprotect(pointer(request.address), request.size, request.access) != 0)
    throw_errno("change the protection of memory");
  return {};
}

Nothing execute(const Fill& request) {
  return with_bytes(request.address, request.size, Access::kWrites, [&](std::byte* bytes) {
    fill_pattern(bytes, request.size, request.seed);
    return Nothing{};
  });
}

Difference execute(const Check& request) {
  return with_bytes(request.address, request.size, Access::kReads,
                    [&](const std::byte* bytes) { return compare_pattern(bytes, request.size, request.seed); });
}

Nothing execute(const Set& request) {
  return with_bytes(request.address, request.size, Access::kWrites, [&](std::byte* bytes) {
    std::memset(bytes, request.value, request.size);
    return Nothing{};
  });
}

Difference execute(const CheckSet& request) {
  return with_bytes(request.address, request.size, Access::kReads,
                    [&](const std::byte* bytes) { return compare_byte(bytes, request.size, request.value); });
}

Bytes execute(const Read& request) {
  if (request.size > kMaxBody / 2) throw std::length_error("that much memory does not fit into one answer");
  return with_bytes(request.address, request.size, Access::kReads, [&](const std::byte* bytes) {
    return Bytes{{bytes, bytes + request.size}};
  });
}

Nothing execute(const Write& request) {
  return with_bytes(request.address, request.bytes.size(), Access::kWrites, [&](std::byte* bytes) {
    std::memcpy(bytes, request.bytes.data(), request.bytes.size());
    return Nothing{};
  });
}

namespace {

// Every step is a bijection of 64 bits, so words of one position differ whenever their seeds do.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

class PatternWords {
 public:
  explicit PatternWords(std::uint64_t seed) : next_(scramble(seed * 0x9e3779b97f4a7c15ull + 1)) {}
  std::uint64_t operator()() { return scramble(next_++); }

 private:
  std::uint64_t next_;
};

void note(Difference& difference, std::size_t offset, const std::byte* got, const std::byte* expected,
          std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (got[i] == expected[i]) continue;
    if (difference.bytes++ == 0) {
      difference.offset = offset + i;
      difference.got = static_cast<std::uint8_t>(got[i]);
      difference.expected = static_cast<std::uint8_t>(expected[i]);
    }
  }
}

// Selects an independent sequence of random numbers for each purpose.
enum Purpose : std::uint64_t { kForSize = 1, kForContents = 2, kForWidth = 3, kForOrder = 4 };

std::uint64_t draw(std::uint64_t seed, Purpose purpose, std::uint64_t index) { return mix(seed * 8 + purpose, index); }

}  // namespace

std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  return scramble(scramble(seed * 0x9e3779b97f4a7c15ull + 1) + index);
}

void fill_pattern(void* memory, std::size_t size, std::uint64_t seed) {
  auto* bytes = static_cast<std::byte*>(memory);
  PatternWords words(seed);
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = words();
    std::memcpy(bytes + at, &word, std::min<std::size_t>(8, size - at));
  }
}

Difference compare_pattern(const void* memory, std::size_t size, std::uint64_t seed) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  PatternWords words(seed);
  Difference difference;
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = words();
    const std::size_t length = std::min<std::size_t>(8, size - at);
    if (std::memcmp(bytes + at, &word, length) == 0) continue;
    note(difference, at, bytes + at, reinterpret_cast<const std::byte*>(&word), length);
  }
  return difference;
}

Difference compare_byte(const void* memory, std::size_t size, std::uint8_t value) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  Difference difference;
  std::byte expected[4096];
  std::memset(expected, value, sizeof expected);
  for (std::size_t at = 0; at < size; at += sizeof expected) {
    const std::size_t length = std::min(sizeof expected, size - at);
    if (std::memcmp(bytes + at, expected, length) != 0) note(difference, at, bytes + at, expected, length);
  }
  return difference;
}

StreamPlan::StreamPlan(const Stream& request) : request_(request) {
  if (request_.sizes.empty() || request_.window == 0 || request_.group == 0 || request_.check_every == 0)
    throw std::invalid_argument("a stream needs sizes, a window, a group and check_every of at least 1");
  largest_ = std::max(request_.posted_size, *std::max_element(request_.sizes.begin(), request_.sizes.end()));
}

std::uint32_t StreamPlan::size(std::uint64_t k) const {
  return request_.sizes[draw(request_.seed, kForSize, k) % request_.sizes.size()];
}

std::uint32_t StreamPlan::posted_size(std::uint64_t k) const {
  return request_.posted_size != 0 ? request_.posted_size : size(k);
}

std::uint64_t StreamPlan::contents(std::uint64_t k) const { return draw(request_.seed, kForContents, k); }

Group StreamPlan::next(const Group& group) const {
  Group next;
  next.first = group.first + group.width;
  next.number = group.width == 0 ? 0 : group.number + 1;
  const std::uint64_t left = request_.count - next.first;
  next.width = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(left, 1 + draw(request_.seed, kForWidth, next.number) % request_.group));
  return next;
}

std::vector<std::uint32_t> StreamPlan::posting_order(const Group& group) const {
  std::vector<std::uint32_t> places(group.width);
  std::iota(places.begin(), places.end(), 0u);
  for (std::uint32_t i = group.width; i > 1; --i) {
    const std::uint64_t other = draw(request_.seed, kForOrder, group.first + i) % i;
    std::swap(places[i - 1], places[other]);
  }
  return places;
}

}  // namespace plugfest::rank
