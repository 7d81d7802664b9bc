// One rank of a test of the plugin: loads it as NCCL does, connects, and compares results with computed ones.
//
//   sharp-plugin-check PLUGIN RANK RANKS SOCKET MODE
//
// SOCKET: a path through which the ranks exchange their handles. MODE: `all` runs all collectives, and connects and
// closes several times; `join` connects once; `loop` repeats an allreduce until it fails; `leave` ends before connect;
// `absent` never calls connect and does not end. Prints the lines of the plugin's log. Exit code: 0 all is right, 1 a
// result is wrong, 2 something else is wrong, 3 connect failed, 4 a collective failed.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "fabric/sharp_coll/star.h"
#include "fabric/sharp_coll/testing/elements.h"
#include "fabric/system/testing.h"
#include "harness/abi/coll_net.h"

namespace {

using namespace plugfest::sharp_coll::testing;
using plugfest::sharp_coll::Star;
namespace abi = plugfest::abi;
using abi::Result;
using CollNet = abi::v12::CollNet;
using OldCollNet = abi::v8::CollNet;  // some calls are made through the table of v8, which has other types

template <typename Table>
using Size = decltype(Table::Part::size);

// By abi::DataType and abi::ReduceOp.
constexpr std::size_t kTypes[] = {11, 10, 1, 0, 3, 2, 8, 4, 5, 9};
constexpr std::size_t kOps[] = {2, 3, 0, 1};
constexpr std::size_t kPool = 4 << 20;  // the first half is sent, the second one receives

void print_line(int level, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::printf(level == abi::kLogWarn ? "WARN " : "INFO ");
  std::vprintf(format, arguments);
  std::puts("");
  va_end(arguments);
}

struct CallFailed {
  const char* function;
  Result code;
};

void check(Result code, const char* function) {
  if (code != Result::kSuccess) throw CallFailed{function, code};
}

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

template <typename Table>
Table& load(const char* path, const char* symbol) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  void* const table = dlsym(library, symbol);
  if (table == nullptr) throw std::runtime_error(dlerror());
  return *static_cast<Table*>(table);
}

class Rank {
 public:
  Rank(const char* plugin, int rank, int ranks, const std::string& path)
      : net_(load<CollNet>(plugin, "ncclCollNetPlugin_v12")),
        old_(load<OldCollNet>(plugin, "ncclCollNetPlugin_v8")),
        star_(rank, ranks, path) {
    check(net_.init(&context_, 0, print_line), "init");
    int devices = 0;
    check(net_.devices(&devices), "devices");
    expect(devices > 0, "no device");
  }

  void listen() {
    handles_.resize(static_cast<std::size_t>(ranks()) * abi::kHandleBytes);
    std::array<char, abi::kHandleBytes> own = {};
    check(net_.listen(context_, 0, own.data(), &listener_), "listen");
    if (star_.gather(own.data(), handles_.data(), abi::kHandleBytes) != 0 ||
        star_.broadcast(handles_.data(), static_cast<int>(handles_.size())) != 0)
      throw std::runtime_error("a rank ended while the handles were exchanged");
  }

  Result connect() {
    std::vector<void*> handles;
    for (int i = 0; i < ranks(); ++i) handles.push_back(&handles_[static_cast<std::size_t>(i) * abi::kHandleBytes]);
    comm_ = this;  // no valid comm
    const Result result = net_.connect(handles.data(), ranks(), rank(), listener_, &comm_);
    std::printf("connect returned %d, %s\n", static_cast<int>(result), comm_ == nullptr ? "NULL" : "a comm");
    std::fflush(stdout);
    std::fill(handles_.begin(), handles_.end(), '\x5a');
    check(net_.closeListen(listener_), "closeListen");
    return result;
  }

