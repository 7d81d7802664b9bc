// GIN and RMA on the fake NIC.
#include "plugins/mesh/one_sided/one_sided.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "plugins/mesh/testing/net_fixture.h"

namespace mesh::one_sided {
namespace {

using ::testing::HasSubstr;

// A rank with its collComm, a context, and 4,096 bytes that all ranks have registered.
struct Rank {
  void connect(std::vector<HandleBytes>& handles, std::size_t number, void* listener) {
    std::vector<void*> pointers;
    for (HandleBytes& handle : handles) pointers.push_back(handle.data());
    ASSERT_EQ(one_sided::connect(pointers.data(), static_cast<int>(handles.size()), static_cast<int>(number), listener,
                                 0, &comm),
              Result::kSuccess);
    ASSERT_EQ(create_context(comm, {.contexts = 2}, -1, &context, nullptr), Result::kSuccess);
    ASSERT_EQ(reg_mr_sym(comm, memory.data(), sizeof memory, abi::kPointerHost, 0, -1, &mhandle, nullptr),
              Result::kSuccess);
  }
  void close() {
    EXPECT_EQ(dereg_mr_sym(comm, mhandle), Result::kSuccess);
    EXPECT_EQ(destroy_context(context), Result::kSuccess);
    EXPECT_EQ(close_coll(comm), Result::kSuccess);
  }

  // The first word goes to word `to` of a rank.
  Transfer transfer(std::uint32_t rank, std::size_t to, std::size_t size = 8) {
    return {.context = 1,
            .local_offset = 0,
            .local_memory = mhandle,
            .size = size,
            .remote_offset = 8 * to,
            .remote_memory = mhandle,
            .rank = rank};
  }
  Signal signal(std::size_t word, std::uint64_t value) {
    return {{static_cast<const Window*>(mhandle), 8 * word}, value, abi::kSignalAdd};
  }
  Result put(const Transfer& transfer, const Signal* signal = nullptr) {
    return iput(context, transfer, signal, &request);
  }
  Result wait() {
    int done = 0;
    Result result = Result::kSuccess;
    while (done == 0 && result == Result::kSuccess) result = test(comm, request, &done);
    return result;
  }

  alignas(8) std::array<std::uint64_t, 512> memory = {};
  void* comm = nullptr;
  void* context = nullptr;
  void* mhandle = nullptr;
  void* request = nullptr;
};

class OneSided : public NetTest {
 protected:
  // A team of one rank.
  OneSided() {
    init();
    OpenListener listener(context_);
    std::vector<HandleBytes> handles = {listener.bytes};
    rank_.connect(handles, 0, listener.comm);
    g_warnings.clear();
  }
  ~OneSided() override {
    if (rank_.comm != nullptr) rank_.close();
  }

