#include "harness/traffic/nccl/exec/line_splitter.h"

namespace plugfest::nccl {

void LineSplitter::add(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte != '\n') part_ += byte;
    if (byte != '\n' && part_.size() < kLongest) continue;
    line_(part_);
    part_.clear();
  }
}

void LineSplitter::finish() {
  if (part_.empty()) return;
  line_(part_);
  part_.clear();
}

}  // namespace plugfest::nccl
