// Measures the CPU time and memory of idle connected queue pairs on the first device, and the time of a small WRITE.
//
//   plugfest-idle-probe QUEUE_PAIRS SECONDS
//
// The process connects its queue pairs to one another. Each sends one message first, because the NIC creates some
// resources on first use.
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/bench/udp_socket.h"

namespace {

template <typename Object>
Object* require(Object* object, const char* what) {
  if (object == nullptr) throw std::runtime_error(std::string("cannot create ") + what);
  return object;
}

void check(int error, const char* what) {
  if (error != 0) throw std::runtime_error(fmt::format("{}: error {}", what, error));
}

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_kib() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

void connect(ibv_qp* queue_pair, std::uint32_t peer, const ibv_gid& gid) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check(ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "INIT");
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid;
  check(ibv_modify_qp(queue_pair, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  check(ibv_modify_qp(queue_pair, &attributes,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC),
        "RTS");
}

int idle(std::size_t count, double seconds) {
  int devices = 0;
  ibv_device** const list = ibv_get_device_list(&devices);
  if (list == nullptr || devices == 0) throw std::runtime_error("no device");
  ibv_context* const context = require(ibv_open_device(list[0]), "a context");
  ibv_pd* const domain = require(ibv_alloc_pd(context), "a protection domain");
  ibv_cq* const completions = require(ibv_create_cq(context, static_cast<int>(count), nullptr, nullptr, 0), "a queue");
  std::array<char, 64> memory = {};
  ibv_mr* const region = require(
      ibv_reg_mr(domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "a region");
  ibv_gid gid = {};
  check(ibv_query_gid(context, 1, 0, &gid), "GID");

  const double before_kib = resident_kib();
  std::vector<ibv_qp*> queue_pairs;
  for (std::size_t i = 0; i < count; ++i) {
    ibv_qp_init_attr attributes = {};
    attributes.send_cq = attributes.recv_cq = completions;
    attributes.cap = {
        .max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attributes.qp_type = IBV_QPT_RC;
    queue_pairs.push_back(require(ibv_create_qp(domain, &attributes), "a queue pair"));
  }
  for (std::size_t i = 0; i < count; ++i) connect(queue_pairs[i], queue_pairs[i ^ 1]->qp_num, gid);
  const auto write_on_each = [&] {
    for (ibv_qp* const queue_pair : queue_pairs) {
      ibv_sge piece = {reinterpret_cast<std::uintptr_t>(memory.data()), 8, region->lkey};
      ibv_send_wr request = {};
      request.sg_list = &piece;
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.send_flags = IBV_SEND_SIGNALED;
      request.wr.rdma = {reinterpret_cast<std::uintptr_t>(memory.data()) + 8, region->rkey};
      ibv_send_wr* bad = nullptr;
      check(ibv_post_send(queue_pair, &request, &bad), "post");
      ibv_wc completion = {};
      while (ibv_poll_cq(completions, 1, &completion) == 0) {
      }
      check(completion.status, "completion");
    }
  };
  write_on_each();
  const double after_kib = resident_kib();
  const double busy_before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double busy = cpu_seconds() - busy_before;
  // Each WRITE is on another queue pair than the one before, and begins when that one is complete.
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double, std::micro> writing{};
  std::size_t writes = 0;
  for (; writing.count() < seconds * 1e6; writes += count) {
    write_on_each();
    writing = std::chrono::steady_clock::now() - start;
  }
  fmt::print("cpu_percent {}\nkib_per_queue_pair {}\nwrite_us {}\n", busy / seconds * 100,
             (after_kib - before_kib) / static_cast<double>(count), writing.count() / static_cast<double>(writes));
  return 0;
}

std::optional<int> run(const std::vector<std::string>& words) {
  if (words.size() != 2) return std::nullopt;
  const std::size_t count = std::stoul(words[0]);
  if (count == 0 || count % 2 != 0) throw std::runtime_error("expected an even number of queue pairs");
  return idle(count, std::stod(words[1]));
}

}  // namespace

int main(int argc, char** argv) {
  return plugfest::bench::run_probe(argc, argv, "plugfest-idle-probe", "QUEUE_PAIRS SECONDS", run);
}
