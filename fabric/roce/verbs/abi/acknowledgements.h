// Events that a program took and has not acknowledged yet: what destroying a queue pair or a completion queue waits
// for.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace plugfest::roce::verbs {

/// One count of taken events beside rdma-core's count of acknowledged ones, which lies in the object's ABI struct
/// together with the mutex and the condition that programs may see there.
class Acknowledgements {
 public:
  void note_taken(pthread_mutex_t& mutex) {
    pthread_mutex_lock(&mutex);
    ++taken_;
    pthread_mutex_unlock(&mutex);
  }

  static void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& changed, std::uint32_t& acknowledged,
                          std::uint32_t count) {
    pthread_mutex_lock(&mutex);
    acknowledged += count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }

  /// Blocks until every taken event is acknowledged.
  void wait(pthread_mutex_t& mutex, pthread_cond_t& changed, const std::uint32_t& acknowledged) {
    pthread_mutex_lock(&mutex);
    while (acknowledged != taken_) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
  }

 private:
  std::uint32_t taken_ = 0;
};

}  // namespace plugfest::roce::verbs
