// For tests: two NICs of one process on different loopback addresses, queue pairs between them, and forged packets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/wire/icrc.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

inline in_addr address_of(const std::string& text) {
  in_addr address = {};
  inet_pton(AF_INET, text.c_str(), &address);
  return address;
}

inline ibv_gid gid_of_address(in_addr address) {
  ibv_gid gid = {};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &address, 4);
  return gid;
}

/// The path of an address handle for an address.
inline ibv_ah_attr path_attributes(const std::string& address) {
  ibv_ah_attr attributes = {};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = gid_of_address(address_of(address));
  return attributes;
}

/// A loopback address that no other test on this machine uses at the same time, derived from the process id.
std::string loopback_address(int which);

constexpr unsigned kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Attributes {
  ibv_qp_type type = IBV_QPT_RC;
  ibv_mtu path_mtu = IBV_MTU_1024;
  /// 1 s, because a thread with the NIC's lock may wait long for a processor on a loaded machine.
  std::uint8_t timeout = 18;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t rnr_timer = 1;  ///< 10 µs
  std::uint8_t reads_in_flight = 4;
  unsigned access = kAllAccess;
  std::uint32_t psn = 0xfffff0;  ///< wraps after 16 packets
  FaultPlan faults = {};         ///< faults in both directions
  std::uint8_t traffic_class = 0;
  bool ecn_at_a = false;
  bool ecn_at_b = false;
};

/// Moves from RESET to RTS, connected to a queue pair of `remote_address`.
void connect(QueuePair& queue_pair, const std::string& remote_address, std::uint32_t remote_number,
             const Attributes& attributes);

/// Moves a datagram queue pair from RESET to RTS.
void make_ready_for_datagrams(QueuePair& queue_pair, std::uint32_t q_key);

/// One NIC with a completion queue, a queue pair and a buffer.
class Side {
 public:
  explicit Side(std::string address, std::size_t buffer_bytes = 1 << 20, const FaultPlan& faults = {},
                ibv_qp_type type = IBV_QPT_RC, const std::filesystem::path& device_folder = {}, bool ecn = false);

  static ibv_qp_cap usual() {
    return {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 128};
  }

  /// Moves the queue pair from RESET to RTS, connected to `peer`.
  void connect(const Side& peer, const Attributes& attributes) {
    roce::connect(*queue_pair, peer.address, peer.queue_pair->number(), attributes);
  }

  int post_receive(std::uint64_t id, std::size_t offset, std::uint32_t length);
  /// `changes` modifies the request before it is posted.
  template <typename Changes>
  int post_send(ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::uint32_t length, Changes changes) {
    ibv_sge segment = {at(offset), length, region->key()};
    ibv_send_wr request = {};
    request.wr_id = id;
    request.opcode = opcode;
    request.sg_list = &segment;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    changes(request);
    ibv_send_wr* bad = nullptr;
    const int error = queue_pair->post_send(&request, &bad);
    EXPECT_EQ(bad, error == 0 ? nullptr : &request);
    return error;
  }
  int post_send(ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::uint32_t length) {
    return post_send(opcode, id, offset, length, [](ibv_send_wr&) {});
  }

  /// Changes the state of the queue pair, without other attributes.
  int move_to(ibv_qp_state state) {
    ibv_qp_attr attributes = {};
    attributes.qp_state = state;
    return queue_pair->modify(attributes, IBV_QP_STATE);
  }

  /// Another reliable queue pair with the same completion queue.
  std::unique_ptr<QueuePair> another_queue_pair() {
    QueuePairSettings settings;
    settings.send_queue = settings.receive_queue = &completions;
    settings.capabilities = usual();
    return std::make_unique<QueuePair>(nic.context(), domain, settings);
  }

  /// Polls, without taking completions, until the NIC has counted `count`.
  void poll_until(std::uint64_t Counters::*counter, std::uint64_t count) {
    while (nic.counters().*counter < count) completions.poll(0, nullptr);
  }

  /// The next completion. Drives the NIC until it comes.
  ibv_wc next_completion() {
    ibv_wc completion = {};
    while (completions.poll(1, &completion) == 0) continue;
    return completion;
  }

  std::uint64_t at(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(buffer.data() + offset); }

  /// Asynchronous events so far.
  std::vector<ibv_event_type> events() const {
    const std::lock_guard lock(events_mutex_);
    return events_;
  }

 private:
  // Declared before the NIC, because the NIC's thread writes here until the NIC is destroyed.
  mutable std::mutex events_mutex_;
  std::vector<ibv_event_type> events_;

 public:
  std::string address;
  std::vector<std::uint8_t> buffer;
  Nic nic;
  ProtectionDomain domain;
  CompletionQueue completions;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<QueuePair> queue_pair;
};

/// Changes of a request for post_send(): the target of a WRITE or READ.
inline auto to(std::uint64_t address, std::uint32_t key) {
  return [=](ibv_send_wr& request) { request.wr.rdma = {address, key}; };
}
inline auto to(const Side& side, std::size_t offset = 0) { return to(side.at(offset), side.region->key()); }

