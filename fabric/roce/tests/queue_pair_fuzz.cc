// libFuzzer target: a connected queue pair that posts requests and receives packets.
//
// An input is a list of records: kind (1 byte, see Kind), length (2 bytes, little-endian), content (`length` bytes).
// In received packets, key 0 means the key of the memory region, key 1 the key of the memory window. Addresses
// are offsets into the region: the real values differ in each run. Both PSNs start at 0. The queue pair is RC unless
// the first record has kind kTransport.
//
// Invariant: each posted request and receive completes exactly once, in order, at the latest in state ERR.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kMemoryBytes = 1 << 16;
constexpr const char* kPeerAddress = "127.0.0.2";
constexpr std::uint32_t kQKey = 0x11111111;  // as in perftest and ibv_ud_pingpong

enum class Kind : std::uint8_t {
  kPacket,     ///< UDP payload of a received packet; destination queue pair and ICRC are ignored
  kSend,       ///< ibv_wr_opcode, send flags, length (2 bytes), remote offset (2 bytes)
  kReceive,    ///< length (2 bytes)
  kTime,       ///< n: 2^n microseconds pass
  kDrain,      ///< RTS to SQD, SQD or SQE to RTS
  kTransport,  ///< 1 for UC, 2 for UD (1 byte)
  kKinds
};

void require(bool holds) {
  if (!holds) std::abort();
}

