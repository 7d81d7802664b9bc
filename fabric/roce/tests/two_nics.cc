#include "fabric/roce/tests/two_nics.h"

#include <chrono>
#include <optional>
#include <random>
#include <thread>

namespace plugfest::roce {

std::string loopback_address(int which) {
  const int process = getpid();
  return "127." + std::to_string(64 + (process >> 8) % 128) + "." + std::to_string(process % 256) + "." +
         std::to_string(which);
}

Side::Side(std::string its_address, std::size_t buffer_bytes, const FaultPlan& faults, ibv_qp_type type,
           const std::filesystem::path& device_folder, bool ecn)
    : address(std::move(its_address)),
      buffer(buffer_bytes),
      nic({.addresses = {address_of(address)},
           .mtu_bytes = 65536,
           .ecn = ecn,
           .device_folder = device_folder,
           .faults = faults}),
      domain(nic.memory()),
      completions(nic.context(), 1024, {}),
      region(std::make_unique<MemoryRegion>(domain, buffer.data(), buffer.size(), at(0), kAllAccess)) {
  QueuePairSettings settings;
  settings.type = type;
  settings.send_queue = settings.receive_queue = &completions;
  settings.capabilities = usual();
  settings.async = [](void* context, ibv_event_type event) {
    Side& side = *static_cast<Side*>(context);
    const std::lock_guard lock(side.events_mutex_);
    side.events_.push_back(event);
  };
  settings.context = this;
  queue_pair = std::make_unique<QueuePair>(nic.context(), domain, settings);
}

void connect(QueuePair& queue_pair, const std::string& remote_address, std::uint32_t remote_number,
             const Attributes& chosen) {
  constexpr int kResponderOnly = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kReliableOnly =
      kResponderOnly | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  const int taken = chosen.type == IBV_QPT_RC ? ~0 : chosen.type == IBV_QPT_XRC_SEND ? ~kResponderOnly : ~kReliableOnly;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = chosen.access;
  ASSERT_EQ(queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = chosen.path_mtu;
  attributes.dest_qp_num = remote_number;
  attributes.rq_psn = chosen.psn;
  attributes.max_dest_rd_atomic = chosen.reads_in_flight;
  attributes.min_rnr_timer = chosen.rnr_timer;
  attributes.ah_attr = path_attributes(remote_address);
  attributes.ah_attr.grh.traffic_class = chosen.traffic_class;
  constexpr int kToReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ASSERT_EQ(queue_pair.modify(attributes, kToReceive & taken), 0);
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = chosen.timeout;
  attributes.retry_cnt = chosen.retry_count;
  attributes.rnr_retry = chosen.rnr_retry;
  attributes.sq_psn = chosen.psn;
  attributes.max_rd_atomic = chosen.reads_in_flight;
  constexpr int kToSend =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  ASSERT_EQ(queue_pair.modify(attributes, kToSend & taken), 0);
}

void make_ready_for_datagrams(QueuePair& queue_pair, std::uint32_t q_key) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = q_key;
  ASSERT_EQ(queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  attributes.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(queue_pair.modify(attributes, IBV_QP_STATE), 0);
  attributes.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

int Side::post_receive(std::uint64_t id, std::size_t offset, std::uint32_t length) {
  ibv_sge segment = {at(offset), length, region->key()};
  ibv_recv_wr request = {};
  request.wr_id = id;
  request.sg_list = &segment;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return queue_pair->post_receive(&request, &bad);
}

namespace {

// True when all failed requests are in the completion queue.
bool in_error(const Side& side) {
  if (!side.queue_pair || side.queue_pair->state() != IBV_QPS_ERR) return false;
  ibv_qp_attr attributes;
  side.queue_pair->query(attributes);  // waits for the lock under which the queues are flushed
  return true;
}

// Only a failing test waits this long.
constexpr std::chrono::seconds kTimeout{10};

}  // namespace

void wait_for_error(const Side& side) {
  const auto start = std::chrono::steady_clock::now();
  while (!in_error(side)) {
    if (std::chrono::steady_clock::now() - start > kTimeout) {
      ADD_FAILURE() << "the queue pair did not go to ERR";
      return;
    }
    std::this_thread::yield();
  }
}

std::vector<ibv_wc> wait_for(Side& side, Side& other, std::size_t count) {
  // If the other queue pair fails, its last packet may still be in flight; stop after a time without packets.
  std::optional<std::chrono::steady_clock::time_point> other_failed;
  std::vector<ibv_wc> completions;
  while (completions.size() < count) {
    const auto now = std::chrono::steady_clock::now();
    if (!other_failed && in_error(other)) other_failed = now;
    const bool over = in_error(side) || (other_failed && now - *other_failed > kTimeout);
    ibv_wc completion = {};
    if (side.completions.poll(1, &completion) == 1) {
      completions.push_back(completion);
    } else if (over) {
      ADD_FAILURE() << completions.size() << " of " << count << " completions came before a queue pair failed";
      completion.status = IBV_WC_GENERAL_ERR;
      completions.resize(count, completion);
    }
    // Drives the other NIC without taking its completions.
    other.completions.poll(0, nullptr);
  }
  return completions;
}

void fill(std::vector<std::uint8_t>& buffer, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (auto& byte : buffer) byte = static_cast<std::uint8_t>(random());
}

Descriptor roce_socket(const std::string& address) {
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(kRoceUdpPort);
  name.sin_addr = address_of(address);
  const timeval timeout = {10, 0};
  if (setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0)
    throw std::runtime_error("cannot open a socket for RoCE packets");
  return socket;
}

}  // namespace plugfest::roce
