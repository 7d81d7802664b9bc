// What a receive was posted with, for mutations that spoil its end.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "conformance/mutants/ledger.h"

namespace plugfest::mutants {

/// What a receive was posted with.
struct PostedReceive {
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
};

/// Calls `spoil` with what was posted when the good plugin says that a receive is done.
template <typename Spoil>
void at_end_of_receive(Net& net, const Net& good, Spoil spoil) {
  auto receives = std::make_shared<Ledger<PostedReceive>>();
  net.irecv = [&good, receives](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                                void** request) {
    const Result result = good.irecv(comm, n, data, sizes, tags, mhandles, request);
    if (result == Result::kSuccess && *request != nullptr) {
      receives->put(*request, {std::vector<void*>(data, data + n), std::vector<std::size_t>(sizes, sizes + n)});
    }
    return result;
  };
  net.test = [&good, receives, spoil](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result != Result::kSuccess || *done != 1) return result;
    if (const auto receive = receives->find(request)) spoil(*receive, sizes);
    receives->erase(request);
    return result;
  };
}

}  // namespace plugfest::mutants
