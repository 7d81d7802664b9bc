#include "harness/traffic/setup.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "harness/control/workload.h"
#include "harness/wire/protocol.h"

namespace plugfest::traffic {

namespace {

// Bytes of a slot of a pool, and slots for each channel (NCCL_P2P_NET_CHUNKSIZE, NCCL_SHARED_STEPS).
constexpr std::uint64_t kPoolSlot = 128 * 1024;
constexpr std::uint64_t kPoolSlots = 16;
// NCCL_MAX_TREE_ARITY.
constexpr std::size_t kMaxChildren = 3;
// Largest number of trials of the search for a ring, which takes exponential time in bad cases.
constexpr int kMaxTrials = 100'000;

struct Pool {
  std::size_t rank;
  bool sends;
  std::uint32_t gpu;
  auto operator<=>(const Pool&) const = default;
};

// The thread that makes a connection and registers its buffers. In NCCL each GPU has its own service thread.
std::string service_thread(const Connection& connection, bool sends) {
  const std::uint32_t gpu = sends ? connection.from_gpu : connection.to_gpu;
  return gpu == 0 ? wire::kServiceThread : wire::kServiceThread + std::to_string(gpu + 1);
}

}  // namespace

Team::Team(control::Lease& lease, bed::RankGroup group) : group_(std::move(group)) {
  devices_.assign(size(), std::vector<control::Device>(size()));
  std::map<std::string, control::Device> known;
  int max_receives = 0;
  for (std::size_t from = 0; from < size(); ++from) {
    ranks_.push_back(lease.rank(name(from)));
    for (std::size_t to = 0; to < size(); ++to) {
      const std::string& interface = group_.interfaces[from][to];
      if (interface.empty()) continue;
      const auto [device, is_new] = known.try_emplace(name(from) + " " + interface);
      if (is_new) {
        device->second = lease.endpoint(name(from), interface).device;
        const int receives = ranks_.back().properties(device->second).max_recvs;
        max_receives = max_receives == 0 ? receives : std::min(max_receives, receives);
      }
      devices_[from][to] = device->second;
    }
  }
  max_buffers_ = static_cast<std::uint32_t>(std::max(max_receives, 1));
}

std::vector<std::size_t> Team::ring_order() const {
  std::vector<std::size_t> order = {0};
  std::vector<bool> used(size());
  used[0] = true;
  int trials = 0;
  const auto extend = [&](const auto& self) -> bool {
    if (order.size() == size()) return reaches(order.back(), 0);
    for (std::size_t i = 1; i < size() && ++trials < kMaxTrials; ++i) {
      const std::size_t next = (order.back() + i) % size();
      if (used[next] || !reaches(order.back(), next)) continue;
      used[next] = true;
      order.push_back(next);
      if (self(self)) return true;
      order.pop_back();
      used[next] = false;
    }
    return false;
  };
  return extend(extend) ? order : std::vector<std::size_t>{};
}

std::vector<std::size_t> Team::tree() const {
  std::vector<std::size_t> parents(size(), size());
  std::vector<std::size_t> reached = {0};
  parents[0] = 0;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    std::size_t children = 0;
    for (std::size_t rank = 0; rank < size() && children < kMaxChildren; ++rank) {
      if (parents[rank] != size() || !reaches(reached[next], rank)) continue;
      parents[rank] = reached[next];
      reached.push_back(rank);
      ++children;
    }
  }
  return reached.size() == size() ? parents : std::vector<std::size_t>{};
}

bool Team::complete() const {
  for (std::size_t from = 0; from < size(); ++from) {
    for (std::size_t to = 0; to < size(); ++to)
      if (from != to && !reaches(from, to)) return false;
  }
  return true;
}

Setup::Setup(const Team& team, const Plan& plan) {
  connect(team, plan);
  register_buffers(team, plan);
}

