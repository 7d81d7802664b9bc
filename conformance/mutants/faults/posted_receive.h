// Arguments of receives, for mutations that change what a completed receive returns.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "conformance/mutants/faults/pointer_map.h"
#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// Arguments of an irecv.
struct PostedReceive {
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
};

/// Calls `change(receive, sizes)` in each test that reports a receive as done. `sizes`: test's argument.
template <typename Change>
void when_receive_done(Net& net, const Net& good, Change change) {
  auto receives = std::make_shared<PointerMap<PostedReceive>>();
  net.irecv = [&good, receives](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) {
      receives->put(*request, {std::vector<void*>(data, data + n), std::vector<std::size_t>(sizes, sizes + n)});
    }
    return result;
  };
  net.test = [&good, receives, change](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done != 1) return result;
    if (const auto receive = receives->find(request)) change(*receive, sizes);
    receives->erase(request);
    return result;
  };
}

}  // namespace plugfest::mutants
