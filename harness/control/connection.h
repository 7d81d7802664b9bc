// Listeners, connection attempts, comms, registrations and requests of a rank: handles to what lives in the plugin.
//
// All are cheap values; copies mean the same thing. None closes anything when it goes: what a rule leaves open is
// closed when its ranks are released (session.h), in the order NCCL uses.
//
// Each call has three forms. `isend(…)` makes it and throws when its code is not Success. `try_isend(…)` returns the
// outcome whatever the code. `start_isend(…)` returns at once; `.get()` is `try_isend`'s outcome.
// All three throw `Hung` and `Crashed`.
//
// Threads: as NCCL's (TH-01): listen, connect, accept, regMr and close on `svc`; isend, irecv, test, iflush and
// irecvConsumed on `prog`; init and the like on `main`. `x.on("other")` is x with every call on that thread of the
// rank, which is started if need be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/call.h"
#include "harness/control/memory.h"

namespace plugfest::control {

class RankProcess;

/// A plugin's device index.
struct Device {
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// What listen writes and connect reads, byte for byte; travels between ranks through the controller.
struct Handle {
  std::array<std::byte, 128> bytes{};
};

/// A raw plugin object in a rank: which rank, which thread its calls take, the pointer.
class RemoteObject {
 public:
  RemoteObject(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value);
  /// The plugin's pointer.
  std::uint64_t value() const { return value_; }
  const std::string& rank_name() const;
  /// How long operations of this rank may stand still: a call's deadline.
  std::int64_t timeout_ns() const;

 protected:
  std::shared_ptr<RankProcess> rank_;
  /// "": the call's usual thread.
  std::string thread_;
  std::uint64_t value_;
};

// ---------------------------------------------------------------------------------------------------- transfers

/// isend's and irecv's arguments beyond the buffers.
struct PostOptions {
  /// What *request holds at entry. Core never clears it: kStale is what NCCL does.
  Preset request = Preset::kStale;
  /// v10+: phandle of each buffer (the same value for all); 0 is NULL.
  std::uint64_t phandle = 0;
  /// Handles to another registration than the buffer's.
  std::optional<std::uint64_t> mhandle = std::nullopt;
};

struct TestOptions {
  /// *done at entry.
  int done = 0x5a5a5a5a;
  /// False: sizes is NULL.
  bool sizes = true;
  /// Each of the 64 entries at entry; what changes beyond the request's n is for the rule to judge. Bytes beyond the 64
  /// are canaries and reported as damage.
  int size_fill = 0;
};

/// One posted operation. Empty (`!request`) when the plugin said "not now" (Success with NULL).
class Request : public RemoteObject {
 public:
  using RemoteObject::RemoteObject;
  explicit operator bool() const { return value_ != 0; }
  Request on(std::string_view thread) const;

  /// Makes one test; true when done. Sizes and such are in `last()`.
  /// Errors: also `Deviation` when *done is neither 0 nor 1.
  bool test(const TestOptions& options = {});
  TestOutcome try_test(const TestOptions& options = {}) const { return start_test(options).get(); }
  Started<TestOutcome> start_test(const TestOptions& options = {}) const;

  /// Tests in the rank until done, without a round trip each; returns the outcome of the last test.
  /// Errors: `Stalled` when it is not done within a call's deadline.
  TestOutcome wait(const TestOptions& options = {}) const;
  Started<TestOutcome> start_wait(const TestOptions& options = {}) const;

  /// Outcome of the latest `test` made through this object.
  const TestOutcome& last() const { return last_; }
  /// sizes[index] of `last()`.
  int size(std::size_t index = 0) const;

 private:
  TestOutcome last_;
};

/// One part of a receive: a buffer and its tag.
struct Part {
  Buffer buffer;
  int tag = 0;
};

class Comm;

/// A registration on a comm.
class Registration : public RemoteObject {
 public:
  Registration(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t comm, Slice slice,
               std::uint64_t mhandle);
  Registration on(std::string_view thread) const;

  /// Everything that was registered, or a part of it.
  Buffer buffer() const { return {slice_, value_}; }
  Buffer buffer(std::size_t offset, std::size_t length) const { return {slice_.sub(offset, length), value_}; }
  operator Buffer() const { return buffer(); }
  const Slice& slice() const { return slice_; }

  void dereg();
  Outcome try_dereg() { return start_dereg().get(); }
  Started<Outcome> start_dereg();

 private:
  std::uint64_t comm_;
  Slice slice_;
};

/// What send and receive comms share.
class Comm : public RemoteObject {
 public:
  using RemoteObject::RemoteObject;

  /// regMr of host memory.
  Registration reg(const Slice& slice) const;
  /// `type`: NCCL_PTR_HOST 1, CUDA 2, DMABUF 4. `preset`: *mhandle at entry.
  PointerOutcome try_reg(const Slice& slice, int type = 1, Preset preset = Preset::kPoison) const {
    return start_reg(slice, type, preset).get();
  }
  Started<PointerOutcome> start_reg(const Slice& slice, int type = 1, Preset preset = Preset::kPoison) const;
  /// The registration that a `try_reg` of `slice` gave.
  Registration registration(const Slice& slice, std::uint64_t mhandle) const;
  /// deregMr of any value.
  Outcome try_dereg(std::uint64_t mhandle) const;