// Reads an input; bytes beyond its end are 0.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint16_t two_bytes() {
    const std::uint8_t low = byte();
    return static_cast<std::uint16_t>(low | byte() << 8);
  }
  std::span<const std::byte> part(std::size_t length) {
    const auto part = bytes_.first(std::min(length, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return part;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Drops all packets that it sends.
Nic& nic() {
  static Nic instance(
      {.addresses = {address_of(loopback_address(1))}, .mtu_bytes = 65536, .faults = FaultPlan{.loss = 1}});
  return instance;
}

// Memory with a region and a memory window.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(ProtectionDomain& domain)
      : bytes_(std::make_unique<std::byte[]>(kMemoryBytes)),
        region_(domain, bytes_.get(), kMemoryBytes, address(), kAllAccess | IBV_ACCESS_MW_BIND),
        window_(domain, IBV_MW_TYPE_2) {}

  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.get()); }
  std::uint32_t region_key() const { return region_.key(); }
  std::uint32_t window_key() const { return window_.key(); }
  bool contains(const std::byte* start, std::size_t length) const {
    return start >= bytes_.get() && length <= static_cast<std::size_t>(bytes_.get() + kMemoryBytes - start);
  }

  void fill_bind_request(ibv_send_wr& request, std::uint64_t address, std::uint32_t length) {
    mw_.rkey = window_.key();
    mr_.lkey = region_.key();
    request.bind_mw.mw = &mw_;
    request.bind_mw.rkey = ibv_inc_rkey(mw_.rkey);
    request.bind_mw.bind_info = {&mr_, address, length, kAllAccess & ~unsigned{IBV_ACCESS_LOCAL_WRITE}};
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  MemoryRegion region_;
  MemoryWindow window_;
  ibv_mr mr_ = {};
  ibv_mw mw_ = {};
};

class FuzzedQueuePair {
 public:
  explicit FuzzedQueuePair(ibv_qp_type type)
      : type_(type), domain_(nic().memory()), completions_(nic().context(), 4096, {}), memory_(domain_) {
    QueuePairSettings settings;
    settings.type = type_;
    settings.send_queue = settings.receive_queue = &completions_;
    settings.capabilities = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64};
    settings.signal_all = true;
    queue_pair_ = std::make_unique<QueuePair>(nic().context(), domain_, settings);
    activate();
    arrival_ = {{address_of(kPeerAddress)}, address_of(loopback_address(1))};
  }

  void run(Input input) {
    while (!input.empty()) {
      const auto kind = static_cast<Kind>(input.byte() % static_cast<std::uint8_t>(Kind::kKinds));
      const std::uint16_t length = input.two_bytes();
      Input record(input.part(length));
      switch (kind) {
        case Kind::kPacket:
          deliver(record.part(length));
          break;
        case Kind::kSend:
          post_send(record);
          break;
        case Kind::kReceive:
          post_receive(record);
          break;
        case Kind::kTime:
          pass_time(record.byte());
          break;
        case Kind::kDrain:
          drain();
          break;
        default:
          break;
      }
      take_completions();
    }
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;
    require(queue_pair_->modify(attributes, IBV_QP_STATE) == 0);
    take_completions();
    require(sends_.empty() && receives_.empty());
  }

 private:
  void activate() {
    if (type_ == IBV_QPT_UD) {
      make_ready_for_datagrams(*queue_pair_, kQKey);
      recipient_ = std::make_unique<AddressHandle>(nic().context(), domain_, path_attributes(kPeerAddress));
    } else {
      connect(*queue_pair_, kPeerAddress, 0,
              {.type = type_,
               .path_mtu = IBV_MTU_256,
               .timeout = 14,
               .retry_count = 3,
               .rnr_retry = 3,
               .reads_in_flight = 2,
               .psn = 0});
    }
    require(queue_pair_->state() == IBV_QPS_RTS);
  }

  void deliver(std::span<const std::byte> bytes) {
    std::optional<Packet> packet = decode(bytes);
    if (!packet) return;
    if (packet->headers.key <= 1) {
      packet->headers.key = packet->headers.key == 0 ? memory_.region_key() : memory_.window_key();
      packet->headers.address += memory_.address();
    }
    const std::lock_guard lock(nic().context().lock);
    const Placement placement = queue_pair_->placement_for(packet->headers, arrival_);
    require(placement.memory == nullptr ||
            memory_.contains(placement.memory, placement.packets * queue_pair_->path_mtu_bytes()));
    queue_pair_->receive(*packet, arrival_, now_);
    queue_pair_->send_pending(now_);
  }

  void pass_time(std::uint8_t exponent) {
    const std::lock_guard lock(nic().context().lock);
    now_ += Nanoseconds{1000} << (exponent % 24);
    if (now_ >= queue_pair_->deadline()) queue_pair_->on_timer(now_);
  }

  void post_send(Input& record) {
    ibv_sge segment = {memory_.address(), 0, memory_.region_key()};
    ibv_send_wr request = {};
    request.wr_id = next_id_;
    request.opcode = static_cast<ibv_wr_opcode>(record.byte() % 16);
    request.send_flags = record.byte();
    request.sg_list = &segment;
    request.num_sge = 1;
    segment.length = record.two_bytes();
    const std::uint64_t remote = segment.addr + record.two_bytes();
    if (type_ == IBV_QPT_UD)
      request.wr.ud = {recipient_.get(), 0x123456, kQKey};
    else if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      request.wr.atomic = {remote, 1, 2, 1};
    else if (request.opcode == IBV_WR_BIND_MW)
      memory_.fill_bind_request(request, remote, segment.length);
    else if (request.opcode == IBV_WR_LOCAL_INV)
      request.invalidate_rkey = memory_.window_key();
    else
      request.wr.rdma = {remote, 1};
    ibv_send_wr* bad = nullptr;
    if (queue_pair_->post_send(&request, &bad) == 0) sends_.push_back(next_id_++);
  }

  void post_receive(Input& record) {
    ibv_sge segment = {memory_.address(), record.two_bytes(), memory_.region_key()};
    ibv_recv_wr request = {};
    request.wr_id = next_id_;
    request.sg_list = &segment;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (queue_pair_->post_receive(&request, &bad) == 0) receives_.push_back(next_id_++);
  }

  void drain() {
    ibv_qp_attr attributes = {};
    attributes.qp_state = queue_pair_->state() == IBV_QPS_RTS ? IBV_QPS_SQD : IBV_QPS_RTS;
    queue_pair_->modify(attributes, IBV_QP_STATE);
  }

  void take_completions() {
    ibv_wc completion = {};
    while (completions_.poll(1, &completion) == 1) {
      // The opcode of a failed completion is undefined.
      const bool is_send = !sends_.empty() && sends_.front() == completion.wr_id;
      std::deque<std::uint64_t>& posted = is_send ? sends_ : receives_;
      require(!posted.empty() && posted.front() == completion.wr_id);
      posted.pop_front();
    }
  }

  const ibv_qp_type type_;
  ProtectionDomain domain_;
  CompletionQueue completions_;
  RegisteredMemory memory_;
  std::unique_ptr<AddressHandle> recipient_;
  std::unique_ptr<QueuePair> queue_pair_;
  Arrival arrival_;
  Nanoseconds now_ = now_ns();
  std::uint64_t next_id_ = 0;
  std::deque<std::uint64_t> sends_;
  std::deque<std::uint64_t> receives_;
};

ibv_qp_type type_of(Input input) {
  if (input.byte() % static_cast<std::uint8_t>(Kind::kKinds) != static_cast<std::uint8_t>(Kind::kTransport))
    return IBV_QPT_RC;
  input.two_bytes();
  constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  return kTypes[input.byte() % std::size(kTypes)];
}

}  // namespace
}  // namespace plugfest::roce

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const plugfest::roce::Input input(std::as_bytes(std::span(data, size)));
  plugfest::roce::FuzzedQueuePair(plugfest::roce::type_of(input)).run(input);
  return 0;
}