void Setup::connect(const Team& team, const Plan& plan) {
  const std::vector<Connection>& connections = plan.connections();
  struct ThreadConnections {
    control::ConnectMany plan;
    // Connections of the plan, in the order of handles and of listeners.
    std::vector<std::size_t> connects, accepts;
  };
  std::map<std::pair<std::size_t, std::string>, ThreadConnections> per_thread;  // by rank and thread
  std::vector<control::Listener> listeners;
  const bool share = team.max_buffers() > 1;
  comms_.resize(connections.size());
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const Connection& connection = connections[i];
    control::Rank receiver = team.rank(connection.to).on(service_thread(connection, false));
    listeners.push_back(receiver.listen(team.device(connection.to, connection.from)));
    // Each user of a shared comm listens; the first one, which gives the comm its number, connects.
    if (share && connection.comm != i) continue;
    ThreadConnections& sender = per_thread[{connection.from, service_thread(connection, true)}];
    sender.plan.handles.push_back(listeners.back().handle());
    sender.plan.devices.push_back(team.device(connection.from, connection.to));
    sender.connects.push_back(i);
    ThreadConnections& accepting = per_thread[{connection.to, service_thread(connection, false)}];
    accepting.plan.listeners.push_back(listeners.back());
    accepting.accepts.push_back(i);
  }

  // NCCL's order (transport.cc: ncclTransportP2pSetup): by distance and channel, a GPU first connects to the GPU after
  // it, then accepts from the one before it. NCCL therefore runs on plugins whose accept waits for the peer's connect.
  const std::size_t all = team.size() * plan.gpus();
  const auto turn = [&](std::size_t i, bool accepts) {
    const Connection& connection = connections[i];
    const std::size_t from = connection.from * plan.gpus() + connection.from_gpu;
    const std::size_t to = connection.to * plan.gpus() + connection.to_gpu;
    return std::tuple((to + all - from) % all, connection.channel, accepts, i);
  };
  std::vector<std::pair<const ThreadConnections*, control::Started<control::ConnectManyOutcome>>> connecting;
  for (auto& [at, one] : per_thread) {
    std::vector<std::uint32_t>& order = one.plan.order;
    order.resize(one.connects.size() + one.accepts.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto place = [&, &one = one](std::uint32_t entry) {  // Clang 14 captures no structured bindings
      const bool connects = entry < one.connects.size();
      return connects ? turn(one.connects[entry], false) : turn(one.accepts[entry - one.connects.size()], true);
    };
    std::sort(order.begin(), order.end(), [&](auto left, auto right) { return place(left) < place(right); });
    connecting.emplace_back(&one, control::start_connecting(team.rank(at.first).on(at.second), one.plan));
  }
  for (auto& [one, started] : connecting) {
    const control::ConnectManyOutcome outcome = started.get();
    control::require_clean(outcome);
    for (std::size_t i = 0; i < one->connects.size(); ++i) comms_[one->connects[i]].send = outcome.send_comms[i];
    for (std::size_t i = 0; i < one->accepts.size(); ++i) comms_[one->accepts[i]].receive = outcome.recv_comms[i];
  }
  for (control::Listener& listener : listeners) listener.close();
  if (!share) return;
  for (std::size_t i = 0; i < connections.size(); ++i) comms_[i] = comms_[connections[i].comm];
}

wire::ReplayBuffer Setup::register_on(const control::Rank& rank, bool sends, std::uint64_t comm,
                                      const control::Memory& memory) {
  const auto& process = rank.rank_process();
  const std::uint64_t mhandle = sends ? control::SendComm(process, rank.thread(), comm).reg(memory).value()
                                      : control::RecvComm(process, rank.thread(), comm).reg(memory).value();
  return {memory.address(), memory.size(), mhandle};
}

void Setup::register_buffers(const Team& team, const Plan& plan) {
  ends_.resize(team.size());
  comms_of_threads_.resize(team.size());
  local_.assign(team.size(), std::vector<std::uint32_t>(plan.connections().size(), ~0u));
  std::map<Pool, control::Memory> pools;
  for (std::uint32_t i = 0; i < plan.connections().size(); ++i) {
    const Connection& connection = plan.connections()[i];
    for (const bool sends : {true, false}) {
      const std::size_t at = sends ? connection.from : connection.to;
      // The first user of a shared comm has made it.
      const Connection& maker = team.max_buffers() > 1 ? plan.connections()[connection.comm] : connection;
      const std::string thread = service_thread(maker, sends);
      control::Rank rank = team.rank(at).on(thread);
      wire::ReplayConnection end;
      end.id = i;
      end.sends = sends;
      end.comm = sends ? comms_[i].send : comms_[i].receive;
      comms_of_threads_[at][thread].insert(end.comm);
      end.tag = connection.tag;
      end.channel = connection.channel;
      end.shared = connection.shared;
      end.buffers.resize(3);
      end.peer = team.name(sends ? connection.to : connection.from);
      for (const ProxyProtocol protocol : connection.protocols) {
        wire::ReplayBuffer& buffer = end.buffers[static_cast<std::size_t>(protocol)];
        if (connection.shared && protocol == ProxyProtocol::kSimple) {
          const Pool pool{at, sends, sends ? connection.from_gpu : connection.to_gpu};
          auto memory = pools.find(pool);
          if (memory == pools.end()) {
            const std::uint64_t size = plan.channels() * kPoolSlots * kPoolSlot;
            memory = pools.emplace(pool, rank.allocate(size, control::Placement::kStart)).first;
          }
          buffer = register_on(rank, sends, end.comm, memory->second);
        } else {
          buffer = register_on(rank, sends, end.comm, rank.allocate(buffer_size(protocol), control::Placement::kStart));
        }
      }
      local_[at][i] = static_cast<std::uint32_t>(ends_[at].size());
      ends_[at].push_back(std::move(end));
    }
  }
}

void Setup::advance(std::size_t rank, const wire::ReplayReport& report) {
  for (std::size_t i = 0; i < ends_[rank].size(); ++i) {
    ends_[rank][i].step = report.steps.at(i);
    ends_[rank][i].messages = report.messages.at(i);
  }
}

}  // namespace plugfest::traffic
