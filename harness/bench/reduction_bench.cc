#include "harness/bench/reduction_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fabric/netns/host_process.h"
#include "fabric/reduction/processes.h"
#include "fabric/system/scratch_folder.h"
#include "fabric/system/text.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/reduction.h"
#include "harness/bench/bench_hosts.h"
#include "harness/traffic/collective.h"
#include "harness/traffic/setup.h"

namespace plugfest::bench {
namespace {

constexpr std::uint64_t kLargeBytes = 16 << 20;
constexpr std::uint64_t kSmallBytes = 8;
constexpr int kLargeOperations = 2;
constexpr int kSmallOperations = 20;
constexpr int kGroups = 16;
constexpr std::uint64_t kGroupBytes = 2 << 20;  // fills the windows of a node
constexpr double kMiB = 1 << 20;
constexpr const char* kRing = "ring of plugfest coll";
constexpr std::chrono::milliseconds kPollInterval{10};

// Time of one operation, and the most bytes of any host's links in one operation, divided by the bytes of the vector.
struct Measured {
  double seconds = 0;
  double sent = 0;
  double received = 0;
};

// Bytes of an interface so far.
struct Traffic {
  double received = 0;
  double sent = 0;
};

std::map<std::string, Traffic> traffic_of_this_host() {
  std::map<std::string, Traffic> result;
  std::ifstream rows("/proc/thread-self/net/dev");
  for (std::string row; std::getline(rows, row);) {
    const std::size_t colon = row.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream name(row.substr(0, colon)), numbers(row.substr(colon + 1));
    std::string interface;
    name >> interface;
    Traffic& traffic = result[interface];
    numbers >> traffic.received;
    for (int i = 0; i < 8; ++i) numbers >> traffic.sent;  // the ninth number
  }
  return result;
}

// The allreduce of `plugfest coll`.
class Ring {
 public:
  Ring(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits)
      : session_(bed.launcher(), bed.subject(plugin, 0), limits),
        lease_(session_.lease()),
        team_(lease_, bed.hosts()),
        collective_(team_, allreduce(), traffic::Algorithm::kRing, kLargeBytes, 1) {}

  double seconds(std::uint64_t bytes, int operations, const std::atomic<bool>* stop) {
    const auto protocol = bytes == kSmallBytes ? traffic::ProxyProtocol::kLl : traffic::ProxyProtocol::kSimple;
    const traffic::Timing timing =
        collective_.measure(collective_.rounded(bytes), protocol, static_cast<std::size_t>(operations), stop);
    if (timing.wrong > 0) throw std::runtime_error(fmt::format("ring: {} elements are wrong", timing.wrong));
    return timing.seconds;
  }

 private:
  static const traffic::CollectiveKind& allreduce() {
    const auto& all = traffic::collectives();
    return *std::find_if(all.begin(), all.end(), [](const auto& kind) { return kind.name == "allreduce"; });
  }

  control::Session session_;
  control::Lease lease_;
  traffic::Team team_;
  traffic::Collective collective_;
};

// Probes, one in each host.
class Tree {
 public:
  explicit Tree(bed::TestBed& bed) : bed_(bed), environment_(bed::roce_environment()) {
    bed::add_reduction(bed.graph(), environment_);
  }

  double seconds(std::uint64_t bytes, int operations) {
    std::deque<netns::HostProcess> ranks = start("measure", bytes, static_cast<std::uint64_t>(operations));
    double sum = 0;
    for (netns::HostProcess& rank : ranks) {
      const std::string output = output_of(rank);
      if (read_named("plugfest-reduction-probe", output, "wrong") != 0)
        throw std::runtime_error(fmt::format("in-network reduction: wrong elements in {}:\n{}", rank.host(), output));
      sum += read_named("plugfest-reduction-probe", output, "seconds");
    }
    return sum / static_cast<double>(ranks.size());
  }

  // The largest node, while kGroups groups exist that have filled their windows.
  double node_memory(const std::atomic<bool>* stop) {
    std::deque<netns::HostProcess> ranks = start("hold", kGroups, kGroupBytes);
    for (netns::HostProcess& rank : ranks) {
      while (rank.output().find("held") == std::string::npos) {
        if (rank.has_exited()) output_of(rank);
        if (stop != nullptr && *stop) return 0;
        std::this_thread::sleep_for(kPollInterval);
      }
    }
    double largest = 0;
    for (const reduction::NodeReport& report : reduction::read_reports(bed_.fabric()))
      largest = std::max(largest, static_cast<double>(report.memory_bytes));
    return largest / kMiB;
  }

 private:
  std::deque<netns::HostProcess> start(const std::string& mode, std::uint64_t first, std::uint64_t second) {
    const auto& hosts = bed_.graph().hosts;
    const std::string socket = folder_ / fmt::format("ranks-{}", ++runs_);
    std::deque<netns::HostProcess> ranks;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      ranks.emplace_back(bed_.fabric(), hosts[rank].name,
                         Words{program("plugfest-reduction-probe"), fmt::to_string(rank), fmt::to_string(hosts.size()),
                               socket, mode, fmt::to_string(first), fmt::to_string(second)},
                         environment_);
    return ranks;
  }

  static std::string output_of(netns::HostProcess& rank) {
    const Finished finished = rank.wait();
    if (finished.exit_code != 0)
      throw std::runtime_error(fmt::format("plugfest-reduction-probe in host {} ended with exit code {}:\n{}",
                                           rank.host(), finished.exit_code, finished.output));
    return finished.output;
  }

