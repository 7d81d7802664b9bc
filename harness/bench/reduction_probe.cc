// One rank of plugfest bench reduction: allreduces of libsharp_coll.
//
//   plugfest-reduction-probe RANK RANKS SOCKET measure BYTES OPERATIONS
//   plugfest-reduction-probe RANK RANKS SOCKET hold GROUPS BYTES
//
// SOCKET: a path through which the ranks find each other. `measure` runs one allreduce, and OPERATIONS of which it
// prints the time, as `plugfest coll` does: "seconds S" of one operation and "wrong N" elements of the last result.
// `hold` creates GROUPS communicators, runs an allreduce on all of them at the same time, prints "held 1" and keeps
// them until it is killed. Exit code: 0, 1 a function of the library failed, 2 usage.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string>
#include <vector>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"
#include "fabric/sharp_coll/star_rank.h"
#include "fabric/system/clock.h"

namespace {

using plugfest::Nanoseconds;
using plugfest::now_ns;
using plugfest::sharp_coll::check;
using plugfest::sharp_coll::SharpError;
using plugfest::sharp_coll::StarRank;

// Small integers, so that sums of floating-point numbers are exact.
float element(int rank, std::size_t index) { return static_cast<float>((rank + 1) * static_cast<int>(index % 251)); }

class Vector {
 public:
  Vector(int rank, int ranks, std::size_t bytes) : ranks_(ranks), send_(bytes / sizeof(float)), receive_(send_.size()) {
    for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = element(rank, i);
    spec_.dtype = SHARP_DTYPE_FLOAT;
    spec_.op = SHARP_OP_SUM;
    spec_.length = send_.size();
    spec_.aggr_mode = SHARP_AGGREGATION_NONE;
    describe(spec_.sbuf_desc, send_);
    describe(spec_.rbuf_desc, receive_);
  }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  sharp_coll_reduce_spec* spec() { return &spec_; }

  std::size_t wrong() const {
    std::size_t count = 0;
    const auto factor = static_cast<float>(ranks_ * (ranks_ + 1) / 2);
    for (std::size_t i = 0; i < receive_.size(); ++i)
      if (receive_[i] != factor * element(0, i)) ++count;
    return count;
  }

 private:
  static void describe(sharp_coll_data_desc& description, std::vector<float>& memory) {
    description.type = SHARP_DATA_BUFFER;
    description.mem_type = SHARP_MEM_TYPE_HOST;
    description.buffer = {memory.data(), memory.size() * sizeof(float), nullptr};
  }

  int ranks_;
  std::vector<float> send_, receive_;
  sharp_coll_reduce_spec spec_ = {};
};

sharp_coll_init_spec init_spec() {
  sharp_coll_init_spec spec = {};
  spec.job_id = 1;
  spec.config = sharp_coll_default_config;
  return spec;
}

class Rank {
 public:
  Rank(int rank, int ranks, const std::string& path) : self_(rank, ranks, path, init_spec()) {}

  void measure(std::size_t bytes, int operations) {
    sharp_coll_comm* const comm = self_.connect();
    Vector vector(self_.rank(), self_.ranks(), bytes);
    // The first operation lets the ranks begin at the same time.
    check(sharp_coll_do_allreduce(comm, vector.spec()), "sharp_coll_do_allreduce");
    const Nanoseconds start = now_ns();
    for (int i = 0; i < operations; ++i) check(sharp_coll_do_allreduce(comm, vector.spec()), "sharp_coll_do_allreduce");
    const double seconds = static_cast<double>(now_ns() - start) / 1e9 / operations;
    std::printf("seconds %.9f\nwrong %zu\n", seconds, vector.wrong());
  }

  [[noreturn]] void hold(int groups, std::size_t bytes) {
    for (int i = 0; i < groups; ++i) self_.connect();
    std::deque<Vector> vectors;
    std::vector<void*> handles;
    for (sharp_coll_comm* const comm : self_.comms()) {
      Vector& vector = vectors.emplace_back(self_.rank(), self_.ranks(), bytes);
      handles.push_back(nullptr);
      check(sharp_coll_do_allreduce_nb(comm, vector.spec(), &handles.back()), "sharp_coll_do_allreduce_nb");
    }
    for (void* const handle : handles) {
      int done = 0;
      while (done == 0) {
        sharp_coll_progress(self_.context());
        check(done = sharp_coll_req_test(handle), "sharp_coll_req_test");
      }
    }
    std::puts("held 1");
    std::fflush(stdout);
    while (true) pause();
  }

 private:
  StarRank self_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 7 ? argv[4] : "";
  if (mode != "measure" && mode != "hold") {
    std::fputs("plugfest-reduction-probe: plugfest bench reduction starts this program\n", stderr);
    return 2;
  }
  try {
    Rank rank(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
    if (mode == "hold") rank.hold(std::atoi(argv[5]), std::strtoul(argv[6], nullptr, 10));
    rank.measure(std::strtoul(argv[5], nullptr, 10), std::atoi(argv[6]));
  } catch (const SharpError& failed) {
    std::printf("%s: %s (%d)\n", failed.function, sharp_coll_strerror(failed.code), failed.code);
    return 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
