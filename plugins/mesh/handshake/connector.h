// The connecting side of the handshake, one step per call of connect.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/transfer/send_comm.h"

namespace mesh {

/// One connection on its way. Nothing waits: step() goes as far as it can. Not thread safe.
class Connector {
 public:
  Connector(DeviceList devices, std::size_t asked_device, Handle handle, const Transport& transport);

  /// The connection once it stands, or nothing yet. Errors: Failure, for good: no path, or none that works.
  std::unique_ptr<SendComm> step();

  const Nonce& nonce() const { return handle_.nonce; }

 private:
  enum class Stage { kDialing, kAwaitingAnswer };

  void plan();
  void dial();
  void try_next(const Failure& why);
  void greet();
  std::unique_ptr<SendComm> answered(const Message& message);
  Failure no_path() const;

  DeviceList devices_;
  std::size_t asked_device_;
  Handle handle_;
  Transport transport_;

  std::vector<Path> paths_;
  std::size_t path_ = 0;
  bool asking_ = false;  ///< for the rest of the addresses, before the path is chosen
  Stage stage_ = Stage::kDialing;
  Socket socket_;  ///< while dialing
  PeerLink link_;  ///< from then on
  std::unique_ptr<SendComm> comm_;
};

/// Connections that were begun and are not yet finished, found again by the number in the handle's bytes.
/// Thread safe.
class Attempts {
 public:
  /// Takes out the attempt of this number, if it is one to this listener.
  std::unique_ptr<Connector> take(std::uint64_t number, const Nonce& nonce);
  /// A number for a new one; never 0. Errors: Failure.
  static std::uint64_t make_number();
  void put(std::uint64_t number, const void* context, std::unique_ptr<Connector> connector);
  /// Gives up those of one context.
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
