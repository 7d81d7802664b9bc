// What a process knows about its peers: marks that both ends of a connection see, and heartbeats.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "conformance/mutants/faults/state.h"
#include "conformance/mutants/faults/surroundings.h"
#include "conformance/mutants/faults/variant_plugin_thread.h"
#include "conformance/mutants/net_functions.h"

namespace plugfest::mutants {

/// Marks that every process of the mutant sees: read locks on single bytes of its library file. They end with the
/// process that set them. Thread safety: any thread.
class PeerMarks {
 public:
  /// The mark `kind`, 0 to 3, of the connections to a listener with this handle, which must be the one that listen
  /// returned.
  static std::int64_t key(const HandleBytes& handle, int kind) {
    const std::string_view bytes(handle.data(), handle.size());
    return static_cast<std::int64_t>(std::hash<std::string_view>()(bytes) >> 8) * 4 + kind;
  }
  void set(std::int64_t key) { lock(file(), F_OFD_SETLK, F_RDLCK, key); }
  void clear(std::int64_t key) { lock(file(), F_OFD_SETLK, F_UNLCK, key); }
  bool is_set(std::int64_t key) {
    file();
    return lock(query_, F_OFD_GETLK, F_WRLCK, key) != F_UNLCK;
  }

 private:
  // Opens the file at the first use: an unused mutant leaves no descriptor behind when it is unloaded.
  int file() {
    std::call_once(once_, [this] {
      file_ = open_library();
      query_ = open_library();
    });
    return file_;
  }
  static int open_library() {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&open_library), &info);
    return open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  }
  static short lock(int file, int command, short type, std::int64_t key) {
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = key & 0x3fffffffffffffff;
    range.l_len = 1;
    fcntl(file, command, &range);
    return range.l_type;
  }

  std::once_flag once_;
  int file_ = -1;
  int query_ = -1;
};

/// The ends of a connection.
enum { kSender, kReceiver };

/// Marks of the endpoints of connections, which both processes see. Thread safety: any thread.
class ConnectionEnds {
 public:
  /// Makes listen, connect and accept of `net` record the handle of each comm.
  static ConnectionEnds& watch(Net& net) {
    auto& ends = kept<ConnectionEnds>();
    on_success(net.listen, [&](Listen listen) { ends.handles_.put(*listen.comm, handle_bytes(listen.handle)); });
    on_success(net.accept, [&](Accept accept) {
      if (const auto handle = ends.handles_.find(accept.listener)) ends.handles_.put(*accept.comm, *handle);
    });
    net.connect = [&ends, good = net.connect](Connect connect) {
      const HandleBytes first = ends.handle_of_listener(connect.handle);
      const Result result = good(connect);
      ends.connects_.put(connect.handle, {first, handle_bytes(connect.handle)});
      if (result == Result::kSuccess && *connect.comm != nullptr) {
        ends.handles_.put(*connect.comm, first);
        ends.connects_.erase(connect.handle);
      }
      return result;
    };
    return ends;
  }

  /// The handle that listen returned. `handle`: the argument of a connect, which the base plugin may have changed.
  HandleBytes handle_of_listener(const void* handle) const {
    const auto begun = connects_.find(handle);
    const HandleBytes now = handle_bytes(handle);
    return begun && begun->now == now ? begun->first : now;  // other bytes belong to another connect
  }
  /// The handle of a listener, or of the listener to which a comm belongs.
  std::optional<HandleBytes> handle_of(const void* comm) const { return handles_.find(comm); }

  void mark(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.set(PeerMarks::key(*handle, end));
  }
  void clear(void* comm, int end) {
    if (const auto handle = handles_.find(comm)) marks_.clear(PeerMarks::key(*handle, end));
  }
  bool is_marked(void* comm, int end) {
    const auto handle = handles_.find(comm);
    return handle && marks_.is_set(PeerMarks::key(*handle, end));
  }

