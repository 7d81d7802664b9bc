// The data path: puts, gets, signals and flushes through queue pairs that belong to one context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/log.h"
#include "plugins/mesh/one_sided/team.h"
#include "plugins/mesh/transfer/queue_pair.h"

namespace mesh::one_sided {

/// Symmetric memory: a range of each rank, registered by all of them. NCCL's mhandle points to it.
struct Window {
  struct Remote {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::array<std::uint32_t, kMaxLanes> keys = {};  ///< one for each link to the rank
  };
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  bool of_gpu = false;
  std::vector<std::unique_ptr<RegionCache::Range>> ranges;       ///< one for each NIC of the collComm
  std::vector<std::array<std::uint32_t, kMaxLanes>> local_keys;  ///< for each rank, one for each link
  std::vector<Remote> remotes;                                   ///< one for each rank
};

/// A part of a window.
struct Place {
  const Window* window = nullptr;
  std::uint64_t offset = 0;
};

/// An atomic addition to 8 bytes of the target.
struct Signal {
  Place place;
  std::uint64_t value = 0;
  std::uint32_t op = 0;  ///< abi::SignalOp
};

/// One queue pair to one rank. Requests complete in the order of their posting, so a request is a number.
///
/// A put and the signal behind it use the same queue pair, which executes them in order: every signal is a strong one.
/// One thread at a time.
class Connection {
 public:
  /// Maximum number of requests in flight: 32 x maxRecvs.
  static constexpr std::uint32_t kMaxRequests = 256;

  /// `link`: the index of the link to the rank. `team` must outlive it.
  Connection(Team& team, const LaneStart& start, std::size_t rank, std::size_t link);

  const Endpoint& endpoint() const { return queue_pair_.endpoint(); }
  std::uint8_t reads() const { return queue_pair_.reads(); }
  /// `reads`: READs and atomic operations that the peer accepts at once. Errors: Failure.
  void connect(const Endpoint& remote, std::uint8_t reads, const Transport& transport);

  /// These functions post an operation and return its number. For 0 bytes without a signal, put() posts nothing and
  /// returns the number of the last operation. Errors: Failure; then nothing is posted.
  std::uint32_t put(const Place& from, const Place& to, std::size_t size, const Signal* signal);
  std::uint32_t get(const Place& from, const Place& to, std::size_t size);
  /// The number of the operation that was posted last.
  std::uint32_t last() const { return posted_; }

  /// Takes completions. Errors: Failure; after that, each call throws the same Failure.
  void poll();
  bool is_done(std::uint32_t number) const { return static_cast<std::int32_t>(done_ - number) >= 0; }
  bool is_posted(std::uint32_t number) const { return static_cast<std::int32_t>(posted_ - number) >= 0; }
  bool idle() const { return posted_ == done_; }
  bool broken() const { return error_.has_value(); }

 private:
  struct Range {
    std::uint64_t address;
    std::uint32_t key;
  };
  Range local(const Place& place, std::size_t size) const;
  Range remote(const Place& place, std::size_t size) const;
  void require_room();
  void require_size(std::size_t size) const;
  std::uint32_t post(ibv_send_wr* first, ibv_send_wr* last);
  [[noreturn]] void fail(const std::string& why);

  Team& team_;
  std::size_t rank_, link_;
  StagingMemory discarded_;  ///< results of atomic operations
  QueuePair queue_pair_;
  std::uint32_t posted_ = 0, done_ = 0;
  std::int64_t checked_ms_ = 0;  ///< when the peer was checked last
  std::optional<Failure> error_;
};

/// What createContext asks for.
struct ContextConfig {
  int contexts = 1;
  int rank_stride = 1;  ///< only ranks whose distance is a multiple of it are connected
};

/// The connections of one context object, one for each of its contexts and each rank. Threads: one at a time.
class Context {
 public:
  /// Waits until all ranks have called it. Errors: Failure.
  Context(Team& team, const ContextConfig& config, const Transport& transport);

  /// Errors: Failure if there is no such context or rank.
  Connection& connection(int context, std::uint32_t rank);
  /// The connection at an index(); null if there is none.
  Connection* connection(std::size_t index) { return index < own_.size() ? own_[index].get() : nullptr; }
  std::size_t index(int context, std::uint32_t rank) const { return static_cast<std::size_t>(context) * ranks_ + rank; }
  /// Takes completions of all connections. Errors: Failure of the first one that is broken.
  void poll();
  bool broken() const;

 private:
  std::size_t ranks_;
  std::size_t next_idle_ = 0;                          ///< the connection that the next poll of an idle context polls
  std::vector<std::unique_ptr<Connection>> own_;       ///< null if the rank is not connected
  std::vector<std::unique_ptr<Connection>> loopback_;  ///< the other ends of connections with the own rank
};

}  // namespace mesh::one_sided