  /// closeSend or closeRecv.
  void close();
  Outcome try_close() { return start_close().get(); }
  Started<Outcome> start_close();

 protected:
  bool sends_ = false;
};

class SendComm : public Comm {
 public:
  SendComm(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value);
  SendComm on(std::string_view thread) const;

  Request isend(const Buffer& buffer, int tag = 0, const PostOptions& options = {}) const;
  PointerOutcome try_isend(const Buffer& buffer, int tag = 0, const PostOptions& options = {}) const {
    return start_isend(buffer, tag, options).get();
  }
  Started<PointerOutcome> start_isend(const Buffer& buffer, int tag = 0, const PostOptions& options = {}) const;
  /// The request that a `try_isend` gave.
  Request request(std::uint64_t value) const { return Request(rank_, thread_, value); }
};

class RecvComm : public Comm {
 public:
  RecvComm(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value);
  RecvComm on(std::string_view thread) const;

  /// One receive of one buffer, or of a group. The argument arrays are overwritten as soon as the call returned.
  Request irecv(const Buffer& buffer, int tag = 0, const PostOptions& options = {}) const {
    return irecv(std::vector<Part>{{buffer, tag}}, options);
  }
  Request irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const;
  PointerOutcome try_irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const {
    return start_irecv(parts, options).get();
  }
  Started<PointerOutcome> start_irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const;
  Request request(std::uint64_t value) const { return Request(rank_, thread_, value); }

  /// iflush of received parts; Success with an empty request means that nothing is left to wait for.
  PointerOutcome try_iflush(const std::vector<Part>& parts, Preset request = Preset::kNull) const;
  /// irecvConsumed of any request pointer; an outcome with code Success when the plugin has no such function.
  Outcome try_consumed(int n, std::uint64_t request) const;
};

// --------------------------------------------------------------------------------------------------- connecting

struct ListenOptions {
  /// What the 128 bytes hold at entry; NCCL passes zeroes, others may not (CN-03).
  std::uint8_t handle_fill = 0;
  Preset comm = Preset::kPoison;
  /// v10+: another context than the rank's first. nullopt: the first.
  std::optional<std::uint64_t> context = std::nullopt;
};

/// A listening comm and the handle it gave.
class Listener : public RemoteObject {
 public:
  Listener(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value, Handle handle);
  Listener on(std::string_view thread) const;
  const Handle& handle() const { return handle_; }

  /// closeListen.
  void close();
  Outcome try_close() { return start_close().get(); }
  Started<Outcome> start_close();

 private:
  Handle handle_;
};

/// Outcome of listen: also the handle's 128 bytes.
struct ListenOutcome : PointerOutcome {
  Handle handle;
};

/// How connect and accept are called.
struct AttemptOptions {
  /// *sendComm or *recvComm at the first call; later ones find what the call before left.
  Preset comm = Preset::kNull;
  /// The devHandle argument (v7+): NULL, or a pointer to NULL as core passes it.
  bool device_handle = true;
  /// connect only, v10+: nullopt: the rank's first context.
  std::optional<std::uint64_t> context = std::nullopt;
};

/// A connect that may take several calls. The handle's copy lies before a guard page at one address until it is done.
/// Nothing is called before the first `poll`.
class Connect : public RemoteObject {
 public:
  Connect(std::shared_ptr<RankProcess> rank, std::string thread, Device device, const Handle& handle,
          AttemptOptions options);
  Connect on(std::string_view thread) const;

  /// Makes one call of connect; true when there is a comm.
  bool poll();
  /// Updates `done` too.
  PointerOutcome try_poll() { return take(start_poll()); }
  Started<PointerOutcome> start_poll() const;
  /// What a `start_poll` gave: updates `done`, returns the outcome.
  PointerOutcome take(Started<PointerOutcome> started);

  /// The plugin has given a comm.
  bool done() const;
  /// Errors: std::logic_error (a mistake in a rule) when not done.
  SendComm comm() const;

 private:
  struct State;
  /// Shared by copies.
  std::shared_ptr<State> state_;
};

/// An accept that may take several calls.
class Accept : public RemoteObject {
 public:
  Accept(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t listener, AttemptOptions options);
  Accept on(std::string_view thread) const;

  bool poll();
  PointerOutcome try_poll() { return take(start_poll()); }
  Started<PointerOutcome> start_poll() const;
  PointerOutcome take(Started<PointerOutcome> started);

  bool done() const;
  RecvComm comm() const;

 private:
  struct State;
  /// Shared by copies.
  std::shared_ptr<State> state_;
};

}  // namespace plugfest::control