  bed::TestBed& bed_;
  control::Environment environment_;
  ScratchFolder folder_;
  int runs_ = 0;
};

// Runs `measure`, which executes `operations` of `bytes` and returns the seconds of one.
template <typename Measure>
Measured with_traffic(bed::TestBed& bed, std::uint64_t bytes, int operations, Measure measure) {
  const auto all = [&] {
    std::vector<std::map<std::string, Traffic>> hosts;
    for (const topology::Host& host : bed.graph().hosts)
      bed.fabric().call(host.name, [&] { hosts.push_back(traffic_of_this_host()); });
    return hosts;
  };
  const std::vector<std::map<std::string, Traffic>> before = all();
  Measured measured{.seconds = measure()};
  const std::vector<std::map<std::string, Traffic>> after = all();
  const double total = static_cast<double>(bytes) * operations;
  for (std::size_t i = 0; i < after.size(); ++i) {
    for (const auto& [interface, now] : after[i]) {
      const Traffic& then = before[i].at(interface);
      measured.sent = std::max(measured.sent, (now.sent - then.sent) / total);
      measured.received = std::max(measured.received, (now.received - then.received) / total);
    }
  }
  return measured;
}

const std::vector<Row>& reduction_rows() {
  static const Aim none = {};
  static const std::vector<Row> rows = {
      {"sent",
       "allreduce of 16 MiB: bytes that a host sends, per byte of the vector",
       "",
       kRing,
       {Aim::Of::kFigure, Aim::Bound::kAtMost, 1.1}},
      {"received", "the same: bytes that a host receives", "", kRing, none},
      {"time", "the same: time", "ms", kRing, {Aim::Of::kRatio, Aim::Bound::kAtMost, 0.65}},
      {"time-8", "allreduce of 8 bytes: time", "ms", kRing, {Aim::Of::kRatio, Aim::Bound::kAtMost, 0.5}},
      {"node-memory",
       fmt::format("memory of one aggregation node with {} groups", kGroups),
       "MiB",
       "",
       {Aim::Of::kFigure, Aim::Bound::kAtMost, 32}},
  };
  return rows;
}

// The samples of one round, in the order of reduction_rows().
std::vector<Sample> take(bed::TestBed& bed, Ring& ring, Tree& tree, bool ring_first, const std::atomic<bool>* stop) {
  Measured large_ring, large_tree;
  double small_ring = 0, small_tree = 0;
  const auto measure_ring = [&] {
    // Besides the measured operations, the ring runs two, and the tree one.
    large_ring = with_traffic(bed, kLargeBytes, kLargeOperations + 2,
                              [&] { return ring.seconds(kLargeBytes, kLargeOperations, stop); });
    small_ring = ring.seconds(kSmallBytes, kSmallOperations, stop);
  };
  const auto measure_tree = [&] {
    large_tree = with_traffic(bed, kLargeBytes, kLargeOperations + 1,
                              [&] { return tree.seconds(kLargeBytes, kLargeOperations); });
    small_tree = tree.seconds(kSmallBytes, kSmallOperations);
  };
  if (ring_first) measure_ring();
  measure_tree();
  if (!ring_first) measure_ring();
  return {{large_tree.sent, large_ring.sent},
          {large_tree.received, large_ring.received},
          {large_tree.seconds * 1e3, large_ring.seconds * 1e3},
          {small_tree * 1e3, small_ring * 1e3},
          {tree.node_memory(stop)}};
}

}  // namespace

std::string limited_topology(const std::string& specification, const std::string& rate) {
  const bool is_file = is_yaml_file(specification);
  const bool has_rate = is_file || specification.find("rate=") != std::string::npos;
  if (has_rate && !rate.empty())
    throw std::runtime_error(
        fmt::format("--rate {}: topology {} sets its rates: leave out --rate", rate, specification));
  if (is_file) return specification;
  std::string result = specification;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (specification.find(name + "=") != std::string::npos) return;
    result += fmt::format("{}{}={}", result.find(':') == std::string::npos ? ':' : ',', name, value);
  };
  add("mtu", "9000");
  add("rate", rate.empty() ? "200Mbit" : rate);
  return result;
}

std::vector<RowResult> run_reduction_bench(bed::TestBed& bed, const std::string& plugin, const control::Limits& limits,
                                           const ReductionSettings& settings) {
  const std::vector<Row>& rows = reduction_rows();
  const auto stopped = [&] { return settings.stop != nullptr && *settings.stop; };
  std::vector<std::vector<Sample>> rounds(rows.size());
  Ring ring(bed, plugin, limits);
  Tree tree(bed);
  for (int round = 0; round < settings.rounds && !stopped(); ++round) {
    try {
      const std::vector<Sample> samples = take(bed, ring, tree, round % 2 == 0, settings.stop);
      if (stopped()) break;
      for (std::size_t i = 0; i < rows.size(); ++i) rounds[i].push_back(samples[i]);
    } catch (const std::runtime_error&) {
      if (!stopped()) throw;  // Ctrl-C also ends the probes
    }
  }
  std::vector<RowResult> results;
  for (std::size_t i = 0; i < rows.size() && !rounds[i].empty(); ++i) {
    results.push_back(summarize(rows[i], std::move(rounds[i])));
    if (settings.on_result) settings.on_result(results.back());
  }
  return results;
}

}  // namespace plugfest::bench