 private:
  struct Pending {
    HandleBytes first;  ///< content at the first call
    HandleBytes now;    ///< content after the last call
  };
  PeerMarks marks_;
  PointerMap<Pending> connects_;     // by the address of the handle
  PointerMap<HandleBytes> handles_;  // of listeners and comms
};

/// Heartbeats between processes with connections, as plugins send them over the network: a thread of the plugin lets a
/// mark of each of its listeners and comms appear and disappear every millisecond. Thread safety: any thread.
class Heartbeats : public PluginThread {
 public:
  static Heartbeats& watch(Net& net) {
    auto& beats = kept<Heartbeats>();
    beats.ends_ = &ConnectionEnds::watch(net);
    install(net, beats);
    on_success(net.listen, [&](Listen listen) { beats.add(*listen.comm, kReceiver); });
    on_success(net.accept, [&](Accept accept) { beats.add(*accept.comm, kReceiver); });
    on_success(net.connect, [&](Connect connect) { beats.add(*connect.comm, kSender); });
    for (Function<void*>* close : {&net.close_listen, &net.close_recv, &net.close_send})
      before(*close, [&](void* comm) { beats.remove(comm); });
    return beats;
  }

  /// Waits for a heartbeat of the process at the end `peer` of a comm. Returns at once if the comm is closed there.
  void wait_for_peer(const void* comm, int peer) {
    if (const auto handle = ends_->handle_of(comm)) wait(PeerMarks::key(*handle, peer), [] { return true; });
  }
  /// Waits for a heartbeat of the process whose listener has this handle. Returns at once if it is closed.
  void wait_for_listener(const void* handle) {
    wait(PeerMarks::key(ends_->handle_of_listener(handle), kReceiver), [] { return true; });
  }
  /// Whether wait_for_listener() ends within 50 pauses.
  bool listener_answers(const void* handle) {
    int pauses = 50;
    return wait(PeerMarks::key(ends_->handle_of_listener(handle), kReceiver), [&] { return --pauses > 0; });
  }

 private:
  static constexpr int kBeat = 2;  ///< kSender + kBeat and kReceiver + kBeat: the heartbeats; without: the comm is open

  bool step(std::unique_lock<std::mutex>& lock, bool ending) override {
    beat_ = !beat_ && !ending;
    for (const auto& [comm, key] : own_) beat_ ? marks_.set(key + kBeat) : marks_.clear(key + kBeat);
    if (!ending) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      return true;
    }
    for (const auto& [comm, key] : own_) marks_.clear(key);
    own_.clear();
    return false;
  }
  void add(const void* comm, int end) {
    const auto handle = ends_->handle_of(comm);
    if (!handle) return;
    const std::lock_guard lock(mutex_);
    marks_.set(own_[comm] = PeerMarks::key(*handle, end));
  }
  // A listener and its comms have the same marks.
  void remove(const void* comm) {
    const std::lock_guard lock(mutex_);
    const auto found = own_.find(comm);
    if (found == own_.end()) return;
    const std::int64_t key = found->second;
    own_.erase(found);
    if (std::any_of(own_.begin(), own_.end(), [key](const auto& other) { return other.second == key; })) return;
    marks_.clear(key);
    marks_.clear(key + kBeat);
  }
  // Pauses until the heartbeat `key` changes or its comm is closed, and while `patient()`. Returns whether that is so.
  template <typename Patience>
  bool wait(std::int64_t key, Patience patient) {
    const bool before = marks_.is_set(key + kBeat);
    while (marks_.is_set(key) && marks_.is_set(key + kBeat) == before) {
      if (!patient()) return false;
      pause_briefly();
    }
    return true;
  }

  ConnectionEnds* ends_ = nullptr;
  PeerMarks marks_;
  std::map<const void*, std::int64_t> own_;  ///< the marks of open listeners and comms
  bool beat_ = false;
};

}  // namespace plugfest::mutants
