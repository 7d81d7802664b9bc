// For tests: a connection at work while something happens to others.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "fabric/roce/verbs/testing/end.h"

namespace plugfest::roce {

/// Writes a number into the other end's memory and looks whether it is there.
inline ibv_wc_status write_number(End& from, End& to, std::uint32_t number) {
  std::memcpy(from.memory.data(), &number, sizeof(number));
  ibv_sge segment = {reinterpret_cast<std::uintptr_t>(from.memory.data()), sizeof(number), from.mr->lkey};
  ibv_send_wr request = {};
  request.sg_list = &segment;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {reinterpret_cast<std::uintptr_t>(to.memory.data()) + 64, to.mr->rkey};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(from.qp, &request, &bad), 0);
  const ibv_wc_status status = from.wait_for_completion().status;
  std::uint32_t arrived = 0;
  std::memcpy(&arrived, to.memory.data() + 64, sizeof(arrived));
  if (status == IBV_WC_SUCCESS) {
    EXPECT_EQ(arrived, number);
  }
  return status;
}

/// Writes on a thread of its own, each looked at on the other side, until it is told to end.
class Traffic {
 public:
  Traffic(End& from, End& to)
      : thread_([this, &from, &to] {
          while (!stop_ && !testing::Test::HasFailure()) {
            EXPECT_EQ(write_number(from, to, rounds_), IBV_WC_SUCCESS);
            ++rounds_;
          }
        }) {}
  ~Traffic() {
    stop_ = true;
    thread_.join();
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void wait_for_more() const {
    const std::uint32_t before = rounds_;
    while (rounds_ < before + 2 && !testing::Test::HasFailure()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> rounds_{0};
  std::thread thread_;
};

}  // namespace plugfest::roce
