// A thread of a plugin, from the first init to the last finalize.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// Base class. Thread safety: any thread; `mutex_` also guards the members of derived classes.
class PluginThread {
 public:
  virtual ~PluginThread() = default;

  /// Makes init and finalize of `net` start and end `thread`.
  static void install(Net& net, PluginThread& thread) {
    on_success(net.init, [&thread](Init) { thread.start(); });
    before(net.finalize, [&thread](void*) { thread.stop(); });
  }
  static void install(Calls& calls, PluginThread& thread) {
    calls["init"] = [&thread, good = calls["init"]](Words& words) {
      const Result result = good(words);
      if (result == Result::kSuccess) thread.start();
      return result;
    };
    calls["finalize"] = [&thread, good = calls["finalize"]](Words& words) {
      thread.stop();
      return good(words);
    };
  }

 protected:
  /// Does some work with `lock` held on `mutex_`, or waits for `changed_` unless `ending`: the last context is being
  /// finalized. Returns whether work is left.
  virtual bool step(std::unique_lock<std::mutex>& lock, bool ending) = 0;

  std::mutex mutex_;
  std::condition_variable changed_;

 private:
  void start() {
    const std::lock_guard lock(mutex_);
    if (contexts_++ != 0) return;
    // The program's own threads handle signals.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (contexts_ == 0 || --contexts_ != 0) return;
    }
    changed_.notify_all();
    thread_.join();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (step(lock, contexts_ == 0) || contexts_ != 0) {
    }
  }

  int contexts_ = 0;
  std::thread thread_;
};

}  // namespace plugfest::mutants
