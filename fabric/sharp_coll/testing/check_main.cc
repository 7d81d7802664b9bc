// One rank of a test of libsharp_coll: runs collectives and compares their results with computed ones.
//
//   sharp-coll-check RANK RANKS SOCKET MODE
//
// SOCKET: a path through which the ranks find each other. MODE: `all` runs all collectives, types and operators; `loop`
// repeats an allreduce until it fails; `hold` keeps a communicator until standard input ends. Prints a line for each
// step. Exit code: 0 all results are right, 1 a result is wrong, 2 usage, 3 a function of the library returned an
// error.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/sharp_coll/star_rank.h"
#include "fabric/sharp_coll/testing/elements.h"

namespace {

using namespace plugfest::sharp_coll::testing;
using plugfest::sharp_coll::check;
using plugfest::sharp_coll::SharpError;
using plugfest::sharp_coll::StarRank;

using Bytes = std::vector<std::byte>;

sharp_coll_data_desc buffer(std::byte* memory, std::size_t bytes) {
  sharp_coll_data_desc description = {};
  description.type = SHARP_DATA_BUFFER;
  description.mem_type = SHARP_MEM_TYPE_HOST;
  description.buffer = {memory, bytes, nullptr};
  return description;
}

sharp_coll_init_spec init_spec() {
  sharp_coll_init_spec spec = {};
  spec.job_id = 0x5a5a;
  spec.config = sharp_coll_default_config;
  spec.enable_thread_support = 1;
  return spec;
}

class Rank {
 public:
  Rank(int rank, int ranks, const std::string& path) : self_(rank, ranks, path, init_spec()), comm_(self_.connect()) {}
  bool all() {
    reductions();
    large();
    windows();
    broadcasts();
    pipelined();
    check(sharp_coll_do_barrier(comm_), "sharp_coll_do_barrier");
    check(sharp_coll_dump_stats(self_.context()), "sharp_coll_dump_stats");
    std::printf("%d of %d right\n", cases_ - wrong_, cases_);
    return wrong_ == 0;
  }

  void loop() {
    for (long i = 0;; ++i) {
      Bytes data = elements(rank(), 1 << 16, kElementTypes[0], SHARP_OP_SUM);
      sharp_coll_reduce_spec spec = reduction(kElementTypes[0], SHARP_OP_SUM, 1 << 16);
      spec.sbuf_desc = spec.rbuf_desc = buffer(data.data(), data.size());
      check(sharp_coll_do_allreduce(comm_, &spec), "sharp_coll_do_allreduce");
      if (i == 0) std::puts("running");
      std::fflush(stdout);
    }
  }

 private:
  int rank() const { return self_.rank(); }
  int ranks() const { return self_.ranks(); }

  static sharp_coll_reduce_spec reduction(const ElementType& type, sharp_reduce_op op, std::size_t count) {
    sharp_coll_reduce_spec spec = {};
    spec.dtype = type.dtype;
    spec.op = op;
    spec.length = count;
    spec.aggr_mode = SHARP_AGGREGATION_NONE;
    return spec;
  }

  void compare(const std::string& what, const std::byte* found, const std::byte* expected, std::size_t bytes) {
    ++cases_;
    const auto [at, other] = std::mismatch(found, found + bytes, expected);
    if (at == found + bytes) return;
    if (++wrong_ <= 10)
      std::printf("WRONG %s: byte %td of %zu is %d, expected %d\n", what.c_str(), at - found, bytes,
                  static_cast<int>(*at), static_cast<int>(*other));
  }

  void allreduce(const ElementType& type, const Operator& op, std::size_t count, bool in_place) {
    Bytes send = elements(rank(), count, type, op.op);
    Bytes receive(in_place ? 0 : send.size());
    Bytes& result = in_place ? send : receive;
    sharp_coll_reduce_spec spec = reduction(type, op.op, count);
    spec.sbuf_desc = buffer(send.data(), send.size());
    spec.rbuf_desc = buffer(result.data(), result.size());
    check(sharp_coll_do_allreduce(comm_, &spec), "sharp_coll_do_allreduce");
    compare(std::string("allreduce ") + type.name + " " + op.name + " " + std::to_string(count), result.data(),
            reduced(ranks(), count, type, op.op).data(), result.size());
  }

