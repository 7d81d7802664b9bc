// Writes on a connection in the background of a test.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "fabric/roce/verbs/testing/verbs_endpoint.h"

namespace plugfest::roce {

/// Writes `number` to the peer's memory and checks that it has arrived. Returns the status of the completion.
inline ibv_wc_status write_number(VerbsEndpoint& from, VerbsEndpoint& to, std::uint32_t number) {
  constexpr std::size_t kOffset = 64;
  std::memcpy(from.memory.data(), &number, sizeof(number));
  EXPECT_EQ(from.post_write(from.segment(0, sizeof(number)), to.address(kOffset), to.mr->rkey), 0);
  const ibv_wc_status status = from.wait_for_completion().status;
  std::uint32_t arrived = 0;
  std::memcpy(&arrived, to.memory.data() + kOffset, sizeof(arrived));
  if (status == IBV_WC_SUCCESS) {
    EXPECT_EQ(arrived, number);
  }
  return status;
}

/// Calls write_number() repeatedly on a thread until destruction or until the test fails.
class BackgroundWrites {
 public:
  BackgroundWrites(VerbsEndpoint& from, VerbsEndpoint& to)
      : thread_([this, &from, &to] {
          while (!stop_ && !testing::Test::HasFailure()) {
            EXPECT_EQ(write_number(from, to, writes_), IBV_WC_SUCCESS);
            ++writes_;
          }
        }) {}
  ~BackgroundWrites() {
    stop_ = true;
    thread_.join();
  }
  BackgroundWrites(const BackgroundWrites&) = delete;
  BackgroundWrites& operator=(const BackgroundWrites&) = delete;

  /// Returns when at least one write has started and completed after the call.
  void wait_for_progress() const {
    const std::uint32_t before = writes_;
    while (writes_ < before + 2 && !testing::Test::HasFailure()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> writes_{0};
  std::thread thread_;
};

}  // namespace plugfest::roce
