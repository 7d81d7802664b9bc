// The connector's side of the handshake: one step per call of connect.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plugins/mesh/device/path.h"
#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/relay/relay.h"
#include "plugins/mesh/transfer/send_comm.h"

namespace mesh {

/// One unfinished connection. No function waits. Not thread-safe.
class Connector {
 public:
  /// `requested`: indexes of the NICs of the device that NCCL asked for. `relay`: looks for relays if there is no path;
  /// may be null.
  Connector(DeviceList devices, std::vector<std::size_t> requested, Handle handle, const Transport& transport,
            std::shared_ptr<Relay> relay);

  /// Continues the handshake. Returns the comm when it is finished, or null. Errors: Failure when no path to the peer
  /// works; the attempt cannot be continued then.
  std::unique_ptr<SendComm> step();

  const Secret& secret() const { return handle_.secret; }

 private:
  enum class Stage { kSeekingRelay, kConnecting, kAwaitingAnswer };

  void choose_paths();
  void seek_relay();
  void start_connect();
  bool next_path();
  void try_next_path(const Failure& why);
  void send_hello();
  std::unique_ptr<SendComm> handle_answer(const Message& message);
  template <typename Proven>
  const Proven* proven(const Message& message) const;
  Failure no_path() const;

  PathChoice paths_;
  Handle handle_;
  Transport transport_;

  Nonce nonce_ = {};     ///< nonce of the message that awaits its answer
  bool asking_ = false;  ///< this TCP connection asks for the addresses that the handle lacks
  std::shared_ptr<Relay> relay_;
  std::optional<RelaySearch> search_;  ///< set if the peer is reached through relays
  Stage stage_ = Stage::kConnecting;
  Socket socket_;          ///< valid in stage kConnecting
  bool repeated_ = false;  ///< the connect on the current path has been repeated
  PeerLink link_;          ///< valid in stage kAwaitingAnswer
  std::unique_ptr<SendComm> comm_;
};

/// The unfinished connections of the process. The handle's bytes hold the number of each. Thread-safe.
class Attempts {
 public:
  /// Removes and returns the attempt of this number. Returns null unless it is an attempt to reach this listener.
  std::unique_ptr<Connector> take(std::uint64_t number, const Secret& secret);
  /// A number for a new attempt; never 0. Errors: Failure.
  static std::uint64_t make_number();
  void put(std::uint64_t number, const void* context, std::unique_ptr<Connector> connector);
  /// Ends the attempts of one context.
  void drop(const void* context);
  void clear();

 private:
  struct Entry {
    const void* context = nullptr;
    std::unique_ptr<Connector> connector;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace mesh
