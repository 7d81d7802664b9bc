#include "fabric/roce/verbs/tests/two_hosts.h"

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

std::string TwoHosts::run_server_and_client(std::vector<std::string> argv) {
  HostProcess server = start("a", argv);
  server.wait_until_listening(kExchangePort);
  argv.push_back(address_of_a());
  const Finished client = start("b", argv).wait();
  EXPECT_EQ(client.exit_code, 0) << "client: " << client.output;
  if (client.exit_code == 0) {
    const Finished finished = server.wait();
    EXPECT_EQ(finished.exit_code, 0) << "server: " << finished.output;
  }
  return client.output;
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

}  // namespace plugfest::roce::verbs
