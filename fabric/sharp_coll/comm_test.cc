#include "fabric/sharp_coll/comm.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "fabric/sharp_coll/failure.h"
#include "fabric/sharp_coll/star.h"
#include "fabric/sharp_coll/testing/elements.h"
#include "fabric/sharp_coll/testing/loopback_tree.h"
#include "fabric/system/testing.h"

namespace plugfest::sharp_coll {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::LoopbackTree;
using ::testing::StartsWith;
using Bytes = std::vector<std::byte>;

const testing::ElementType& kType = testing::kElementTypes[0];  // u32

CommEnvironment environment(const std::string& manager) {
  CommEnvironment result;
  result.settings.manager = manager;
  result.address.s_addr = htonl(INADDR_LOOPBACK);
  return result;
}

// Runs `body` for each rank in a thread. Returns what each rank printed: a text, or the code and text of a Failure.
std::vector<std::string> on_ranks(int ranks, const std::function<CommEnvironment(int)>& environment_of,
                                  const std::function<std::string(Comm&)>& body) {
  const ScratchFolder folder;
  std::vector<std::string> outputs(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::string& output = outputs[static_cast<std::size_t>(rank)];
      try {
        Star star(rank, ranks, folder / "star");
        Comm comm(environment_of(rank), OutOfBand(Star::collectives(), &star, {rank, ranks}), Log(-1, rank));
        output = body(comm);
      } catch (const Failure& failure) {
        output = std::to_string(failure.code()) + " " + failure.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outputs;
}

std::vector<std::string> on_ranks(int ranks, const LoopbackTree& tree, const std::function<std::string(Comm&)>& body) {
  const CommEnvironment same = environment(tree.manager());
  return on_ranks(
      ranks, [&](int) { return same; }, body);
}

Transfer sum(Bytes& data) {
  Transfer transfer;
  transfer.dtype = kType.dtype;
  transfer.op = SHARP_OP_SUM;
  transfer.element_bytes = kType.bytes;
  transfer.bytes = data.size();
  transfer.source = {data.data(), 0, data.size()};
  transfer.destination = {data.data(), 0, data.size()};
  return transfer;
}

int finish(Comm& comm, const Operation& operation) {
  const auto finished = [&] {
    comm.progress();
    return operation.finished();
  };
  EXPECT_TRUE(wait_until(finished, std::chrono::minutes(1), std::chrono::microseconds(0)));
  return operation.status;
}

std::string sums(Comm& comm) {
  for (const std::size_t count : {0u, 1u, 7u, 50'000u}) {
    Bytes data = testing::elements(comm.place().rank, count, kType, SHARP_OP_SUM);
    if (finish(comm, *comm.post(sum(data))) != SHARP_COLL_SUCCESS) return "failed";
    if (data != testing::reduced(comm.place().size, count, kType, SHARP_OP_SUM)) return "wrong";
  }
  return "right";
}

TEST(SharpComm, SumsOverSockets) {
  LoopbackTree tree;
  EXPECT_THAT(on_ranks(4, tree, sums), Each("right"));
  EXPECT_EQ(tree.await_leaves(), 4);
}

TEST(SharpComm, SumsWithLoss) {
  LoopbackTree tree({.loss = 0.02});
  EXPECT_THAT(on_ranks(3, tree, sums), Each("right"));
}

TEST(SharpComm, OneRankNeedsNoManager) {
  EXPECT_THAT(on_ranks(
                  1, [](int) { return environment(""); }, sums),
              Each("right"));
}

TEST(SharpComm, ARefusedGroupFailsOnAllRanks) {
  LoopbackTree tree({.refuse_with = SHARP_COLL_EQUOTA});
  EXPECT_THAT(on_ranks(3, tree, sums), Each(HasSubstr("no group for 3 ranks: the test refuses it")));
  EXPECT_THAT(on_ranks(3, tree, sums), Each(StartsWith("-7 ")));
}

TEST(SharpComm, ATakenLockIsAnErrorOnlyWithLockOnCommInit) {
  LoopbackTree tree({.sat_is_locked = true});
  CommEnvironment sat = environment(tree.manager());
  sat.settings.enable_sat = true;
  EXPECT_THAT(on_ranks(
                  2, [&](int) { return sat; }, sums),
              Each("right"));
  sat.settings.lock_on_comm_init = true;
  EXPECT_THAT(on_ranks(
                  2, [&](int) { return sat; }, sums),
              Each(StartsWith("-18 ")));
}

TEST(SharpComm, AllRanksFailWithoutAManager) {
  EXPECT_THAT(on_ranks(
                  2, [](int) { return environment(""); }, sums),
              Each(HasSubstr("no aggregation manager: PLUGFEST_SHARP_MANAGER is not set")));
  EXPECT_THAT(
      on_ranks(
          2, [](int) { return environment("127.0.0.1:1"); }, sums),
      Each(AllOf(StartsWith("-8 "), HasSubstr("aggregation manager 127.0.0.1:1: cannot connect: Connection refused"))));
  EXPECT_THAT(on_ranks(
                  2, [](int) { return environment("here"); }, sums),
              Each(HasSubstr("PLUGFEST_SHARP_MANAGER=here: expected ADDRESS:PORT")));
}

TEST(SharpComm, ARankWithoutItsAddressFailsAllRanks) {
  LoopbackTree tree;
  const auto environment_of = [&](int rank) {
    CommEnvironment result = environment(tree.manager());
    if (rank == 2) inet_pton(AF_INET, "192.0.2.1", &result.address);
    return result;
  };
  const std::vector<std::string> outputs = on_ranks(3, environment_of, sums);
  EXPECT_THAT(outputs, Each(AllOf(StartsWith("-9 "), HasSubstr("cannot open a UDP socket at 192.0.2.1: "))));
  EXPECT_THAT(outputs[0], StartsWith("-9 rank 2: "));
}

TEST(SharpComm, OperationsFailWhenTheManagerDies) {
  LoopbackTree tree;
  // Rank 1 posts nothing before the operation of rank 0 has failed, so that this operation cannot complete.
  std::latch failed(1);
  EXPECT_THAT(on_ranks(2, tree,
                       [&](Comm& comm) {
                         Bytes data(4000);
                         if (comm.place().rank == 0) {
                           const auto operation = comm.post(sum(data));
                           comm.progress();
                           tree.die();
                           const int status = finish(comm, *operation);
                           failed.count_down();
                           if (status != SHARP_COLL_ERROR) return std::string("succeeded");
                         }
                         failed.wait();
                         while (true) {
                           comm.progress();
                           comm.post(sum(data));
                         }
                       }),
              Each(AllOf(StartsWith("-1 the communicator has failed: aggregation manager 127.0.0.1:"),
                         HasSubstr("it has ended"))));
}

TEST(SharpComm, OperationsFailAfterCollTimeout) {
  LoopbackTree tree;
  CommEnvironment limited = environment(tree.manager());
  limited.result_timeout = 1'000'000;
  EXPECT_THAT(on_ranks(
                  2, [&](int) { return limited; },
                  [&](Comm& comm) {
                    Bytes data(4);
                    if (comm.place().rank != 0) return std::string("-1");
                    return std::to_string(finish(comm, *comm.post(sum(data))));
                  }),
              Each("-1"));
}

TEST(SharpComm, LeavingEndsOperations) {
  LoopbackTree tree;
  EXPECT_THAT(
      on_ranks(2, tree,
               [&](Comm& comm) {
                 Bytes data(4);
                 const auto operation = comm.place().rank == 0 ? comm.post(sum(data)) : nullptr;
                 comm.leave();
                 return std::string(operation == nullptr || operation->status == SHARP_COLL_ERROR ? "ended" : "?");
               }),
      Each("ended"));
  EXPECT_EQ(tree.await_leaves(), 2);
}

TEST(SharpComm, LeavingDuringAnOperationFailsItOnTheOthers) {
  LoopbackTree tree;
  // Rank 2 posts nothing before the operation of rank 1 has failed, so that this operation cannot complete.
  std::latch failed(1);
  EXPECT_THAT(on_ranks(3, tree,
                       [&](Comm& comm) {
                         Bytes data(4);
                         const int rank = comm.place().rank;
                         const auto operation = rank == 2 ? nullptr : comm.post(sum(data));
                         if (rank == 0) comm.leave();
                         const int status = rank == 1 ? finish(comm, *operation) : SHARP_COLL_ERROR;
                         if (rank == 1) failed.count_down();
                         failed.wait();
                         return std::to_string(status);
                       }),
              Each("-1"));
}

TEST(Star, RefusesTwoRanksWithOneNumber) {
  const ScratchFolder folder;
  const std::string path = folder / "star";
  std::vector<std::thread> ranks;
  for (int i = 0; i < 2; ++i) ranks.emplace_back([&] { Star(1, 3, path); });
  EXPECT_EQ(error_message([&] { Star(0, 3, path); }), path + ": two ranks have the number 1");
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace plugfest::sharp_coll
