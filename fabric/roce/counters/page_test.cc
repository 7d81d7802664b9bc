#include "fabric/roce/counters/page.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "fabric/system/descriptor_passing.h"
#include "fabric/system/process.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

namespace fs = std::filesystem;

class CounterPage : public testing::Test {
 protected:
  CounterPage() { make_counter_files(device_); }

  std::string text(const std::string& file) const { return read_file(device_ / "ports/1" / file); }

  ScratchFolder root_;
  const fs::path device_ = root_ / "roce_eth0";
};

TEST_F(CounterPage, StartsWithOneFilePerCounterAtZero) {
  EXPECT_EQ(text("counters/port_xmit_data"), "0\n");
  for (const CounterFile& file : counter_files())
    EXPECT_EQ(text(std::string(file.folder) + "/" + file.name), "0\n") << file.name;
}

TEST_F(CounterPage, PublishesTheSumOverAllProcesses) {
  CounterSlot first(device_), second(device_);
  ASSERT_TRUE(first.shared() && second.shared());
  first.counters().sent_packets = 3;
  first.counters().sent_bytes = 4000;
  second.counters().sent_packets = 4;
  EXPECT_EQ(text("counters/port_xmit_packets"), "0\n");
  EXPECT_EQ(first.publish(0), CounterSlot::Published::kDone);
  EXPECT_EQ(text("counters/port_xmit_packets"), "7\n");
  EXPECT_EQ(text("hw_counters/sent_pkts"), "7\n");
  EXPECT_EQ(text("counters/port_xmit_data"), "1000\n");
  EXPECT_EQ(first.own().sent_packets, 3u);
}

TEST_F(CounterPage, PublishesAtMostOncePerInterval) {
  CounterSlot first(device_), second(device_);
  constexpr std::int64_t kHour = 3'600'000'000'000;
  EXPECT_EQ(first.publish(0), CounterSlot::Published::kDone);
  second.counters().timeouts = 1;
  EXPECT_EQ(second.publish(kHour), CounterSlot::Published::kNotYet);
  EXPECT_EQ(second.publish(0), CounterSlot::Published::kDone);
  EXPECT_EQ(text("hw_counters/local_ack_timeout_err"), "1\n");
}

TEST_F(CounterPage, KeepsTheCountersOfAKilledProcess) {
  const pid_t child = fork();
  if (child == 0) {
    CounterSlot slot(device_);
    slot.counters().received_packets = 5;
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_counter_page(device_)->received_packets, 5u);
  CounterSlot next(device_);  // reuses the slot
  EXPECT_EQ(next.own(), Counters{});
  ++next.counters().received_packets;
  EXPECT_EQ(next.own().received_packets, 1u);
  EXPECT_EQ(read_counter_page(device_)->received_packets, 6u);
}

TEST_F(CounterPage, CountsPrivatelyWithoutAPageOrAFreeSlot) {
  std::vector<std::unique_ptr<CounterSlot>> slots;
  for (int i = 0; i < 256; ++i) slots.push_back(std::make_unique<CounterSlot>(device_));
  EXPECT_TRUE(slots.back()->shared());
  for (const fs::path& folder : {device_, root_ / "absent", fs::path()}) {
    CounterSlot slot(folder);
    EXPECT_FALSE(slot.shared());
    slot.counters().timeouts = 1;
    EXPECT_EQ(slot.own().timeouts, 1u);
    EXPECT_EQ(slot.publish(0), CounterSlot::Published::kImpossible);
  }
}

TEST_F(CounterPage, GivesTheSlotToTheNextProcessAlthoughAChildOfTheOwnerLives) {
  std::vector<std::unique_ptr<CounterSlot>> slots;
  for (int i = 0; i < 256; ++i) slots.push_back(std::make_unique<CounterSlot>(device_));
  auto [parent_end, child_end] = make_socket_pair("make a socket pair");
  const pid_t child = fork();
  if (child == 0) {
    parent_end.close();
    slots.back()->close_in_child();
    ++slots.back()->counters().timeouts;  // harmless
    char end = 0;
    _exit(write(child_end.get(), &end, 1) == 1 && read(child_end.get(), &end, 1) == 0 ? 0 : 1);
  }
  child_end.close();
  char closed = 0;
  ASSERT_EQ(read(parent_end.get(), &closed, 1), 1);
  slots.pop_back();
  EXPECT_TRUE(CounterSlot(device_).shared());
  EXPECT_EQ(read_counter_page(device_)->timeouts, 0u);
  parent_end.close();
  EXPECT_EQ(await_exit(child), 0);
}

TEST_F(CounterPage, AnnouncesChangesToAllProcesses) {
  const CounterSlot first(device_), second(device_);
  const std::uint64_t before = first.changes();
  announce_change(device_);
  EXPECT_NE(first.changes(), before);
  EXPECT_EQ(first.changes(), second.changes());
}

TEST_F(CounterPage, KeepsItsCountersWhenCreatedAgain) {
  CounterSlot slot(device_);
  slot.counters().icrc_errors = 9;
  make_counter_files(device_);
  EXPECT_EQ(text("hw_counters/rx_icrc_encapsulated"), "9\n");
}

TEST_F(CounterPage, FormatsATableWithOneLinePerDevice) {
  CounterSlot slot(device_);
  slot.counters().sent_packets = 12;
  slot.counters().received_rnr_naks = 345;
  const std::vector<DeviceCounters> devices = read_counters(root_);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].device, "roce_eth0");
  const std::string table = counter_table(devices);
  EXPECT_EQ(table,
            "device     packets out  MB out  packets in  MB in  RNR in\n"
            "roce_eth0           12       0           0      0     345\n");
}

TEST_F(CounterPage, RepeatsATableThatWouldExceed80Columns) {
  CounterSlot slot(device_);
  Counters& counters = slot.counters();
  counters.duplicate_requests = 1;
  counters.out_of_sequence = 2;
  counters.icrc_errors = 3;
  EXPECT_EQ(counter_table(read_counters(root_)),
            "device     packets out  MB out  packets in  MB in  duplicate  out of order\n"
            "roce_eth0            0       0           0      0          1             2\n"
            "\n"
            "device     ICRC errors\n"
            "roce_eth0            3\n");
}

}  // namespace
}  // namespace plugfest::roce
