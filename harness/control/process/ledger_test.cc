#include "harness/control/process/ledger.h"

#include <gtest/gtest.h>

namespace plugfest::control {
namespace {

TEST(Ledger, ForgetsWhatACommHasOpenedWhenItIsClosed) {
  Ledger ledger;
  ledger.comms = {{1, wire::CommKind::kSend}, {2, wire::CommKind::kRecv}};
  ledger.registrations = {{1, 10}, {1, 10}, {2, 20}};
  ledger.posted(1, 100);
  ledger.posted(2, 200);
  ledger.deregistered(1, 10);
  EXPECT_EQ(ledger.registrations.count(1), 1u) << "one of two registrations with the same handle";
  ledger.closed(wire::CommKind::kSend, 1);
  EXPECT_EQ(ledger.comms.count(1) + ledger.registrations.count(1) + ledger.last_request.count(1), 0u);
  EXPECT_EQ(ledger.requests, (std::multimap<std::uint64_t, std::uint64_t>{{200, 2}}));
  ledger.done(200);
  EXPECT_TRUE(ledger.requests.empty());
}

TEST(Ledger, KnowsNoRequestForARefusedPost) {
  Ledger ledger;
  ledger.posted(1, 0);
  EXPECT_TRUE(ledger.requests.empty());
  EXPECT_EQ(ledger.last_request.at(1), 0u);
}

TEST(Ledger, ForgetsTheChildrenOfAClosedObject) {
  Ledger ledger;
  ledger.objects = {{.value = 1, .name = "collComm", .closed_by = "closeColl"},
                    {.value = 2, .name = "mhandle", .closed_by = "deregMr", .arguments = {{"collComm", 1}}},
                    {.value = 1, .name = "listenComm", .closed_by = "closeListen"},
                    {.value = 3, .name = "collComm", .closed_by = "closeColl"}};
  ledger.closed_by("deregMr", 9);
  EXPECT_EQ(ledger.objects.size(), 4u);
  EXPECT_EQ(ledger.oldest("collComm")->value, 1u);
  ledger.closed_by("closeColl", 1);
  ASSERT_EQ(ledger.objects.size(), 2u);
  EXPECT_EQ(ledger.objects[0].name, "listenComm");
  EXPECT_EQ(ledger.oldest("collComm")->value, 3u);
  EXPECT_EQ(ledger.oldest("mhandle"), nullptr);
}

TEST(Ledger, DescribesAddressesInAndNearMemoryOfTheRule) {
  Ledger ledger;
  ledger.memory.push_back({.mapping = {.address = 0x10000}, .size = 1000});
  EXPECT_EQ(ledger.describe(0x10000 + 5), ", byte 5 of 1000 bytes of memory that the rule has made inaccessible");
  EXPECT_EQ(ledger.describe(0x10000 + 1003), ", 3 bytes past the end of 1000 bytes of memory");
  EXPECT_EQ(ledger.describe(0x10000 - 1), ", 1 byte before 1000 bytes of memory");
  EXPECT_EQ(ledger.describe(0x100000), "");
}

}  // namespace
}  // namespace plugfest::control
