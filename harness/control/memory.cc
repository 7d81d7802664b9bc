#include "harness/control/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <stdexcept>

#include "harness/control/process/rank_process.h"

namespace plugfest::control {

Slice Slice::sub(std::size_t offset, std::size_t length) const {
  if (offset > size || length > size - offset) {
    throw std::out_of_range(fmt::format("bytes {} to {} of a slice of {}", offset, offset + length, size));
  }
  return {address + offset, length};
}

Memory::Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping)
    : rank_(std::move(rank)), whole_(whole), mapping_(mapping) {}

void Memory::forbid() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_NONE}); }

void Memory::make_read_only() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_READ}); }

void Memory::allow() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_READ | PROT_WRITE}); }

void Memory::unmap() { rank_->ask(rank::Unmap{{mapping_.address, mapping_.size}}); }

void Memory::map_again() { rank_->ask(rank::MapAgain{{mapping_.address, mapping_.size}}); }

void Memory::free() {
  rank_->ask(rank::Free{{mapping_.address, mapping_.size}});
  std::erase_if(rank_->ledger.memory,
                [this](const MappedMemory& each) { return each.mapping.pages_address == mapping_.address; });
}

}  // namespace plugfest::control
