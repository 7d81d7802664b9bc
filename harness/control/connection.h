// Memory, listeners, connection attempts, comms, registrations and requests: references to objects in a rank.
//
// Copies refer to the same object. Destructors close nothing: objects that a rule leaves open are closed in NCCL's
// order when its ranks are released (session.h).
//
// Each call has three forms. `isend(…)` makes the call and throws when its code is not Success. `try_isend(…)` returns
// the outcome with any code. `start_isend(…)` returns before the call does; `.get()` returns the outcome. All three
// throw `Hung` and `Crashed`.
//
// Threads are as in NCCL (TH-01): listen, connect, accept, regMr and close run on `svc`; isend, irecv, test, iflush
// and irecvConsumed on `prog`; init and similar calls on `main`. `x.on("other")` is a copy of x whose calls run on
// thread "other" of the rank, which is started if necessary.
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

namespace plugfest::wire {
struct Call;
}

namespace plugfest::control {

class RankProcess;

/// Bytes in a rank's address space.
struct Slice {
  std::uint64_t address = 0;
  std::size_t size = 0;

  /// Errors: std::out_of_range (a mistake in a rule) when it does not fit.
  Slice sub(std::size_t offset, std::size_t length) const;
};

/// A slice and the registration that covers it, for isend and irecv.
struct Buffer {
  Slice slice;
  std::uint64_t mhandle = 0;

  Buffer sub(std::size_t offset, std::size_t length) const { return {slice.sub(offset, length), mhandle}; }
};

/// Position of memory between its two guard pages.
///  kEnd: the last byte lies before a guard page, so that an access past the end crashes.
///  kStart: the first byte lies after a guard page, page-aligned.
///  kGpu: memory of the GPU instead (RankOptions::gpu), without guard pages.
enum class Placement : std::uint8_t { kEnd, kStart, kGpu };

struct Check {
  bool same = true;
  /// "byte 17 is 0x5a, expected 0x31 (983 of 1000 bytes differ)"; "" when same.
  std::string difference;
  explicit operator bool() const { return same; }
};

/// A mapping in a rank, whose content the rank writes and checks; copies refer to the same mapping. It exists until
/// `free` or the release of the rank (session.h). All functions run on the rank's thread `memory`, which makes no
/// plugin calls, so that they work while a call hangs.
class Memory {
 public:
  Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping);

  const Slice& slice() const { return whole_; }
  std::size_t size() const { return whole_.size; }
  std::uint64_t address() const { return whole_.address; }
  Slice sub(std::size_t offset, std::size_t length) const { return whole_.sub(offset, length); }
  operator Slice() const { return whole_; }
  /// The whole pages that hold the memory, without guard pages: what NCCL registers.
  const Slice& pages() const { return mapping_; }

  /// Maps the pages PROT_NONE: every access crashes the rank, and the verdict shows the address.
  void forbid();
  void make_read_only();
  /// Undoes `forbid` and `make_read_only`.
  void allow();
  /// Calls munmap for all pages but the guard pages.
  void unmap();
  /// Maps new zeroed pages at the address of the memory, after `unmap`.
  void map_again();
  /// Unmaps the memory and its guard pages.
  void free();

 private:
  std::shared_ptr<RankProcess> rank_;
  Slice whole_;
  Slice mapping_;
};

struct Device {
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// The handle that listen writes and connect reads. The controller passes it from rank to rank.
struct Handle {
  std::array<std::byte, 128> bytes{};
};

/// A plugin object in a rank: the pointer, the rank, and the thread for its calls.
class RemoteObject {
 public:
  RemoteObject(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value);
  /// The plugin's pointer.
  std::uint64_t value() const { return value_; }
  const std::string& rank_name() const;
  /// Time limit of a call, and of operations without progress.
  std::int64_t timeout_ns() const;
  /// This limit for loops of the controller.
  StallLimit stall_limit() const;

 protected:
  std::shared_ptr<RankProcess> rank_;
  /// Thread of all calls; "": the usual thread of each call.
  std::string thread_;
  std::uint64_t value_;
};

/// Arguments of isend and irecv apart from the buffers.
struct PostOptions {
  /// *request before the call. NCCL never clears it: kStale.
  Preset request = Preset::kStale;
  /// For v10 and later: phandle of every buffer; 0 is NULL. `phandles`: one for each buffer of an irecv instead.
  std::uint64_t phandle = 0;
  std::vector<std::uint64_t> phandles = {};
  /// False: irecv gets NULL instead of an array of phandles.
  bool phandle_array = true;
  std::optional<std::uint64_t> mhandle = std::nullopt;
};

struct TestOptions {
  /// *done before the call. With 0, a plugin that writes only 1 passes: TS-01 uses other values.
  int done = 0;
  /// False: sizes is NULL.
  bool sizes = true;
  /// Value of each of the 64 entries before the call. Writes past the 64 entries are reported as damage.
  int size_fill = 0;
  /// The rank repeats the call until it is done, at most this number of times.
  std::uint32_t repeats = 0;
};

/// One posted operation. Empty (`!request`) when the plugin did not accept it (Success with NULL).
class Request : public RemoteObject {
 public:
  using RemoteObject::RemoteObject;
  explicit operator bool() const { return value_ != 0; }
  Request on(std::string_view thread) const;

  /// Calls test once; true when done. `last()` returns the outcome. Errors: also `Deviation` when *done is neither 0
  /// nor 1.
  bool test(const TestOptions& options = {});
  TestOutcome try_test(const TestOptions& options = {}) const { return start_test(options).get(); }
  Started<TestOutcome> start_test(const TestOptions& options = {}) const;

  /// Calls test inside the rank until done; returns the outcome of the last call.
  /// Errors: `Stalled` when the request is not done within timeout_ns.
  TestOutcome wait(const TestOptions& options = {}) const;
  Started<TestOutcome> start_wait(const TestOptions& options = {}) const;