  void reductions() {
    for (const ElementType& type : kElementTypes)
      for (const Operator& op : kOperators)
        for (const std::size_t count : {0u, 1u, 7u, 3000u})
          if (type.is_integer || !op.of_integers) allreduce(type, op, count, count == 7);
  }

  void large() {
    for (const ElementType& type : {kElementTypes[1], kElementTypes[4], kElementTypes[8]})
      allreduce(type, kOperators[2], (1 << 20) / type.bytes, false);
    allreduce(kElementTypes[5], kOperators[0], (1 << 20) / 8 - 3, true);
  }

  // Reduce-scatter and allgather by data windows that begin and end inside blocks.
  void windows() {
    const ElementType& type = kElementTypes[1];
    for (const std::size_t block : {std::size_t{1}, std::size_t{7}, std::size_t{5000}})
      for (const std::size_t window : {std::size_t{3}, block, 2 * block + 1, block * static_cast<std::size_t>(ranks())})
        for (const bool in_place : {false, true}) {
          reduce_scatter(type, block, std::max(window, block * static_cast<std::size_t>(ranks()) / 20), in_place);
          allgather(block, std::max(window, block * static_cast<std::size_t>(ranks()) / 20), in_place);
        }
  }

  void reduce_scatter(const ElementType& type, std::size_t block, std::size_t window, bool in_place) {
    const std::size_t all = block * static_cast<std::size_t>(ranks());
    const std::size_t own = block * static_cast<std::size_t>(rank());
    const Bytes send = elements(rank(), all, type, SHARP_OP_SUM);
    Bytes memory = send;
    Bytes separate(block * type.bytes, std::byte{0xee});
    for (std::size_t begin = 0; begin < all; begin += window) {
      const std::size_t end = std::min(begin + window, all);
      // The own part of the data window, relative to the own block.
      const std::size_t first = std::clamp(begin, own, own + block) - own;
      std::byte* const result = (in_place ? memory.data() + own * type.bytes : separate.data()) + first * type.bytes;
      sharp_coll_reduce_spec spec = reduction(type, SHARP_OP_SUM, end - begin);
      spec.sbuf_desc = buffer(memory.data() + begin * type.bytes, (end - begin) * type.bytes);
      spec.rbuf_desc = buffer(result, block * type.bytes);
      spec.offset = begin * type.bytes;
      check(sharp_coll_do_reduce_scatter(comm_, &spec), "sharp_coll_do_reduce_scatter");
    }
    const Bytes expected = reduced(ranks(), all, type, SHARP_OP_SUM);
    compare("reduce-scatter, block " + std::to_string(block) + ", window " + std::to_string(window),
            in_place ? memory.data() + own * type.bytes : separate.data(), expected.data() + own * type.bytes,
            block * type.bytes);
  }

  void allgather(std::size_t block, std::size_t window, bool in_place) {
    const std::size_t all = block * static_cast<std::size_t>(ranks());
    const std::size_t own = block * static_cast<std::size_t>(rank());
    Bytes expected(all);
    for (std::size_t i = 0; i < all; ++i)
      expected[i] = static_cast<std::byte>(element(static_cast<int>(i / block), i, SHARP_OP_SUM) + 1);
    Bytes memory(all, std::byte{0xee});
    Bytes separate(expected.begin() + static_cast<std::ptrdiff_t>(own),
                   expected.begin() + static_cast<std::ptrdiff_t>(own + block));
    if (in_place) std::copy(separate.begin(), separate.end(), memory.begin() + static_cast<std::ptrdiff_t>(own));
    for (std::size_t begin = 0; begin < all; begin += window) {
      const std::size_t end = std::min(begin + window, all);
      const std::size_t first = std::clamp(begin, own, own + block) - own;
      const bool has_part = begin < own + block && end > own;
      std::byte* const source = (in_place ? memory.data() + own : separate.data()) + first;
      sharp_coll_gather_spec spec = {};
      spec.sbuf_desc = buffer(has_part ? source : nullptr, block);
      spec.rbuf_desc = buffer(memory.data() + begin, end - begin);
      spec.dtype = SHARP_DTYPE_INT8;
      spec.size = end - begin;
      spec.offset = begin;
      check(sharp_coll_do_allgather(comm_, &spec), "sharp_coll_do_allgather");
    }
    compare("allgather, block " + std::to_string(block) + ", window " + std::to_string(window), memory.data(),
            expected.data(), all);
  }

