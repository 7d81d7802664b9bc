#include "fabric/system/process_handlers.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "fabric/system/process.h"
#include "fabric/system/testing.h"

namespace plugfest {
namespace {

TEST(ForkSafeMutex, IsFreeInAChildAndWhatItGuardsIsConsistent) {
  ForkSafeMutex mutex;
  int first = 0, second = 0;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (; !stop; std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      ++first;
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      ++second;
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(!mutex.try_lock() ? 1 : first != second ? 2 : 0);
    EXPECT_EQ(await_exit(child), 0);
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(ForkSafeMutex, IsFreeInTheChildOfAChild) {
  ForkSafeMutex mutex;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      for (; !stop; std::this_thread::yield()) {
        const std::lock_guard lock(mutex);
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
      }
    });
    int failures = 0;
    for (int i = 0; i < 20; ++i) {
      const pid_t grandchild = fork();
      if (grandchild == 0) _exit(mutex.try_lock() ? 0 : 1);
      failures += await_exit(grandchild);
    }
    stop = true;
    writer.join();
    _exit(failures);
  }
  EXPECT_EQ(await_exit(child), 0);
}

// An object that is made later may use an older one while it holds its own lock.
TEST(ForkSafeMutex, IsLockedBeforeOlderOnes) {
  ForkSafeMutex older, newer;
  std::atomic<bool> stop = false;
  std::thread user([&] {
    for (; !stop; std::this_thread::yield()) {
      const std::lock_guard outer(newer);
      std::this_thread::yield();
      const std::lock_guard inner(older);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(newer.try_lock() && older.try_lock() ? 0 : 1);
    EXPECT_EQ(await_exit(child), 0);
  }
  stop = true;
  user.join();
}

}  // namespace
}  // namespace plugfest