  void allocate() {
    pool_ = static_cast<std::byte*>(mmap(nullptr, kPool, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    expect(pool_ != MAP_FAILED, "mmap");
    for (void*& memory : memory_) check(net_.regMr(comm_, pool_, kPool, abi::kPointerHost, &memory), "regMr");
    expect(net_.regMr(comm_, pool_, kPool, 1 << 6, &unknown_) != Result::kSuccess, "regMr took an unknown type");
  }

  bool all() {
    reductions();
    windows();
    pipelined();
    std::printf("%d of %d right\n", cases_ - wrong_, cases_);
    return wrong_ == 0;
  }

  void loop() {
    for (int i = 0;; ++i) {
      finish(allreduce(abi::kFloat32, abi::kSum, 1 << 16, 0, false));
      if (i == 0) std::puts("running");
      std::fflush(stdout);
    }
  }

  // In NCCL's order: the memory is freed first.
  void close() {
    munmap(pool_, kPool);
    for (void* memory : memory_) check(net_.deregMr(comm_, memory), "deregMr");
    check(net_.closeColl(comm_), "closeColl");
  }

  // Connects and closes. Returns the result of connect.
  Result repeat() {
    listen();
    const Result result = connect();
    if (result != Result::kSuccess) return result;
    allocate();
    finish(allreduce(abi::kFloat32, abi::kSum, 1, 0, false));
    close();
    return result;
  }

  void finalize() { check(net_.finalize(context_), "finalize"); }

 private:
  int rank() const { return star_.rank(); }
  int ranks() const { return star_.ranks(); }
  std::byte* receive() const { return pool_ + kPool / 2; }

  void finish(void* request) {
    expect(request != nullptr, "no request");
    int done = 0x5a5a5a5a, size = -1;
    do check(net_.test(request, &done, &size), "test");
    while (done == 0);
    expect(done == 1 && size >= 0, "test wrote invalid outputs");
    void* flush = this;
    check(net_.iflush(comm_, receive(), size, memory_[1], &flush), "iflush");
    expect(flush == nullptr, "iflush returned a request");
  }

  void* allreduce(int type, int op, std::size_t count, std::size_t at, bool in_place) {
    const ElementType& element_type = kElementTypes[kTypes[type]];
    const std::vector<std::byte> data = elements(rank(), count, element_type, kOperators[kOps[op]].op);
    std::byte* const source = (in_place ? receive() : pool_) + at;
    std::copy(data.begin(), data.end(), source);
    void* request = this;  // stale
    check(in_place ? old_.iallreduce(comm_, source, receive() + at, static_cast<int>(count), type, op, memory_[0],
                                     memory_[1], &request)
                   : net_.iallreduce(comm_, source, receive() + at, count, type, op, memory_[0], memory_[1], &request),
          "iallreduce");
    return request;
  }

  void compare(const char* what, const std::byte* found, const std::vector<std::byte>& expected) {
    ++cases_;
    if (std::equal(expected.begin(), expected.end(), found)) return;
    ++wrong_;
    std::printf("WRONG %s, %zu bytes\n", what, expected.size());
  }

  std::vector<std::byte> sum(int type, int op, std::size_t count) const {
    return reduced(ranks(), count, kElementTypes[kTypes[type]], kOperators[kOps[op]].op);
  }

  void reductions() {
    for (int type = abi::kInt8; type <= abi::kFloat8e5m2; ++type)
      for (int op = abi::kSum; op <= abi::kMin; ++op) {
        int supported = -1;
        check(net_.reduceSupport(type, op, &supported), "reduceSupport");
        expect(supported == (type < abi::kFloat8e4m3 ? 1 : 0), "reduceSupport");
        for (const std::size_t count : {std::size_t{1}, std::size_t{1023}, std::size_t{70000}}) {
          if (supported == 0) continue;
          finish(allreduce(type, op, count, 0, count == 1023));
          compare("allreduce", receive(), sum(type, op, count));
        }
      }
  }

  // Windows that begin and end inside blocks, span several blocks or lie outside the own block.
  void windows() {
    for (const std::size_t block : {std::size_t{4}, std::size_t{5000}, std::size_t{40000}})
      for (const std::size_t window : {block / 4 * 3 + 1, block + 7, block * 9}) {
        gather(net_, block, window);
        gather(old_, block, window);
        scatter(net_, block, window);
        scatter(old_, block, window);
      }
  }

  // Calls `call(begin, bytes, offset of the own part in the own block)` for each window, as NCCL does.
  template <typename Call>
  void for_each_window(std::size_t block, std::size_t window, const Call& call) {
    const std::size_t all = block * static_cast<std::size_t>(ranks());
    const std::size_t own = block * static_cast<std::size_t>(rank());
    for (std::size_t begin = 0; begin < all; begin += window)
      call(begin, std::min(window, all - begin), begin > own && begin < own + block ? begin - own : 0);
  }

  // Elements of one byte.
  template <typename Table>
  void gather(const Table& table, std::size_t block, std::size_t window) {
    const std::size_t all = block * static_cast<std::size_t>(ranks());
    std::vector<std::byte> expected(all);
    for (std::size_t i = 0; i < all; ++i) expected[i] = static_cast<std::byte>(i * 31 + i / 251);
    const auto own = expected.begin() + static_cast<std::ptrdiff_t>(block * static_cast<std::size_t>(rank()));
    std::copy(own, own + static_cast<std::ptrdiff_t>(block), pool_);
    std::fill_n(receive(), all, std::byte{0xee});
    for_each_window(block, window, [&](std::size_t begin, std::size_t bytes, std::size_t part) {
      typename Table::Part parts = {memory_[1], receive() + begin, Size<Table>(bytes)};
      void* request = this;
      check(table.iallgather(comm_, pool_ + part, 1, &parts, block, begin, bytes, memory_[0], &request), "iallgather");
      parts = {};
      finish(request);
    });
    compare("allgather", receive(), expected);
  }

  // Elements of four bytes.
  template <typename Table>
  void scatter(const Table& table, std::size_t block, std::size_t window) {
    const std::size_t count = block * static_cast<std::size_t>(ranks());
    const ElementType& type = kElementTypes[kTypes[abi::kInt32]];
    const std::vector<std::byte> data = elements(rank(), count, type, SHARP_OP_SUM);
    std::copy(data.begin(), data.end(), pool_);
    std::fill_n(receive(), block * 4, std::byte{0xee});
    for_each_window(block * 4, window * 4, [&](std::size_t begin, std::size_t bytes, std::size_t part) {
      typename Table::Part parts = {memory_[0], pool_ + begin, Size<Table>(bytes)};
      void* request = this;
      check(table.ireducescatter(comm_, 1, &parts, receive() + part, block * 4, begin, bytes, abi::kInt32, abi::kSum,
                                 memory_[1], &request),
            "ireducescatter");
      parts = {};
      finish(request);
    });
    const std::vector<std::byte> all = sum(abi::kInt32, abi::kSum, count);
    const auto own = all.begin() + static_cast<std::ptrdiff_t>(block * 4 * static_cast<std::size_t>(rank()));
    compare("reduce-scatter", receive(), {own, own + static_cast<std::ptrdiff_t>(block * 4)});
  }

  // Posts as many requests as fit, then one that must be repeated.
  void pipelined() {
    constexpr std::size_t kRequests = 64, kBytes = 3000 * 4;
    std::vector<void*> requests;
    for (std::size_t i = 0; i < kRequests; ++i)
      requests.push_back(allreduce(abi::kUint32, abi::kMax, 3000, i * kBytes, false));
    expect(allreduce(abi::kUint32, abi::kMax, 1, kRequests * kBytes, false) == nullptr, "65 requests are in flight");
    for (std::size_t i = kRequests; i-- > 0;) {
      finish(requests[i]);
      compare("request", receive() + i * kBytes, sum(abi::kUint32, abi::kMax, 3000));
    }
    finish(allreduce(abi::kUint32, abi::kMax, 1, kRequests * kBytes, false));
    compare("the refused request", receive() + kRequests * kBytes, sum(abi::kUint32, abi::kMax, 1));
  }

  CollNet& net_;
  OldCollNet& old_;
  Star star_;
  void* context_ = nullptr;
  void* listener_ = nullptr;
  void* comm_ = nullptr;
  std::vector<char> handles_;
  std::byte* pool_ = nullptr;
  std::array<void*, 2> memory_ = {};
  void* unknown_ = nullptr;
  int cases_ = 0;
  int wrong_ = 0;
};

int run(char** arguments) {
  const std::string mode = arguments[5];
  try {
    Rank rank(arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]), arguments[4]);
    rank.listen();
    if (mode == "leave") return 0;
    while (mode == "absent") pause();
    const Result result = rank.connect();
    bool right = true;
    if (result == Result::kSuccess) {
      rank.allocate();
      if (mode == "loop") rank.loop();
      right = rank.all();
      rank.close();
    }
    if (mode == "all") {
      rank.repeat();
      const auto before = open_descriptors();
      expect(rank.repeat() == result && rank.repeat() == result, "a later connect has another result");
      // The plugin's threads close sockets that a peer has closed, at an unpredictable time.
      expect(plugfest::wait_until([&] { return open_descriptors() <= before; }), "a descriptor has leaked");
    }
    rank.finalize();
    return result != Result::kSuccess ? 3 : right ? 0 : 1;
  } catch (const CallFailed& call) {
    std::printf("%s returned %d\n", call.function, static_cast<int>(call.code));
    return 4;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: sharp-plugin-check PLUGIN RANK RANKS SOCKET all|join|loop|leave|absent\n");
    return 2;
  }
  return run(argv);
}
