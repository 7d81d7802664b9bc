#include "harness/control/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <stdexcept>

#include "harness/control/process/rank_process.h"

namespace plugfest::control {

namespace {

constexpr std::string_view kThread = "memory";

}  // namespace

Slice Slice::sub(std::size_t offset, std::size_t length) const {
  if (offset > size || length > size - offset) {
    throw std::out_of_range(fmt::format("bytes {} to {} of a slice of {}", offset, offset + length, size));
  }
  return {address + offset, length};
}

Memory::Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping)
    : rank_(std::move(rank)), whole_(whole), mapping_(mapping) {}

void Memory::forbid() {
  rank_->tell(rank::Operation::kProtect, rank::Protect{mapping_.address, mapping_.size, PROT_NONE}, kThread);
}

void Memory::allow() {
  rank_->tell(rank::Operation::kProtect, rank::Protect{mapping_.address, mapping_.size, PROT_READ | PROT_WRITE},
              kThread);
}

void Memory::unmap() { rank_->tell(rank::Operation::kUnmap, rank::Range{mapping_.address, mapping_.size}, kThread); }

void Memory::map_again() {
  rank_->tell(rank::Operation::kMapAgain, rank::Range{mapping_.address, mapping_.size}, kThread);
}

void Memory::free() {
  rank_->tell(rank::Operation::kFree, rank::Range{mapping_.address, mapping_.size}, kThread);
  std::erase_if(rank_->ledger.memory,
                [this](const MappedMemory& each) { return each.mapping.pages_address == mapping_.address; });
}

}  // namespace plugfest::control
