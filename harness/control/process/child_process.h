// The process of a rank: stopping, continuing and killing it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "fabric/system/load_clock.h"

namespace plugfest::control {

/// Owns one process that a launcher has started, and kills it on destruction. One thread.
class ChildProcess {
 public:
  ChildProcess() = default;
  virtual ~ChildProcess() = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// -1 for a process on another machine.
  virtual pid_t pid() const = 0;
  /// False after `end`; true for a process that has ended on its own and has not been reaped.
  virtual bool alive() const = 0;
  virtual bool frozen() const = 0;
  /// True for a process that has ended on its own and has not been reaped.
  virtual bool has_ended() const = 0;

  /// Sends SIGSTOP and waits until every thread has stopped. False when the process ended instead.
  virtual bool freeze() = 0;
  /// Sends SIGCONT.
  virtual void thaw() = 0;
  /// Kills the process and the processes of its group, waits for its end, and returns its wait status, which is that of
  /// an earlier end if it had already ended. nullopt when it was reaped before.
  virtual std::optional<int> end() = 0;
  /// Why the process ended, if its wait status does not tell: "host h3 has not answered for 10 s". Call it after `end`.
  virtual std::string end_reason() const { return ""; }
  /// Of a process on another machine: the time in which it, or what carries its messages, waited for a processor.
  virtual std::shared_ptr<const LoadClock::Meter> waited() const { return nullptr; }
};

/// A child of this process.
class LocalProcess final : public ChildProcess {
 public:
  /// Takes ownership of child `pid`.
  explicit LocalProcess(pid_t pid) : pid_(pid) {}
  ~LocalProcess() override { end(); }

  pid_t pid() const override { return pid_; }
  bool alive() const override { return pid_ > 0 && !reaped_; }
  bool frozen() const override { return frozen_; }
  bool has_ended() const override;
  bool freeze() override;
  void thaw() override;
  std::optional<int> end() override;

 private:
  const pid_t pid_;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace plugfest::control
