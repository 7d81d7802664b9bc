// Mutants of the XF rules about grouped receives.
#include <algorithm>
#include <memory>
#include <vector>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/faults/posted_receive.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {

// irecv accepts only groups of the size of the comm's first group.
MUTANT(one_group_size_per_comm, breaks("XF-22").also("FL-07", "PR-*", "XF-*")) {
  auto widths = std::make_shared<PointerMap<int>>();
  net.irecv = [&good, widths](void* comm, int n, auto... arguments) {
    const int width = widths->change(comm, [n](int& value) { return value = value == 0 ? n : value; });
    if (n != width) return Result::kInvalidUsage;
    return good.irecv(comm, n, arguments...);
  };
}

// irecv assigns the tags of a group to its buffers in reverse order.
MUTANT(group_tags_reversed, breaks("XF-23").also("FL-07", "PR-*", "XF-*")) {
  net.irecv = [&good](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
    std::vector<int> reversed(tags, tags + n);
    std::reverse(reversed.begin(), reversed.end());
    return good.irecv(comm, n, data, sizes, reversed.data(), mhandles, request);
  };
}

// Fills buffers with equal tags from the last to the first.
MUTANT(equal_tags_filled_in_reverse, breaks("XF-24")) {
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

// While a send is deferred, isend defers the comm's sends with other tags.
MUTANT(deferred_send_blocks_other_tags, breaks("XF-25").also("PR-*", "XF-40")) {
  struct Waiting {
    bool any = false;
    int tag = 0;
  };
  auto waiting = std::make_shared<PointerMap<Waiting>>();
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

// test writes one size more than the group has buffers.
MUTANT(extra_size_written, breaks("XF-26", "TS-04")) {
  when_receive_done(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) sizes[receive.sizes.size()] = 4096;
  });
}

// test writes the sizes of a group in reverse order.
MUTANT(group_sizes_reversed, breaks("XF-26")) {
  when_receive_done(net, good, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) std::reverse(sizes, sizes + receive.sizes.size());
  });
}

}  // namespace plugfest::mutants
