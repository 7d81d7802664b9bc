// The plugin calls of NCCL's progress thread.
#include "harness/rank/calls/dispatch.h"
#include "harness/rank/pointer.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"
#include "harness/rank/workloads/stall_timer.h"

namespace plugfest::rank {

namespace {

PointerAnswer finish(PointerAnswer answer, void* const* request, std::uint64_t before) {
  this_thread().arguments.finish(answer);
  overwrite_dead_stack();
  answer.value = number(*request);
  answer.untouched = answer.value == before;
  return answer;
}

/// The array arguments of irecv and iflush.
struct Arrays {
  explicit Arrays(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      data.push_back(pointer(piece.address));
      sizes.push_back(piece.size);
      int_sizes.push_back(static_cast<int>(piece.size));
      tags.push_back(piece.tag);
      mhandles.push_back(pointer(piece.mhandle));
      phandles.push_back(pointer(piece.phandle));
    }
  }
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
  std::vector<int> int_sizes;
  std::vector<int> tags;
  std::vector<void*> mhandles;
  std::vector<void*> phandles;
};

template <class T>
T* place(const char* name, const std::vector<T>& items) {
  return this_thread().arguments.input(name, std::span<const T>(items));
}

}  // namespace

PointerAnswer execute(const Isend& request) {
  PointerAnswer answer;
  if (request.pieces.size() != 1) throw WireError("isend takes one buffer");
  const Piece& piece = request.pieces.front();
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("isend", answer, [&] {
    return subject().isend(pointer(request.comm), pointer(piece.address), piece.size, piece.tag, pointer(piece.mhandle),
                           pointer(piece.phandle), slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer execute(const Irecv& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** data = place("data", arrays.data);
  std::size_t* sizes = place("sizes", arrays.sizes);
  int* tags = place("tags", arrays.tags);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** phandles = place("phandles", arrays.phandles);
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("irecv", answer, [&] {
    return subject().irecv(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, tags, mhandles,
                           phandles, slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer execute(const Iflush& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** data = place("data", arrays.data);
  int* sizes = place("sizes", arrays.int_sizes);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("iflush", answer, [&] {
    return subject().iflush(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, mhandles,
                            slot);
  });
  return finish(answer, slot, request.request_slot);
}

TestAnswer execute(const Test& request) {
  TestAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  int* done = area.output("*done", static_cast<int>(request.done_slot));
  std::array<int, kSizes> filled;
  filled.fill(request.size_fill);
  int* sizes = request.sizes ? area.output("sizes", std::span<const int>(filled)) : nullptr;
  enter_plugin("test", answer, [&] { return subject().test(pointer(request.request), done, sizes); });
  area.finish(answer);
  answer.done = *done;
  if (sizes != nullptr) answer.sizes.assign(sizes, sizes + kSizes);
  return answer;
}

TestAnswer execute(const Wait& request) {
  StallTimer stall(request.timeout_ns);
  for (;;) {
    TestAnswer answer = execute(static_cast<const Test&>(request));
    if (answer.code != 0 || answer.done != 0 || !answer.damage.empty() || stall.expired()) return answer;
  }
}

CallAnswer execute(const IrecvConsumed& request) {
  CallAnswer answer;
  if (!subject().has(plugin::Slot::kIrecvConsumed)) return answer;
  enter_plugin("irecvConsumed", answer,
               [&] { return subject().irecv_consumed(pointer(request.comm), request.n, pointer(request.request)); });
  return answer;
}

}  // namespace plugfest::rank
