#include "harness/bench/bench_hosts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/netns/host_process.h"
#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/topology/graph.h"
#include "harness/report/text.h"

namespace plugfest::bench {
namespace {

[[noreturn]] void fail(std::string_view program, std::string_view output) {
  throw std::runtime_error(fmt::format("no result in the output of {}:\n{}", program, output));
}

// The numbers of the line after the heading "#bytes …".
std::vector<double> result_line(std::string_view program, std::string_view output, std::size_t columns) {
  bool after_heading = false;
  for (const std::string& line : report::lines_of(output)) {
    if (line.find("#bytes") != std::string::npos) {
      after_heading = true;
      continue;
    }
    if (!after_heading) continue;
    std::istringstream words(line);
    std::vector<double> numbers;
    for (double number; words >> number;) numbers.push_back(number);
    if (numbers.size() >= columns) return numbers;
  }
  fail(program, output);
}

using netns::HostProcess;

constexpr std::uint16_t kExchangePort = 18515;  // perftest's default
constexpr std::uint16_t kIperfPort = 5201;
constexpr std::uint16_t kProbePort = 4791;

netns::Options with_sysfs_view() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { roce::verbs::show_nics_of_this_host(); };
  return options;
}

std::filesystem::path build_folder() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

Environment with_our_nic(Environment environment) {
  environment.emplace_back("LD_LIBRARY_PATH", (build_folder() / "lib" / "roce").string());
  return environment;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string output_of(HostProcess& running, const Words& argv) {
  const Finished finished = running.wait();
  if (finished.exit_code != 0)
    throw std::runtime_error(fmt::format("{} in host {} ended with exit code {}:\n{}", fmt::join(argv, " "),
                                         running.host(), finished.exit_code, finished.output));
  return finished.output;
}

}  // namespace

Bandwidth read_bandwidth(std::string_view program, std::string_view output) {
  // #bytes #iterations BW-peak BW-average MsgRate
  const std::vector<double> numbers = result_line(program, output, 5);
  return {.gbits_per_second = numbers[3], .million_messages_per_second = numbers[4]};
}

Latency read_latency(std::string_view program, std::string_view output) {
  // #bytes #iterations t_min t_max t_typical …; t_typical is the median.
  return {.median_us = result_line(program, output, 5)[4]};
}

double read_iperf(std::string_view output) {
  const auto json = nlohmann::json::parse(output, nullptr, false);
  const auto path = nlohmann::json::json_pointer("/end/sum_received/bits_per_second");
  if (json.is_discarded() || !json.contains(path)) fail("iperf3", output);
  return json[path].get<double>() / 1e9;
}

double read_named(std::string_view program, std::string_view output, std::string_view name) {
  std::istringstream lines{std::string(output)};
  std::string word;
  double number = 0;
  while (lines >> word)
    if (word == name && lines >> number) return number;
  fail(program, output);
}

BenchHosts::BenchHosts(const std::string& topology)
    : own_fabric_(std::make_unique<netns::Fabric>(topology::named(topology), with_sysfs_view())),
      fabric_(*own_fabric_) {}

std::string BenchHosts::address(std::size_t host) const {
  return fabric_.graph().hosts.at(host).interfaces.at(0).address.text();
}

std::string BenchHosts::run(std::size_t host, const Words& argv, const Environment& environment) {
  HostProcess running(fabric_, this->host(host), argv, with_our_nic(environment));
  return output_of(running, argv);
}

std::string BenchHosts::perftest(const Words& argv, const Environment& environment) {
  HostProcess server(fabric_, host(0), argv, with_our_nic(environment));
  server.wait_until_listening(kExchangePort);
  const Words client_argv = joined(argv, {address(0)});
  HostProcess client(fabric_, host(1), client_argv, with_our_nic(environment));
  const std::string output = output_of(client, client_argv);
  output_of(server, argv);
  return output;
}

std::vector<std::string> BenchHosts::perftest_into_one(const Words& argv) {
  std::vector<std::unique_ptr<HostProcess>> servers;
  std::vector<std::unique_ptr<HostProcess>> clients;
  const std::size_t hosts = fabric_.graph().hosts.size();
  const auto on_port = [&](std::size_t client) { return joined(argv, {"-p", fmt::to_string(kExchangePort + client)}); };
  for (std::size_t client = 1; client < hosts; ++client) {
    servers.push_back(std::make_unique<HostProcess>(fabric_, host(0), on_port(client), with_our_nic({})));
    servers.back()->wait_until_listening(static_cast<std::uint16_t>(kExchangePort + client));
  }
  for (std::size_t client = 1; client < hosts; ++client)
    clients.push_back(
        std::make_unique<HostProcess>(fabric_, host(client), joined(on_port(client), {address(0)}), with_our_nic({})));
  std::vector<std::string> outputs;
  for (const auto& client : clients) outputs.push_back(output_of(*client, argv));
  return outputs;
}

double BenchHosts::tcp(int seconds) {
  HostProcess server(fabric_, host(0), {"iperf3", "--server", "--one-off"});
  server.wait_until_listening(kIperfPort);
  return read_iperf(run(1, {"iperf3", "--client", address(0), "--time", fmt::to_string(seconds), "--json"}));
}

double BenchHosts::udp(int packet_bytes, int packets, double seconds, bool checked) {
  const std::string probe = program("plugfest-udp-probe"), port = fmt::to_string(kProbePort);
  HostProcess receiver(fabric_, host(0),
                       joined({probe, "receive", port}, words("{}", checked ? fmt::to_string(packet_bytes) : "")));
  receiver.wait_until_listening(kProbePort, HostProcess::Protocol::kUdp);
  run(1, joined({probe, "send", address(0), port},
                words("{} {} {} {}", packet_bytes, packets, seconds, checked ? "checked" : "")));
  return read_named(probe, output_of(receiver, {probe}), "gbits_per_second");
}

double BenchHosts::raw_latency(int bytes, bool memory, int iterations) {
  const std::string probe = program("plugfest-udp-probe");
  const Words rest = {fmt::to_string(kProbePort), fmt::to_string(bytes), fmt::to_string(iterations),
                      memory ? "memory" : "receive"};
  HostProcess server(fabric_, host(0), joined({probe, "echo", address(0)}, rest));
  server.wait_until_listening(kProbePort, HostProcess::Protocol::kUdp);
  return read_named(probe, run(1, joined({probe, "ping", address(0)}, rest)), "median_us");
}

roce::Counters BenchHosts::counters(std::size_t host) {
  std::vector<roce::DeviceCounters> devices;
  fabric_.call(this->host(host), [&] { devices = roce::read_counters(); });
  if (devices.empty()) throw std::runtime_error("host " + this->host(host) + ": no NIC has counters");
  return devices.front().counters;
}

std::string program(const std::string& name) { return (build_folder() / "bin" / name).string(); }

void require_programs(const Words& names) {
  if (const std::string probe = program("plugfest-udp-probe"); !std::filesystem::exists(probe)) {
    throw std::runtime_error(fmt::format(
        "{}: no such file: the benchmarks are not installed; run scripts/plugfest bench in a clone of the repository",
        probe));
  }
  Words missing, packages;
  for (const std::string& name : names) {
    if (netns::find_program(name)) continue;
    const std::string package = name.starts_with("ib_") ? "perftest" : name;
    if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(name);
    if (std::find(packages.begin(), packages.end(), package) == packages.end()) packages.push_back(package);
  }
  if (missing.empty()) return;
  throw std::runtime_error(fmt::format("bench needs {}: run\n    sudo apt-get install --no-install-recommends {}",
                                       fmt::join(missing, ", "), fmt::join(packages, " ")));
}

}  // namespace plugfest::bench
