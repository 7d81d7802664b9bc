// Blocks signals while a thread or a process starts, which has the signal mask of its creator.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace plugfest {

/// Blocks all signals of this thread except some, and restores its mask on destruction, including by an exception.
/// Threads of a library block them so that handlers of the program run on the program's own threads. One thread.
class BlockedSignals {
 public:
  explicit BlockedSignals(std::initializer_list<int> except = {}) {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int signal : except) sigdelset(&blocked, signal);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace plugfest
