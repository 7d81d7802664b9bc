// All tests of ucx_perftest between two hosts, over the transports of UCX that use verbs (RC and UD).
#include <fstream>
#include <ostream>
#include <sstream>

#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

constexpr std::uint16_t kUcxPort = 13337;

// UCP, the layer of MPI and others.
const std::vector<std::string> kMessages = {"tag_lat",    "tag_bw",    "tag_sync_lat", "tag_sync_bw",
                                            "stream_lat", "stream_bw", "ucp_am_lat",   "ucp_am_bw"};
const std::vector<std::string> kWrites = {"ucp_put_lat", "ucp_put_bw"}, kReads = {"ucp_get"};
const std::vector<std::string> kAtomics = {"ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"};
// UCT, the transports themselves. rc_verbs has no swap, ud_verbs has messages only.
const std::vector<std::string> kReliable = {
    "am_lat -D short", "am_bw -D bcopy",  "am_bw -D zcopy", "put_lat -D short",     "put_bw -D short",
    "put_bw -D bcopy", "put_bw -D zcopy", "get -D bcopy",   "get -D zcopy -s 1000", "add_lat -D short",
    "add_mr -D short", "fadd -D short",   "cswap -D short"};
const std::vector<std::string> kDatagrams = {"am_lat -D short", "am_bw -D bcopy", "am_bw -D zcopy"};

// Command lines of ucx_perftest without -t.
std::vector<std::string> lines_of(const std::vector<std::string>& tests, const std::string& options) {
  std::vector<std::string> lines;
  lines.reserve(tests.size());
  for (const std::string& test : tests) lines.push_back(test + " " + options);
  return lines;
}

// The options of a command line hold for all its tests: a line of a batch file has room for ten words.
struct Suite {
  const char* name;
  std::vector<std::string> environment;
  std::vector<std::string> options;
  std::vector<std::vector<std::string>> lines;
};

// Test name in ctest.
void PrintTo(const Suite& value, std::ostream* out) { *out << value.name; }

const std::string kSmall = "-n 100 -w 10";
const std::string kLarge = "-s 100000 -n 10 -w 2";

// Two kinds of tests cannot sleep with any device. The receiver of atomics and of ucp_get sleeps once per message, but
// is woken once for several that come together. WRITEs and READs of RC do not wake the receiver at all, so it does
// nothing (-o).
std::vector<Suite> suites() {
  const std::vector<std::string> rc = {"UCX_TLS=rc_v"}, ud = {"UCX_TLS=ud_v"}, sleep = {"-E", "sleep"};
  const std::vector<std::vector<std::string>> messages = {lines_of(kMessages, kSmall), lines_of(kMessages, kLarge)};
  const std::vector<std::vector<std::string>> writes = {lines_of(kWrites, kSmall), lines_of(kWrites, kLarge)};
  std::vector<std::vector<std::string>> memory = writes;
  memory.push_back(lines_of(kReads, kSmall));
  memory.push_back(lines_of(kReads, kLarge));
  const std::vector<std::vector<std::string>> atomics = {lines_of(kAtomics, kSmall)};
  return {
      {"RcMessagesPolling", rc, {}, messages},
      {"RcMessagesSleeping", rc, sleep, messages},
      {"RcMemoryPolling", rc, {}, memory},
      {"RcMemorySleeping", rc, {"-E", "sleep", "-o"}, memory},
      {"RcAtomicsPolling", rc, {}, atomics},
      {"UdMessagesPolling", ud, {}, messages},
      {"UdMessagesSleeping", ud, sleep, messages},
      {"UdMemoryPolling", ud, {}, memory},
      {"UdWritesSleeping", ud, sleep, writes},
      {"UdAtomicsPolling", ud, {}, atomics},
      {"UdOverIpv6", {"UCX_TLS=ud_v", "UCX_IB_GID_INDEX=1"}, {}, {lines_of({"tag_lat", "tag_bw"}, kSmall)}},
      {"TransportRc", {}, {"-d", "roce_eth0:1", "-x", "rc_verbs"}, {lines_of(kReliable, kSmall)}},
      {"TransportUd", {}, {"-d", "roce_eth0:1", "-x", "ud_verbs"}, {lines_of(kDatagrams, kSmall)}},
  };
}

class Ucx : public testing::TestWithParam<Suite> {};

TEST_P(Ucx, PassesAllTestsOfItsBenchmark) {
  PLUGFEST_NEEDS_PROGRAM("ucx_perftest");
  const ScratchFolder folder;
  const std::string batch = folder.path() / "batch";
  std::vector<std::string> names;
  std::ofstream file(batch);
  for (const std::vector<std::string>& lines : GetParam().lines) {
    for (const std::string& line : lines) {
      names.push_back(line.substr(0, line.find(' ')));
      file << names.back() << " -t " << line << '\n';
    }
  }
  file.close();

  std::vector<std::string> argv = {"env", "UCX_NET_DEVICES=roce_eth0:1"};
  const auto append = [&argv](const std::vector<std::string>& words) {
    argv.insert(argv.end(), words.begin(), words.end());
  };
  append(GetParam().environment);
  append({"timeout", "200", "ucx_perftest", "-b", batch});
  append(GetParam().options);
  TwoHosts hosts;
  std::vector<std::string> client = argv;
  client.insert(client.end(), {"-f", "-v"});
  const std::string output = ServerAndClient(hosts, argv, kUcxPort, client).expect_success();
  EXPECT_EQ(output.find("ERROR"), std::string::npos) << output;
  // One row for each test: its name and its measurements, separated by commas.
  std::istringstream rows(output);
  std::vector<std::string> measured;
  for (std::string row; std::getline(rows, row);)
    if (const std::size_t comma = row.find(", "); comma != std::string::npos) measured.push_back(row.substr(0, comma));
  EXPECT_EQ(measured, names) << output;
}

INSTANTIATE_TEST_SUITE_P(Verbs, Ucx, testing::ValuesIn(suites()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace plugfest::roce::verbs
