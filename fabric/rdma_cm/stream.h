// A TCP connection between two connection managers.
#pragma once

#include <functional>
#include <optional>

#include "fabric/rdma_cm/message.h"
#include "fabric/rdma_cm/poller.h"
#include "fabric/roce/wire/address.h"
#include "fabric/system/file.h"

namespace plugfest::rdma_cm {

/// Sends and receives messages. Guarded by the manager's lock, which is held when the callbacks run.
class Stream {
 public:
  struct Callbacks {
    /// Called when the connection that connect_to() started is established.
    std::function<void()> connected;
    /// Called once for each message.
    std::function<void(const Message&)> received;
    /// Called with 0 when the peer has closed its half of the connection, and with an errno value when the connection
    /// was not possible, broke, or carried an invalid message. No callback follows.
    std::function<void(int error)> ended;
  };

  /// Takes over a connection.
  Stream(Poller& poller, Descriptor socket, Callbacks callbacks);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Starts to connect. `interface`: the scope of link-local addresses. Returns null with errno set if that fails.
  static std::unique_ptr<Stream> connect_to(Poller& poller, const roce::Address& source, const roce::Address& peer,
                                            int interface, Callbacks callbacks);

  /// Never waits: the buffer of the socket has room for all messages of a connection. Returns false if the connection
  /// is broken.
  bool send(const Message& message);
  /// Closes this half of the connection.
  void finish();

  roce::Address peer() const;
  roce::Address own() const;
  /// Gives the connection to another owner. Only the destructor may be called afterwards.
  Descriptor release();

 private:
  void handle(std::uint32_t events);
  void receive();
  void end(int error);

  Poller& poller_;
  Descriptor socket_;
  Callbacks callbacks_;
  MessageBytes bytes_ = {};
  std::size_t received_ = 0;  ///< bytes of the next message
  bool connecting_ = false;
};

}  // namespace plugfest::rdma_cm