  const TestOutcome& last() const { return last_; }
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

class Registration : public RemoteObject {
 public:
  Registration(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t comm, Slice slice,
               std::uint64_t mhandle);
  Registration on(std::string_view thread) const;

  /// The registered memory, or a part of it.
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

/// Functions of both send and receive comms.
class Comm : public RemoteObject {
 public:
  using RemoteObject::RemoteObject;

  /// Registers memory by regMr. `type`: see try_reg().
  Registration reg(const Slice& slice, int type = 1) const;
  /// `type`: NCCL_PTR_HOST 1, CUDA 2, DMABUF 4. `preset`: *mhandle before the call.
  PointerOutcome try_reg(const Slice& slice, int type = 1, Preset preset = Preset::kPoison) const {
    return start_reg(slice, type, preset).get();
  }
  Started<PointerOutcome> start_reg(const Slice& slice, int type = 1, Preset preset = Preset::kPoison) const;
  /// Registers memory as NCCL_PTR_CUDA by regMrDmaBuf. `descriptor`: in the rank; its file starts at the slice.
  PointerOutcome try_reg_dma_buf(const Slice& slice, int descriptor) const;
  /// Calls getDeviceMr with any mhandle. `preset`: *dptr_mhandle before the call.
  PointerOutcome try_device_mr(std::uint64_t mhandle, Preset preset) const;
  /// The registration of `slice` whose mhandle `try_reg` returned.
  Registration registration(const Slice& slice, std::uint64_t mhandle) const;
  /// Calls deregMr with any mhandle.
  Outcome try_dereg(std::uint64_t mhandle) const { return start_dereg(mhandle).get(); }
  Started<Outcome> start_dereg(std::uint64_t mhandle) const;

  /// Calls closeSend or closeRecv.
  void close();
  Outcome try_close() { return start_close().get(); }
  Started<Outcome> start_close();

 protected:
  bool sends_ = false;

 private:
  /// Starts a call that stores a handle in its last argument, which becomes a registration if `registers`.
  Started<PointerOutcome> start_handle(wire::Call call, std::string text, Preset preset, bool registers) const;
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
  Request request(std::uint64_t value) const { return Request(rank_, thread_, value); }
};

class RecvComm : public Comm {
 public:
  RecvComm(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value);
  RecvComm on(std::string_view thread) const;

  /// Receives into one buffer or a group. The argument arrays are overwritten after the call.
  Request irecv(const Buffer& buffer, int tag = 0, const PostOptions& options = {}) const {
    return irecv(std::vector<Part>{{buffer, tag}}, options);
  }
  Request irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const;
  PointerOutcome try_irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const {
    return start_irecv(parts, options).get();
  }
  Started<PointerOutcome> start_irecv(const std::vector<Part>& parts, const PostOptions& options = {}) const;
  Request request(std::uint64_t value) const { return Request(rank_, thread_, value); }

  /// Calls iflush for received parts. Success with NULL means that the flush is complete.
  PointerOutcome try_iflush(const std::vector<Part>& parts, Preset request = Preset::kNull) const;
  /// Calls irecvConsumed with any request. Without such a function: an outcome with code Success and `start_ns` 0.
  Outcome try_consumed(int n, std::uint64_t request) const;
};

struct ListenOptions {
  /// Value of each of the 128 bytes of the handle before the call. NCCL passes zeroes (CN-03).
  std::uint8_t handle_fill = 0;
  Preset comm = Preset::kPoison;
  /// For v10 and later; nullopt: the rank's first context.
  std::optional<std::uint64_t> context = std::nullopt;
};

class Listener : public RemoteObject {
 public:
  Listener(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value, Handle handle);
  Listener on(std::string_view thread) const;
  const Handle& handle() const { return handle_; }

  /// Calls closeListen.
  void close();
  Outcome try_close() { return start_close().get(); }
  Started<Outcome> start_close();

 private:
  Handle handle_;
};

struct ListenOutcome : PointerOutcome {
  Handle handle;
};

struct AttemptOptions {
  /// *sendComm or *recvComm before the first call. Later calls get the value that the previous call stored.
  Preset comm = Preset::kNull;
  /// For v7 and later: the devHandle argument is a pointer to NULL, as in NCCL; false: it is NULL.
  bool device_handle = true;
  /// For connect of v10 and later; nullopt: the rank's first context.
  std::optional<std::uint64_t> context = std::nullopt;
};

/// A connect (SendComm) or accept (RecvComm), which may take several calls. All calls of a connect get the same copy of
/// the handle, which lies before a guard page. The first `poll` makes the first call.
template <typename CommType>
class Attempt : public RemoteObject {
 public:
  /// `call`: the function and its arguments before the comm. `text`: the call in reports.
  Attempt(std::shared_ptr<RankProcess> rank, std::string thread, wire::Call call, std::string text,
          const AttemptOptions& options);
  Attempt on(std::string_view thread) const;

  /// Makes the call once; true when the plugin has stored a comm.
  bool poll();
  /// Makes the call once and updates `done`.
  PointerOutcome try_poll() { return take(start_poll()); }
  Started<PointerOutcome> start_poll() const;
  /// Evaluates the outcome of a `start_poll` and updates `done`.
  PointerOutcome take(Started<PointerOutcome> started);

  /// True when the plugin has stored a comm.
  bool done() const;
  /// Errors: std::logic_error (a mistake in a rule) when not done.
  CommType comm() const;

 private:
  struct State;
  /// Shared by copies.
  std::shared_ptr<State> state_;
};
using Connect = Attempt<SendComm>;
using Accept = Attempt<RecvComm>;

}  // namespace plugfest::control
