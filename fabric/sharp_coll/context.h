// A context of sharp_coll_init(): its settings, device, communicators and registrations.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/sharp_coll/comm.h"
#include "fabric/sharp_coll/log.h"
#include "fabric/sharp_coll/out_of_band.h"
#include "fabric/sharp_coll/settings.h"

namespace plugfest::sharp_coll {

/// Memory that the caller registered. Only its range is stored, because host memory needs no registration.
struct Registration {
  const void* address = nullptr;
  std::size_t length = 0;
};

/// Thread safety: all functions may be called from several threads at once.
class Context {
 public:
  /// Finds the device, and the manager from rank 0. Collective over the world of `spec`. Errors: Failure, on all ranks
  /// with the same code.
  explicit Context(const sharp_coll_init_spec& spec);
  /// Leaves the groups of communicators that still exist.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Log& log() const { return log_; }

  /// Collective over the ranks of `spec`. Errors: as the constructor.
  std::shared_ptr<Comm> create_comm(const sharp_coll_comm_init_spec& spec);
  void destroy_comm(const std::shared_ptr<Comm>& comm);

  /// Starts a collective on a communicator of this context. Errors: Failure.
  std::shared_ptr<Operation> post(Comm& comm, const Transfer& transfer);

  /// Makes progress on one communicator. Returns the operation's status.
  int test(Comm& comm, const Operation& operation);

  /// Waits until an operation has finished. Calls the caller's progress function. Returns the operation's status.
  int wait(Comm& comm, const Operation& operation);

  /// Makes progress on all communicators.
  void progress();

  /// Errors: Failure with EINVAL for null memory.
  Registration* add_registration(const void* address, std::size_t length);
  /// Errors: Failure with EINVAL for an unknown handle.
  void remove_registration(const void* handle);

  std::string statistics() const;

 private:
  /// Errors: Failure if the process was forked after the context was created.
  void check_process() const;
  void sleep_until_work(const Comm& comm) const;

  const sharp_coll_out_of_band_colls out_of_band_;
  const int user_progress_polls_;
  int (*const user_progress_)(void);
  const pid_t process_;
  CommEnvironment environment_;
  Log log_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Comm>> comms_;                            // guarded by mutex_
  std::map<const void*, std::unique_ptr<Registration>> registrations_;  // by handle; guarded by mutex_
};

}  // namespace plugfest::sharp_coll
