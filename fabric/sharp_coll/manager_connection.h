// A TCP connection to the aggregation manager: one JSON object for each line, in both directions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fabric/reduction/control_link.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"

namespace plugfest::sharp_coll {

/// The manager watches this connection: when it closes, the rank has left or died. The kernel closes it if the
/// manager's host does not answer for some seconds. Thread safety: none.
class ManagerConnection {
 public:
  /// No connection.
  ManagerConnection() = default;

  /// Connects to `manager` ("ADDRESS:PORT"). Errors: Failure with ESESS_INIT.
  explicit ManagerConnection(const std::string& manager);

  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// The socket, for poll(); -1 without a connection.
  int descriptor() const { return socket_.get(); }

  /// Sends a message. Errors: Failure with ESESS_INIT.
  void send(const nlohmann::json& message);

  /// Waits for the next message. Errors: Failure with ESESS_INIT if the manager closes the connection, does not answer
  /// in time or sends anything but a JSON object.
  nlohmann::json receive(Nanoseconds timeout);

  /// Returns a message that has arrived; nullopt if none has. Errors: as receive().
  std::optional<nlohmann::json> poll();

  void close() { socket_.close(); }

 private:
  std::optional<nlohmann::json> next_line();

  std::string manager_;
  Descriptor socket_;
  reduction::LineReader lines_{reduction::kMaxAnswerBytes};
};

}  // namespace plugfest::sharp_coll
