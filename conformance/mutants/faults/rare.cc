// Mutants whose faults are so rare that only plugfest fuzz finds them.
#include <unistd.h>

#include <atomic>
#include <memory>

#include "conformance/mutants/faults/posted_receive.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// One in 100000 messages arrives with a wrong byte.
MUTANT(one_message_in_100000_corrupted, only_fuzz_finds()) {
  // Processes begin at different counts, so that it makes no difference how long each of them lives.
  auto received = std::make_shared<std::atomic<unsigned>>(static_cast<unsigned>(getpid()) * 2654435761u % 100'000);
  when_receive_done(net, good, [received](const PostedReceive& receive, int* sizes) {
    for (std::size_t i = 0; i < receive.data.size(); ++i) {
      if (sizes == nullptr || sizes[i] == 0 || ++*received % 100'000 != 0) continue;
      static_cast<unsigned char*>(receive.data[i])[sizes[i] / 2] ^= 0x10;
    }
  });
}

}  // namespace plugfest::mutants
