// Calls of the plugin that NCCL's progress thread makes.
#include <sched.h>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/pointer.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"
#include "harness/rank/workloads/patience.h"

namespace plugfest::rank {

namespace {

PointerAnswer finish(PointerAnswer answer, void* const* request, std::uint64_t before) {
  this_thread().scratch.finish(answer);
  overwrite_dead_stack();
  answer.value = number(*request);
  answer.untouched = answer.value == before;
  return answer;
}

/// The members of the pieces as the arrays that irecv and iflush take.
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
  return this_thread().scratch.input(name, std::span<const T>(items));
}

}  // namespace

PointerAnswer isend(const Post& request) {
  PointerAnswer answer;
  if (request.pieces.size() != 1) throw WireError("isend takes one buffer");
  const Piece& piece = request.pieces.front();
  Scratch& scratch = this_thread().scratch;
  scratch.begin();
  void** slot = scratch.output("*request", pointer(request.request_slot));
  enter_plugin("isend", answer, [&] {
    return subject().isend(pointer(request.comm), pointer(piece.address), piece.size, piece.tag, pointer(piece.mhandle),
                           pointer(piece.phandle), slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer irecv(const Post& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  Scratch& scratch = this_thread().scratch;
  scratch.begin();
  void** data = place("data", arrays.data);
  std::size_t* sizes = place("sizes", arrays.sizes);
  int* tags = place("tags", arrays.tags);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** phandles = place("phandles", arrays.phandles);
  void** slot = scratch.output("*request", pointer(request.request_slot));
  enter_plugin("irecv", answer, [&] {
    return subject().irecv(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, tags, mhandles,
                           phandles, slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer iflush(const Post& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  Scratch& scratch = this_thread().scratch;
  scratch.begin();
  void** data = place("data", arrays.data);
  int* sizes = place("sizes", arrays.int_sizes);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** slot = scratch.output("*request", pointer(request.request_slot));
  enter_plugin("iflush", answer, [&] {
    return subject().iflush(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, mhandles,
                            slot);
  });
  return finish(answer, slot, request.request_slot);
}

TestAnswer test(const Test& request) {
  TestAnswer answer;
  Scratch& scratch = this_thread().scratch;
  scratch.begin();
  int* done = scratch.output("*done", static_cast<int>(request.done_slot));
  std::array<int, kSizes> filled;
  filled.fill(request.size_fill);
  int* sizes = request.sizes ? scratch.output("sizes", std::span<const int>(filled)) : nullptr;
  enter_plugin("test", answer, [&] { return subject().test(pointer(request.request), done, sizes); });
  scratch.finish(answer);
  answer.done = *done;
  if (sizes != nullptr) answer.sizes.assign(sizes, sizes + kSizes);
  return answer;
}

TestAnswer wait(const Test& request, const Progress& progress) {
  Patience patience(request.patience_ns, progress);
  std::uint64_t calls = 0;
  for (;;) {
    TestAnswer answer = test(request);
    answer.calls = ++calls;
    if (answer.code != 0 || answer.done != 0 || !answer.damage.empty() || patience.over()) return answer;
  }
}

CallAnswer consumed(const Consumed& request) {
  CallAnswer answer;
  if (!subject().has(plugin::Slot::kIrecvConsumed)) return answer;
  enter_plugin("irecvConsumed", answer,
               [&] { return subject().irecv_consumed(pointer(request.comm), request.n, pointer(request.request)); });
  return answer;
}

}  // namespace plugfest::rank
