#include "fabric/roce/verbs/tests/two_hosts.h"

#include <signal.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "fabric/roce/verbs/device/sysfs_view.h"
#include "fabric/topology/graph.h"
#include "test_paths.h"

namespace plugfest::roce::verbs {
namespace {

netns::Options with_sysfs_view() {
  netns::Options options;
  options.prepare_host = [](const topology::Host&) { show_nics_of_this_host(); };
  return options;
}

}  // namespace

TwoHosts::TwoHosts() : fabric_(topology::named("triangle"), with_sysfs_view()) {}

std::string TwoHosts::address_of_a() const { return fabric_.graph().host("a").interfaces.at(0).address.text(); }

HostProcess TwoHosts::start(const std::string& host, const std::vector<std::string>& argv) {
  const char* const folder = std::getenv("PLUGFEST_TEST_NIC");
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {
      {"LD_LIBRARY_PATH", folder == nullptr ? PLUGFEST_ROCE_FOLDER : folder}};
  if (const char* const preload = std::getenv("PLUGFEST_TEST_PRELOAD")) environment.emplace_back("LD_PRELOAD", preload);
  return HostProcess(fabric_, host, argv, std::move(environment));
}

Counters TwoHosts::counters(const std::string& host) {
  Counters sum;
  fabric_.call(host, [&] {
    for (const DeviceCounters& device : read_counters()) sum = sum + device.counters;
  });
  return sum;
}

std::string TwoHosts::run_server_and_client(const std::vector<std::string>& argv) {
  return ServerAndClient(*this, argv).expect_success();
}

std::vector<std::string> TwoHosts::dissect(const std::filesystem::path& file, const std::vector<std::string>& options) {
  std::vector<std::string> argv = {"tshark", "-n", "-r", file.string()};
  argv.insert(argv.end(), options.begin(), options.end());
  const Finished dissected = start("a", argv).wait();
  EXPECT_EQ(dissected.exit_code, 0) << dissected.output;
  std::istringstream stream(dissected.output);
  std::vector<std::string> rows;
  for (std::string row; std::getline(stream, row);)
    if (row.find_first_of("|\t") != std::string::npos) rows.push_back(row);  // skips a warning about running as root
  return rows;
}

namespace {

HostProcess start_client(TwoHosts& hosts, HostProcess& server, std::uint16_t port, std::vector<std::string> argv) {
  server.wait_until_listening(port);
  argv.push_back(hosts.address_of_a());
  return hosts.start("b", argv);
}

}  // namespace

ServerAndClient::ServerAndClient(TwoHosts& hosts, const std::vector<std::string>& argv, std::uint16_t port,
                                 std::vector<std::string> client_argv)
    : server_(hosts.start("a", argv)),
      client_(start_client(hosts, server_, port, client_argv.empty() ? argv : std::move(client_argv))) {}

void ServerAndClient::kill() {
  for (HostProcess* const program : {&client_, &server_}) {
    ::kill(program->pid(), SIGKILL);
    program->wait();
  }
}

std::string ServerAndClient::expect_success() {
  const Finished client = client_.wait();
  EXPECT_EQ(client.exit_code, 0) << "client: " << client.output;
  if (client.exit_code == 0) {
    const Finished server = server_.wait();
    EXPECT_EQ(server.exit_code, 0) << "server: " << server.output;
  }
  return client.output;
}

}  // namespace plugfest::roce::verbs
