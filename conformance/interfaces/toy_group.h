// The group of ranks behind a communicator of the CollNet toy: rank 0 adds up the vectors of all ranks and returns the
// result over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/reduction/operation.h"
#include "fabric/system/file.h"

namespace plugfest::toy {

/// The listening sockets of a rank, one for each of its addresses.
class Listener {
 public:
  /// Errors: std::runtime_error.
  Listener();
  /// The addresses and ports, as many as fit into 128 bytes.
  std::vector<std::byte> handle() const;
  /// The next connection of a peer. Errors: std::runtime_error after `kSeconds` without one.
  Descriptor accept() const;

  static constexpr int kSeconds = 10;

 private:
  struct Place {
    std::uint32_t address;  ///< network byte order, as the port
    std::uint16_t port;
  };
  std::vector<Descriptor> sockets_;
  std::vector<Place> places_;
};

/// One reduction of a rank.
struct Vector {
  reduction::DataType type = reduction::DataType::kUnsigned8;
  reduction::Operator op = reduction::Operator::kSum;
  std::vector<std::byte> data;
};

/// All ranks reduce the same sequence of vectors. No call but the constructor waits. Thread safety: none.
class Group {
 public:
  /// Waits until all ranks have called it. `handles`: one for each rank. Errors: std::runtime_error.
  Group(const std::vector<std::vector<std::byte>>& handles, std::size_t rank, const Listener& listener);

  /// Contributes the next vector. Returns its number.
  std::uint64_t add(Vector own);
  /// The result of vector `number`, once. Errors: std::runtime_error if a peer has ended and it has not arrived.
  std::optional<std::vector<std::byte>> take(std::uint64_t number);

  std::size_t rank() const { return rank_; }

 private:
  // A connection: rank 0 has one for each other rank, these have one to rank 0.
  struct Peer {
    Descriptor socket;
    std::vector<std::byte> out, in;
    std::deque<std::vector<std::byte>> messages;
    bool ended = false;
  };
  void exchange(Peer& peer);
  void reduce();

  std::size_t ranks_, rank_;
  std::vector<Peer> peers_;
  std::deque<Vector> own_;  // what rank 0 itself contributes; empty in other ranks
  std::uint64_t added_ = 0, reduced_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> results_;
};

}  // namespace plugfest::toy
