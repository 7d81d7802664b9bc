#include "fabric/system/process_handlers.h"

#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "fabric/system/process.h"
#include "fabric/system/testing.h"

namespace plugfest {
namespace {

// Calls a function on a thread, again and again, while the object exists.
class Repeating {
 public:
  explicit Repeating(std::function<void()> function)
      : thread_([this, function = std::move(function)] {
          for (; !stop_; std::this_thread::yield()) function();
        }) {}
  ~Repeating() {
    stop_ = true;
    thread_.join();
  }
  Repeating(const Repeating&) = delete;
  Repeating& operator=(const Repeating&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void yield_often() {
  for (int i = 0; i < 100; ++i) std::this_thread::yield();
}

TEST(ForkSafeMutex, IsFreeInAChildAndWhatItGuardsIsConsistent) {
  ForkSafeMutex mutex;
  int first = 0, second = 0;
  std::optional<Repeating> writer(std::in_place, [&] {
    const std::lock_guard lock(mutex);
    ++first;
    yield_often();
    ++second;
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(!mutex.try_lock() ? 1 : first != second ? 2 : 0);
    EXPECT_EQ(await_exit(child), 0);
  }
  writer.reset();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(ForkSafeMutex, IsFreeInTheChildOfAChild) {
  ForkSafeMutex mutex;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits
    const Repeating user([&] {
      const std::lock_guard lock(mutex);
      yield_often();
    });
    int failures = 0;
    for (int i = 0; i < 20; ++i) {
      const pid_t grandchild = fork();
      if (grandchild == 0) _exit(mutex.try_lock() ? 0 : 1);
      failures += await_exit(grandchild);
    }
    _exit(failures);
  }
  EXPECT_EQ(await_exit(child), 0);
}

// An object that is made later may use an older one while it holds its own lock.
TEST(ForkSafeMutex, IsLockedBeforeOlderOnes) {
  ForkSafeMutex older, newer;
  const Repeating user([&] {
    const std::lock_guard outer(newer);
    std::this_thread::yield();
    const std::lock_guard inner(older);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(newer.try_lock() && older.try_lock() ? 0 : 1);
    EXPECT_EQ(await_exit(child), 0);
  }
}

}  // namespace
}  // namespace plugfest