/// Changes of a request for post_send(): the target and the operands of an atomic.
inline auto on_word(const Side& side, std::size_t offset, std::uint64_t compare_or_add, std::uint64_t swap = 0) {
  return [=, key = side.region->key(), address = side.at(offset)](ibv_send_wr& request) {
    request.wr.atomic = {address, compare_or_add, swap, key};
  };
}

/// Whether `length` bytes at `from` in the buffer of `sender` equal those at `to` in the buffer of `receiver`.
inline bool arrived(const Side& sender, const Side& receiver, std::size_t from, std::size_t to, std::size_t length) {
  return std::memcmp(sender.buffer.data() + from, receiver.buffer.data() + to, length) == 0;
}

/// Polls both sides until `side` has `count` completions.
std::vector<ibv_wc> wait_for(Side& side, Side& other, std::size_t count);

/// Waits until the queue pair of `side` is in ERR and has flushed its requests. The peer may receive the NAK before
/// that. Fails the test after a timeout.
void wait_for_error(const Side& side);

class TwoNics {
 public:
  explicit TwoNics(const Attributes& attributes = {}, std::size_t buffer_bytes = 1 << 20)
      : a(loopback_address(1), buffer_bytes, attributes.faults, attributes.type, {}, attributes.ecn_at_a),
        b(loopback_address(2), buffer_bytes, attributes.faults, attributes.type, {}, attributes.ecn_at_b) {
    a.connect(b, attributes);
    b.connect(a, attributes);
  }

  std::vector<ibv_wc> at_a(std::size_t count) { return wait_for(a, b, count); }
  std::vector<ibv_wc> at_b(std::size_t count) { return wait_for(b, a, count); }

  /// Posts a request with the arguments of Side::post_send(), and returns the next completion of that side.
  template <typename Changes = void (*)(ibv_send_wr&)>
  ibv_wc run_at_a(
      ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::uint32_t length,
      Changes changes = [](ibv_send_wr&) {}) {
    return run(a, b, a.post_send(opcode, id, offset, length, changes));
  }
  template <typename Changes = void (*)(ibv_send_wr&)>
  ibv_wc run_at_b(
      ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::uint32_t length,
      Changes changes = [](ibv_send_wr&) {}) {
    return run(b, a, b.post_send(opcode, id, offset, length, changes));
  }

  Side a;
  Side b;

 private:
  static ibv_wc run(Side& side, Side& other, int error) {
    if (error == 0) return wait_for(side, other, 1).front();
    ADD_FAILURE() << "the request was refused: " << std::strerror(error);
    ibv_wc refused = {};
    refused.status = IBV_WC_GENERAL_ERR;
    return refused;
  }
};

/// Two more queue pairs, connected to each other.
class SecondConnection {
 public:
  explicit SecondConnection(TwoNics& nics, const Attributes& attributes = {})
      : nics_(nics), a_(nics.a.another_queue_pair()), b_(nics.b.another_queue_pair()) {
    connect(*a_, nics.b.address, b_->number(), attributes);
    connect(*b_, nics.a.address, a_->number(), attributes);
  }

  /// Exchanges the queue pairs of this connection and of the NICs.
  void swap() {
    nics_.a.queue_pair.swap(a_);
    nics_.b.queue_pair.swap(b_);
  }

 private:
  TwoNics& nics_;
  std::unique_ptr<QueuePair> a_;
  std::unique_ptr<QueuePair> b_;
};

/// Fills a buffer with bytes that depend on position and seed.
void fill(std::vector<std::uint8_t>& buffer, std::uint32_t seed);

/// A socket that receives the RoCE packets for an address without a NIC. Receive calls fail after 10 s.
Descriptor roce_socket(const std::string& address);

/// A socket that sends RoCE packets with any content from any address of this host.
class Forger {
 public:
  explicit Forger(const std::string& source)
      : source_(address_of(source)), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr = source_;
    socklen_t length = sizeof(name);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&name), length) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &length) != 0)
      throw std::runtime_error("forged packets: cannot open a socket");
    port_ = ntohs(name.sin_port);
  }
  ~Forger() { close(socket_); }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  /// Sends a valid packet after `damage` has modified its bytes.
  void send(const std::string& to, const Headers& headers, std::size_t payload_bytes,
            const std::function<void(std::vector<std::byte>&)>& damage = nullptr) const {
    std::vector<std::byte> packet(kMaxHeaderBytes);
    packet.resize(encode(headers, packet.data()));
    const std::size_t header_bytes = packet.size();
    packet.resize(header_bytes + payload_bytes, std::byte{0x5a});
    const in_addr destination = address_of(to);
    const Flow flow = {Address(source_), Address(destination), port_, kRoceUdpPort};
    std::uint32_t icrc = start_icrc(flow, 0, packet.size() + kIcrcBytes, packet.data(), header_bytes);
    icrc = crc32(icrc, packet.data() + header_bytes, payload_bytes);
    for (std::size_t i = 0; i < kIcrcBytes; ++i) packet.push_back(static_cast<std::byte>(icrc >> (8 * i)));
    if (damage) damage(packet);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(kRoceUdpPort);
    name.sin_addr = destination;
    if (sendto(socket_, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&name), sizeof(name)) < 0)
      throw std::runtime_error("forged packets: cannot send");
  }

 private:
  in_addr source_;
  int socket_;
  std::uint16_t port_ = 0;
};

}  // namespace plugfest::roce
