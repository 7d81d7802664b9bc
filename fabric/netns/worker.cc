#include "fabric/netns/worker.h"

#include <exception>

namespace plugfest::netns {

// Exists on the stack of run(). Guarded by the mutex except while the thread runs the function.
struct Worker::Task {
  const std::function<void()>& function;
  std::exception_ptr failure = nullptr;
  bool finished = false;
};

Worker::Worker() : thread_([this] { work(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  task_added_.notify_one();
  thread_.join();
}

void Worker::run(const std::function<void()>& function) {
  Task task = {function};
  {
    std::unique_lock lock(mutex_);
    tasks_.push_back(&task);
    task_added_.notify_one();
    task_finished_.wait(lock, [&] { return task.finished; });
  }
  if (task.failure) std::rethrow_exception(task.failure);
}

void Worker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    task_added_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task& task = *tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    try {
      task.function();
    } catch (...) {
      task.failure = std::current_exception();
    }
    lock.lock();
    task.finished = true;
    task_finished_.notify_all();
  }
}

}  // namespace plugfest::netns
