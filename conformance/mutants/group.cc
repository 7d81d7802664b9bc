// Mutants of the XF rules about grouped receives.
#include <algorithm>
#include <memory>
#include <vector>

#include "conformance/mutants/ledger.h"
#include "conformance/mutants/mutant.h"
#include "conformance/mutants/posted_receive.h"

namespace plugfest::mutants {

// Takes groups of the first width that a comm saw and no other.
MUTANT(one_width_for_all_groups, breaks("XF-22")) {
  auto widths = std::make_shared<Ledger<int>>();
  net.irecv = [&good, widths](void* comm, int n, auto... arguments) {
    const int width = widths->change(comm, [n](int& value) { return value = value == 0 ? n : value; });
    if (n != width) return Result::kInvalidUsage;
    return good.irecv(comm, n, arguments...);
  };
}

// Fills the buffers of a group in the order of sending, whatever the tags.
MUTANT(groups_ignore_tags, breaks("XF-23")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<int> reversed(tags, tags + n);
    std::reverse(reversed.begin(), reversed.end());
    return good.irecv(comm, n, data, sizes, reversed.data(), mhandles, request);
  };
}

// Fills buffers of equal tag from the last to the first.
MUTANT(equal_tags_backwards, breaks("XF-24")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<void*> buffers(data, data + n), handles(mhandles, mhandles + n);
    for (int i = 0, k = n - 1; i < n; ++i) {
      for (k = n - 1; k > i && tags[k] != tags[i]; --k) {
      }
      if (k == i || buffers[static_cast<std::size_t>(i)] != data[i]) continue;
      std::swap(buffers[static_cast<std::size_t>(i)], buffers[static_cast<std::size_t>(k)]);
      std::swap(handles[static_cast<std::size_t>(i)], handles[static_cast<std::size_t>(k)]);
    }
    return good.irecv(comm, n, buffers.data(), sizes, tags, handles.data(), request);
  };
}

// Holds every send of a comm back while one of another tag is waiting for its group.
MUTANT(a_waiting_send_blocks_all, breaks("XF-25")) {
  struct Waiting {
    bool any = false;
    int tag = 0;
  };
  auto waiting = std::make_shared<Ledger<Waiting>>();
  net.isend = [&good, waiting](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Waiting now = waiting->change(comm, [](Waiting& value) { return value; });
    if (now.any && now.tag != tag) {
      *request = nullptr;
      return Result::kSuccess;
    }
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    waiting->put(comm, {result == Result::kSuccess && *request == nullptr, tag});
    return result;
  };
}

// Writes one size more than the group has.
MUTANT(one_size_too_many, breaks("XF-26", "TS-04")) {
  at_end_of_receive(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) sizes[receive.sizes.size()] = 4096;
  });
}

// Writes the sizes of a group in the opposite order.
MUTANT(sizes_backwards, breaks("XF-26")) {
  at_end_of_receive(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) std::reverse(sizes, sizes + receive.sizes.size());
  });
}

}  // namespace plugfest::mutants
