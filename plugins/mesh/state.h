// What the plugin holds for the process: the NICs, the contexts that use them, listeners, connections on their way.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/mesh/handshake/acceptor.h"
#include "plugins/mesh/handshake/connector.h"

namespace mesh {

/// One init; NCCL's ctx points to it.
struct Context {
  int traffic_class = -1;
};

class State {
 public:
  /// The one of the process. Its memory is never given back: threads may still call when the process ends.
  static State& get();

  /// Finds the NICs, unless somebody uses them already.
  Context* open(int traffic_class);
  void open_for_good();
  /// Null is no context, and fine. Errors: Failure for a pointer that is no context.
  void close(const void* context);

  /// The NICs; empty while there is no context.
  DeviceList devices();
  /// Errors: Failure (kInvalidArgument) without such a device.
  std::shared_ptr<const Device> device(int index);
  /// A text that stays valid until the library is unloaded.
  const char* keep(const std::string& text);

  /// How a connection of this context sends; null: as the environment says.
  Transport transport(const void* context);
  Transport transport_with(int traffic_class);

  Attempts& attempts() { return attempts_; }

  /// The functions of Acceptor, one at a time.
  Listener& listen(std::size_t device, const Transport& transport, Handle& handle);
  std::unique_ptr<RecvComm> accept(void* listener);
  void close_listener(void* listener);

 private:
  friend void close_everything();
  void find();
  Transport transport_locked(int traffic_class) const;

  std::mutex mutex_;  ///< over what stands below it
  Settings settings_;
  DeviceList devices_;
  std::set<Context*> contexts_;
  bool for_good_ = false;
  std::set<std::string> texts_;
  int process_ = 0;

  Attempts attempts_;

  std::mutex listening_mutex_;
  std::unique_ptr<Acceptor> acceptor_;
};

/// For the end of the library or the process: closes the NICs and all that is still open on them. Later calls fail.
/// Does nothing in a forked child, whose parent goes on.
void close_everything();

}  // namespace mesh