  Rank rank_;
};

TEST_F(OneSided, PutsGetsAndSignalsTheOwnRank) {
  rank_.memory[0] = 42;
  const Signal signal = rank_.signal(9, 5);
  ASSERT_EQ(rank_.put(rank_.transfer(0, 3), &signal), Result::kSuccess);
  EXPECT_EQ(rank_.wait(), Result::kSuccess);
  EXPECT_EQ(rank_.memory[3], 42u);
  EXPECT_EQ(rank_.memory[9], 5u);
  rank_.memory[7] = 77;
  ASSERT_EQ(iget(rank_.context, rank_.transfer(0, 7), &rank_.request), Result::kSuccess);
  EXPECT_EQ(rank_.wait(), Result::kSuccess);
  EXPECT_EQ(rank_.memory[0], 77u);
}

TEST_F(OneSided, FlushesWhatIsInFlight) {
  fake::nic().lose_acknowledgements = true;
  ASSERT_EQ(rank_.put(rank_.transfer(0, 3)), Result::kSuccess);
  void* flush = nullptr;
  ASSERT_EQ(iflush(rank_.context, 1, 0, &flush), Result::kSuccess);
  EXPECT_EQ(flush, rank_.request);
  int done = 1;
  EXPECT_EQ(test(rank_.comm, flush, &done), Result::kSuccess);
  EXPECT_EQ(done, 0);
  ASSERT_EQ(iflush(rank_.context, 0, 0, &flush), Result::kSuccess);
  EXPECT_EQ(flush, nullptr) << "nothing is in flight on context 0";
}

TEST_F(OneSided, RefusesWhatIsOutsideOfTheMemory) {
  Transfer behind = rank_.transfer(0, 511, 16);
  EXPECT_EQ(rank_.put(behind), Result::kInvalidArgument);
  EXPECT_THAT(g_warnings.back(), HasSubstr("memory of rank 0: bytes 4088 to 4104 of a registration of 4096 bytes"));
  behind = rank_.transfer(0, 0);
  behind.local_offset = UINT64_MAX - 3;
  EXPECT_EQ(rank_.put(behind), Result::kInvalidArgument);
  EXPECT_EQ(rank_.put(rank_.transfer(1, 0)), Result::kInvalidArgument);
  EXPECT_THAT(g_warnings.back(), HasSubstr("context 1, rank 1: there are 2 contexts and 1 ranks"));
  Signal signal = rank_.signal(0, 1);
  signal.place.offset = 4;
  EXPECT_EQ(rank_.put(rank_.transfer(0, 1), &signal), Result::kInvalidArgument);
  EXPECT_THAT(g_warnings.back(), HasSubstr("a signal at offset 4, not a multiple of 8"));
  signal = rank_.signal(0, 1);
  signal.op = 7;
  EXPECT_EQ(rank_.put(rank_.transfer(0, 1), &signal), Result::kInvalidArgument);
  EXPECT_THAT(g_warnings.back(), HasSubstr("signal operation 7 does not exist"));
  EXPECT_EQ(rank_.memory[1], 0u) << "nothing was put";
}

TEST_F(OneSided, LimitsTheRequestsInFlight) {
  fake::nic().lose_acknowledgements = true;
  for (std::uint32_t i = 0; i < Connection::kMaxRequests; ++i)
    ASSERT_EQ(rank_.put(rank_.transfer(0, 1)), Result::kSuccess);
  EXPECT_EQ(rank_.put(rank_.transfer(0, 1)), Result::kInternalError);
  EXPECT_EQ(rank_.request, nullptr);
  EXPECT_THAT(g_warnings.back(), HasSubstr("256 requests to rank 0 are in flight, the maximum: 32 x maxRecvs"));
}

TEST_F(OneSided, ReportsAFailedConnectionForEver) {
  bool has_error = true;
  EXPECT_EQ(query_last_error(rank_.context, &has_error), Result::kSuccess);
  EXPECT_FALSE(has_error);
  fake::nic().lose_packets = true;
  ASSERT_EQ(rank_.put(rank_.transfer(0, 1)), Result::kSuccess);
  EXPECT_EQ(rank_.wait(), Result::kRemoteError);
  EXPECT_THAT(g_warnings.back(), HasSubstr("the connection to rank 0 through fake0 failed"));
  fake::nic().lose_packets = false;
  EXPECT_EQ(rank_.put(rank_.transfer(0, 1)), Result::kRemoteError);
  EXPECT_EQ(progress(rank_.context), Result::kRemoteError);
  EXPECT_EQ(query_last_error(rank_.context, &has_error), Result::kSuccess);
  EXPECT_TRUE(has_error);
  EXPECT_EQ(query_last_error(&has_error, &has_error), Result::kSuccess);
  EXPECT_FALSE(has_error) << "of a pointer that is not a context, as NCCL 2.30.3 passes";
}

TEST_F(OneSided, RefusesInvalidContextsAndHandles) {
  void* context = kStale;
  EXPECT_EQ(create_context(rank_.comm, {.contexts = 0}, -1, &context, nullptr), Result::kInvalidArgument);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(create_context(rank_.comm, {.rank_stride = 2}, -1, &context, nullptr), Result::kInvalidArgument);
  EXPECT_THAT(g_warnings.back(), HasSubstr("the rank stride is 2, expected a divisor of 1"));
  EXPECT_EQ(create_context(&context, {}, -1, &context, nullptr), Result::kInvalidArgument);
  int done = 1;
  EXPECT_EQ(test(rank_.comm, &done, &done), Result::kInvalidArgument);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(dereg_mr_sym(rank_.comm, &context), Result::kInvalidArgument);
  EXPECT_EQ(close_coll(&context), Result::kInvalidArgument);
  EXPECT_EQ(reg_mr_sym(rank_.comm, &context, 8, 64, 0, -1, &context, nullptr), Result::kInvalidArgument);
  EXPECT_NE(default_context(rank_.comm), nullptr) << "the first context that is open";
}

TEST_F(OneSided, TwoRanksInThreadsSignalEachOther) {
  constexpr std::uint64_t kSignals = 1000;
  std::array<OpenListener, 2> listeners = {OpenListener(context_), OpenListener(context_)};
  const std::vector<HandleBytes> handles = {listeners[0].bytes, listeners[1].bytes};
  std::array<Rank, 2> ranks;
  const auto run = [&](std::uint32_t own) {
    Rank& rank = ranks[own];
    std::vector<HandleBytes> copy = handles;
    rank.connect(copy, own, listeners[own].comm);
    const Signal signal = rank.signal(1, 3);
    for (std::uint64_t i = 0; i < kSignals; ++i) {
      ASSERT_EQ(rank.put(rank.transfer(1 - own, 0, 0), &signal), Result::kSuccess);
      ASSERT_EQ(rank.wait(), Result::kSuccess);
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  for (Rank& rank : ranks) {
    EXPECT_EQ(rank.memory[1], 3 * kSignals);
    rank.close();
  }
}

// Calls connect for a collComm that never exists.
Result failed_connect(std::vector<HandleBytes> handles, int rank, void* listener) {
  std::vector<void*> pointers;
  for (HandleBytes& handle : handles) pointers.push_back(handle.data());
  void* comm = kStale;
  const Result result = one_sided::connect(pointers.data(), static_cast<int>(handles.size()), rank, listener, 0, &comm);
  EXPECT_EQ(comm, nullptr);
  return result;
}

// The handle of a rank that never answers.
Handle silent_handle(const Socket& socket) {
  return {.port = port_of(socket),
          .secret = Secret::make(),
          .addresses = {{{parse_address("127.0.0.1"), 8}, true}},
          .address_count = 1};
}

TEST_F(OneSided, AFailureOfOneRankInConnectFailsAll) {
  std::array<OpenListener, 2> listeners = {OpenListener(context_), OpenListener(context_)};
  const std::vector<HandleBytes> handles = {listeners[0].bytes, listeners[1].bytes};
  std::array<Result, 2> results = {};
  std::thread other([&] { results[1] = failed_connect({handles[0], HandleBytes{}}, 1, listeners[1].comm); });
  results[0] = failed_connect(handles, 0, listeners[0].comm);
  other.join();
  EXPECT_EQ(results[0], Result::kRemoteError);
  EXPECT_EQ(results[1], Result::kInvalidArgument);
}

TEST_F(OneSided, ConnectNoticesTheEndOfARankThatDoesNotAnswer) {
  OpenListener listener(context_);
  const Socket silent = *listen_on(parse_address("127.0.0.1"), 0);
  std::vector<HandleBytes> handles = {listener.bytes, {}};
  encode_handle(silent_handle(silent), handles[1]);
  Result result = Result::kSuccess;
  std::thread rank([&] { result = failed_connect(handles, 0, listener.comm); });
  void* send = nullptr;
  while (send == nullptr) ASSERT_EQ(listener.connect(&send), Result::kSuccess);
  EXPECT_EQ(net::close_send(send), Result::kSuccess);
  rank.join();
  EXPECT_EQ(result, Result::kRemoteError);
  EXPECT_THAT(g_warnings.back(), HasSubstr("a rank of the collComm has ended before all ranks were connected"));
}

TEST_F(OneSided, ConnectHasATimeLimit) {
  OpenListener listener(context_);
  const Socket silent = *listen_on(parse_address("127.0.0.1"), 0);
  State& state = State::get();
  try {
    const Team team(state, {listener.handle(), silent_handle(silent)}, 0, listener.comm, state.transport(nullptr),
                    1000);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "connect: no answer from rank 1 of 2 after 1 s: it did not call connect, or is blocked: see its log");
  }
}

TEST_F(OneSided, AFailureOfOneRankFailsAll) {
  std::array<OpenListener, 2> listeners = {OpenListener(context_), OpenListener(context_)};
  const std::vector<HandleBytes> handles = {listeners[0].bytes, listeners[1].bytes};
  std::array<Rank, 2> ranks;
  std::array<Result, 2> results = {};
  const auto run = [&](std::uint32_t own) {
    std::vector<HandleBytes> copy = handles;
    ranks[own].connect(copy, own, listeners[own].comm);
    std::uint64_t other_memory = 0;
    void* handle = nullptr;
    // The NIC takes no DMA-BUF, which rank 0 does not know.
    const int descriptor = own == 1 ? 12345 : -1;
    results[own] = reg_mr_sym(ranks[own].comm, &other_memory, 8, abi::kPointerHost, 0, descriptor, &handle, nullptr);
    EXPECT_EQ(handle, nullptr);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(results[0], Result::kRemoteError);
  EXPECT_EQ(results[1], Result::kSystemError);
  for (Rank& rank : ranks) rank.close();
}

}  // namespace
}  // namespace mesh::one_sided
