// Events that a program has received and not yet acknowledged. Destroying the object of the events waits for them.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace plugfest::roce::verbs {

/// Counts the delivered events of an object. The number of acknowledged events, the mutex and the condition variable
/// are members of the object's ABI struct, where programs may access them.
class EventAcknowledgement {
 public:
  void count_delivered(pthread_mutex_t& mutex) {
    pthread_mutex_lock(&mutex);
    ++delivered_;
    pthread_mutex_unlock(&mutex);
  }

  static void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& changed, std::uint32_t& acknowledged,
                          std::uint32_t count) {
    pthread_mutex_lock(&mutex);
    acknowledged += count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }

  /// Blocks until the program has acknowledged all delivered events.
  void wait(pthread_mutex_t& mutex, pthread_cond_t& changed, const std::uint32_t& acknowledged) {
    pthread_mutex_lock(&mutex);
    while (acknowledged != delivered_) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
  }

 private:
  std::uint32_t delivered_ = 0;
};

}  // namespace plugfest::roce::verbs