  void broadcasts() {
    for (int root = 0; root < ranks(); root += std::max(1, ranks() - 1))
      for (const std::size_t bytes : {0u, 1u, 7u, 20001u}) {
        const Bytes expected = elements(root, bytes, kElementTypes[10], SHARP_OP_SUM);
        Bytes memory = rank() == root ? expected : Bytes(bytes);
        sharp_coll_bcast_spec spec = {};
        spec.root = root;
        spec.size = bytes;
        spec.buf_desc = buffer(memory.data(), bytes);
        check(sharp_coll_do_bcast(comm_, &spec), "sharp_coll_do_bcast");
        compare("bcast from " + std::to_string(root), memory.data(), expected.data(), bytes);

        const ElementType& type = kElementTypes[4];
        Bytes send = elements(rank(), bytes, type, SHARP_OP_MAX);
        Bytes result(send.size());
        sharp_coll_reduce_spec reduce_spec = reduction(type, SHARP_OP_MAX, bytes);
        reduce_spec.root = root;
        reduce_spec.sbuf_desc = buffer(send.data(), send.size());
        reduce_spec.rbuf_desc = buffer(result.data(), result.size());
        check(sharp_coll_do_reduce(comm_, &reduce_spec), "sharp_coll_do_reduce");
        if (rank() == root)
          compare("reduce to " + std::to_string(root), result.data(),
                  reduced(ranks(), bytes, type, SHARP_OP_MAX).data(), result.size());
      }
  }

  // Many requests in flight, tested in the reverse order of posting.
  void pipelined() {
    constexpr int kRequests = 64;
    const ElementType& type = kElementTypes[0];
    std::vector<Bytes> data;
    std::vector<void*> handles(kRequests);
    for (int i = 0; i < kRequests; ++i)
      data.push_back(elements(rank() + i, static_cast<std::size_t>(i * 97), type, SHARP_OP_SUM));
    for (int i = 0; i < kRequests; ++i) {
      Bytes& memory = data[static_cast<std::size_t>(i)];
      sharp_coll_reduce_spec spec = reduction(type, SHARP_OP_SUM, memory.size() / type.bytes);
      spec.sbuf_desc = spec.rbuf_desc = buffer(memory.data(), memory.size());
      check(sharp_coll_do_allreduce_nb(comm_, &spec, &handles[static_cast<std::size_t>(i)]),
            "sharp_coll_do_allreduce_nb");
    }
    for (int i = kRequests - 1; i >= 0; --i) {
      void* const handle = handles[static_cast<std::size_t>(i)];
      int done = 0;
      while (done == 0) {
        done = sharp_coll_req_test(handle);
        check(done, "sharp_coll_req_test");
      }
      check(sharp_coll_req_free(handle), "sharp_coll_req_free");
      Bytes expected = data[static_cast<std::size_t>(i)];
      for (std::size_t at = 0; at < expected.size() / type.bytes; ++at) {
        int sum = 0;
        for (int other = 0; other < ranks(); ++other) sum += element(other + i, at, SHARP_OP_SUM);
        put(expected.data() + at * type.bytes, type, sum);
      }
      compare("request " + std::to_string(i), data[static_cast<std::size_t>(i)].data(), expected.data(),
              expected.size());
    }
  }

  StarRank self_;
  sharp_coll_comm* comm_;
  int cases_ = 0;
  int wrong_ = 0;
};

int run(int rank, int ranks, const std::string& path, const std::string& mode) {
  try {
    Rank self(rank, ranks, path);
    std::puts("joined");
    std::fflush(stdout);
    if (mode == "all") return self.all() ? 0 : 1;
    if (mode == "loop") self.loop();
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
  } catch (const SharpError& error) {
    std::printf("%s: %s (%d)\n", error.function, sharp_coll_strerror(error.code), error.code);
    return 3;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: sharp-coll-check RANK RANKS SOCKET all|loop|hold\n");
    return 2;
  }
  return run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], argv[4]);
}
