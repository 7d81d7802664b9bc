#include "harness/bench/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "fabric/system/number.h"

namespace plugfest::bench {
namespace {

bool is_wanted(const Settings& settings, const Row& row) {
  return settings.only.empty() ||
         std::find(settings.only.begin(), settings.only.end(), row.name) != settings.only.end();
}

bool is_wanted(const Settings& settings, const Measurement& measurement) {
  return std::any_of(measurement.rows.begin(), measurement.rows.end(),
                     [&](const Row& row) { return is_wanted(settings, row); });
}

bool stopped(const Settings& settings) { return settings.stop != nullptr && *settings.stop; }

constexpr Aim at_least(Aim::Of of, double value) { return {of, Aim::Bound::kAtLeast, value}; }
constexpr Aim at_most(Aim::Of of, double value) { return {of, Aim::Bound::kAtMost, value}; }
constexpr auto kRatio = Aim::Of::kRatio;
constexpr auto kFigure = Aim::Of::kFigure;

constexpr int kMessageBytes = 1 << 20;
constexpr double kPortGbits = 10;
constexpr int kIterationsPerSecond = 5000;  // iterations of a latency test; an idle machine is faster

// BTH and ICRC: the overhead of a WRITE's middle packet.
constexpr int kPacketOverheadBytes = 16;
// The fraction of the ceiling that the NIC must reach.
constexpr double kOfCeiling = 0.95;

double mean(double before, double after) { return (before + after) / 2; }

// The first and last `margin` of `seconds` do not count.
Words bandwidth_of(const std::string& program, int path_mtu, int seconds, int margin = 0) {
  return words("{} -d roce_eth0 -F --report_gbits -m {} -s {} -D {} -f {}", program, path_mtu, kMessageBytes, seconds,
               margin);
}

double bandwidth(BenchHosts& hosts, const Words& argv, const Environment& environment = {}) {
  return read_bandwidth(argv[0], hosts.perftest(argv, environment)).gbits_per_second;
}

Measurement against_ceiling(const std::string& row, const std::string& program, int mtu, int path_mtu) {
  const std::string measure = fmt::format("{}, 1 MiB, path MTU {}", program, path_mtu);
  const int packet = path_mtu + kPacketOverheadBytes;
  return {.topology = fmt::format("pair:mtu={}", mtu),
          .programs = {program},
          .rows = {{row, measure, "Gbit/s",
                    fmt::format("bare program with CRC, window and acknowledgements, {}-byte packets", packet),
                    at_least(kRatio, kOfCeiling)},
                   {row + "-udp", measure, "Gbit/s", fmt::format("raw UDP, GSO and GRO, {}-byte packets", packet), {}}},
          .take = [program, path_mtu, packet](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const auto udp = [&](bool checked) {
              // With GSO, one call sends as many packets as fit into one datagram.
              return hosts.udp(packet, std::min(64, 65'000 / packet), seconds / 2.0, checked);
            };
            const double raw = udp(false), ceiling = udp(true);
            const double figure = bandwidth(hosts, bandwidth_of(program, path_mtu, seconds));
            const double ceiling_after = udp(true);
            return {{figure, mean(ceiling, ceiling_after)}, {figure, mean(raw, udp(false))}};
          }};
}

Measurement against_tcp() {
  return {.topology = "pair:mtu=9000",
          .programs = {"ib_write_bw", "iperf3"},
          .rows = {{"write-bw-tcp", "ib_write_bw, 1 MiB, path MTU 4096", "Gbit/s", "iperf3, TCP, one stream", {}}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const double before = hosts.tcp(seconds);
            const double figure = bandwidth(hosts, bandwidth_of("ib_write_bw", 4096, seconds));
            return {{figure, mean(before, hosts.tcp(seconds))}};
          }};
}

Measurement latency(const std::string& row, const std::string& program, int bytes, bool memory, double aim) {
  return {.topology = "pair:mtu=9000",
          .programs = {program},
          .rows = {{row, program + ", 8 bytes, p50", "µs",
                    memory ? "raw UDP, polling memory that a sleeping thread writes" : "raw UDP, polling recv",
                    at_most(kRatio, aim)}},
          .take = [program, bytes, memory](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const int iterations = kIterationsPerSecond * seconds;
            const double before = hosts.raw_latency(bytes, memory, iterations);
            const Words argv = words("{} -d roce_eth0 -F -s 8 -n {}", program, iterations);
            const double figure = read_latency(program, hosts.perftest(argv)).median_us;
            return {{figure, mean(before, hosts.raw_latency(bytes, memory, iterations))}};
          }};
}

Measurement message_rate() {
  constexpr int kPacketBytes = 40;
  return {.topology = "pair:mtu=9000",
          .programs = {"ib_write_bw"},
          .rows = {{"message-rate", "ib_write_bw, 8 bytes, 64 outstanding", "M/s",
                    fmt::format("raw UDP, {}-byte packets, one per call", kPacketBytes), at_least(kRatio, 2)}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const auto raw = [&] { return hosts.udp(kPacketBytes, 1, seconds / 2.0) * 1e3 / 8 / kPacketBytes; };
            const double before = raw();
            const Words argv = words("ib_write_bw -d roce_eth0 -F --report_gbits -s 8 -t 64 -D {} -f 0", seconds);
            const double figure = read_bandwidth(argv[0], hosts.perftest(argv)).million_messages_per_second;
            return {{figure, mean(before, raw())}};
          }};
}

Measurement limited_link() {
  return {.topology = "pair:mtu=9000,rate=10Gbit",
          .programs = {"ib_write_bw", "iperf3"},
          .rows = {{"limited-bw", "ib_write_bw, 1 MiB, link of 10 Gbit/s by TBF", "Gbit/s", "iperf3, TCP, same link",
                    at_least(kRatio, 0.95)},
                   {"limited-repeats", "the same: retransmitted packets", "%", "", at_most(kFigure, 1)}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const double before = hosts.tcp(seconds);
            const int messages = static_cast<int>(seconds * kPortGbits * 1e9 / 8 / kMessageBytes);
            const roce::Counters counted_before = hosts.counters(1);
            const Words argv =
                words("ib_write_bw -d roce_eth0 -F --report_gbits -m 4096 -s {} -n {}", kMessageBytes, messages);
            const double figure = bandwidth(hosts, argv);
            const roce::Counters counted = hosts.counters(1);
            const auto sent = static_cast<double>(counted.sent_packets - counted_before.sent_packets);
            const auto repeated =
                static_cast<double>(counted.retransmitted_packets - counted_before.retransmitted_packets);
            return {{figure, mean(before, hosts.tcp(seconds))}, {repeated / sent * 100}};
          }};
}

Measurement incast() {
  return {.topology = "star:5,mtu=9000,rate=10Gbit",
          .programs = {"ib_write_bw"},
          .rows = {{"incast-total", "four ib_write_bw into one host, switch port of 10 Gbit/s", "Gbit/s", "the port",
                    at_least(kRatio, 0.9)},
                   {"incast-unfairness", "the same: largest deviation from the mean", "%", "", at_most(kFigure, 25)}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            // Only the middle counts, because the senders do not start and end at the same time.
            const Words argv = bandwidth_of("ib_write_bw", 4096, 2 * seconds + 2, 1);
            std::vector<double> shares;
            for (const std::string& output : hosts.perftest_into_one(argv))
              shares.push_back(read_bandwidth(argv[0], output).gbits_per_second);
            const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
            const double fair = total / static_cast<double>(shares.size());
            double largest = 0;
            for (const double share : shares) largest = std::max(largest, std::abs(share / fair - 1));
            return {{total, kPortGbits}, {largest * 100}};
          }};
}

Measurement loss(const std::string& percent, Aim aim) {
  return {.topology = "pair:mtu=9000",
          .programs = {"ib_write_bw"},
          .rows = {{"loss-" + percent, fmt::format("ib_write_bw, 1 MiB, {}% packet loss in both directions", percent),
                    "Gbit/s", "the same without loss", aim}},
          .take = [percent](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const Words argv = bandwidth_of("ib_write_bw", 4096, seconds);
            const double before = bandwidth(hosts, argv);
            const double figure = bandwidth(hosts, argv, {{"PLUGFEST_ROCE_FAULTS", fmt::format("loss={}%", percent)}});
            return {{figure, mean(before, bandwidth(hosts, argv))}};
          }};
}

Measurement idle() {
  return {.topology = "pair:mtu=9000",
          .programs = {},
          .rows = {{"idle-cpu", "idle process with 256 connected queue pairs", "% CPU", "", at_most(kFigure, 0.1)},
                   {"idle-memory", "the same: resident memory per queue pair", "KiB", "", at_most(kFigure, 64)}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const std::string probe = program("plugfest-idle-probe");
            const std::string output = hosts.run(0, {probe, "256", std::to_string(seconds)});
            return {{read_named(probe, output, "cpu_percent")}, {read_named(probe, output, "kib_per_queue_pair")}};
          }};
}

Measurement many_queue_pairs() {
  constexpr int kFew = 10, kMany = 30'000;
  return {.topology = "pair:mtu=9000",
          .programs = {},
          .rows = {{"queue-pairs", fmt::format("WRITE of 8 bytes in turn on {} queue pairs", kMany), "µs",
                    fmt::format("on {} queue pairs", kFew), at_most(kRatio, 1.5)}},
          .take = [](BenchHosts& hosts, int seconds) -> std::vector<Sample> {
            const auto write_us = [&](int queue_pairs) {
              const std::string probe = program("plugfest-idle-probe");
              return read_named(probe, hosts.run(0, {probe, std::to_string(queue_pairs), std::to_string(seconds)}),
                                "write_us");
            };
            const double before = write_us(kFew);
            const double figure = write_us(kMany);
            return {{figure, mean(before, write_us(kFew))}};
          }};
}

}  // namespace

bool Aim::met_by(double figure, std::optional<double> ratio) const {
  const double value_of = of == Of::kRatio ? ratio.value_or(0) : figure;
  return bound == Bound::kAtLeast ? value_of >= value : value_of <= value;
}

std::string Aim::text() const {
  if (of == Of::kNothing) return "";
  return fmt::format("{} {:g}", bound == Bound::kAtLeast ? "≥" : "≤", value);
}

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const Measurement& measurement : measurements())
    all.insert(all.end(), measurement.rows.begin(), measurement.rows.end());
  return all;
}

RowResult summarize(const Row& row, std::vector<Sample> rounds) {
  std::vector<double> figures, references, ratios;
  for (const Sample& sample : rounds) {
    figures.push_back(sample.figure);
    if (!sample.reference) continue;
    references.push_back(*sample.reference);
    ratios.push_back(sample.figure / *sample.reference);
  }
  RowResult result{.row = row, .rounds = std::move(rounds), .figure = median(figures)};
  if (!ratios.empty()) {
    result.reference = median(references);
    result.ratio = median(ratios);
  }
  if (row.aim.of != Aim::Of::kNothing) result.met = row.aim.met_by(result.figure, result.ratio);
  return result;
}

void check(const Settings& settings) {
  std::vector<std::string> known;
  for (const Row& row : rows()) known.push_back(row.name);
  for (const std::string& name : settings.only)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw std::runtime_error(fmt::format("no row \"{}\": expected one of {}", name, fmt::join(known, ", ")));
  Words programs;
  for (const Measurement& measurement : measurements())
    if (is_wanted(settings, measurement))
      programs.insert(programs.end(), measurement.programs.begin(), measurement.programs.end());
  require_programs(programs);
}

std::vector<RowResult> run(const Settings& settings) {
  std::vector<RowResult> results;
  for (const Measurement& measurement : measurements()) {
    if (!is_wanted(settings, measurement) || stopped(settings)) continue;
    BenchHosts hosts(measurement.topology);
    std::vector<std::vector<Sample>> rounds(measurement.rows.size());
    for (int round = 0; round < settings.rounds && !stopped(settings); ++round) {
      try {
        const std::vector<Sample> samples = measurement.take(hosts, settings.seconds);
        for (std::size_t i = 0; i < rounds.size(); ++i) rounds[i].push_back(samples.at(i));
      } catch (const std::runtime_error&) {
        if (!stopped(settings)) throw;  // Ctrl-C also ends the programs of the measurement
      }
    }
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (!is_wanted(settings, measurement.rows[i]) || rounds[i].empty()) continue;
      results.push_back(summarize(measurement.rows[i], std::move(rounds[i])));
      if (settings.on_result) settings.on_result(results.back());
    }
  }
  return results;
}

const std::vector<Measurement>& measurements() {
  static const std::vector<Measurement> all = {
      against_ceiling("write-bw-4096", "ib_write_bw", 9000, 4096),
      against_tcp(),
      against_ceiling("write-bw-1024", "ib_write_bw", 1500, 1024),
      against_ceiling("read-bw-4096", "ib_read_bw", 9000, 4096),
      latency("send-lat", "ib_send_lat", 24, false, 1.4),
      latency("write-lat", "ib_write_lat", 40, true, 1.5),
      message_rate(),
      limited_link(),
      incast(),
      loss("0.01", {}),
      loss("0.1", {}),
      loss("1", at_least(kRatio, 0.25)),
      idle(),
      many_queue_pairs(),
  };
  return all;
}

}  // namespace plugfest::bench
