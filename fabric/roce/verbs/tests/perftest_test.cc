// All programs of perftest with many options, between two hosts. Each must print a measurement and exit with 0.
//
// Four tests run the first command line of each program and a part of the others; with PLUGFEST_TEST_ALL they run all.
// PLUGFEST_PERFTEST="ib_send_bw -e" runs one command line. PLUGFEST_TEST_NIC, PLUGFEST_TEST_PRELOAD: see two_hosts.h.
#include <fmt/format.h>

#include <sstream>

#include "fabric/roce/verbs/tests/two_hosts.h"
#include "fabric/system/testing.h"

namespace plugfest::roce::verbs {
namespace {

constexpr unsigned kParts = 4;
constexpr std::size_t kStep = 11;               ///< every kStep-th of the other command lines runs
constexpr const char* kTimeoutSeconds = "180";  ///< time limit of a program

struct Program {
  std::string command;
  std::vector<std::string> options;  ///< each element is one run
};

// Options that all programs of a kind support. Sizes and counts keep runs short.
const std::vector<std::string> kBandwidth = {"-n 100",
                                             "-b -n 100",
                                             "-q 64 -n 20",
                                             "-b -q 8 -n 50",
                                             "-D 1",
                                             "-l 8 -n 96",
                                             "-Q 1 -n 100",
                                             "-t 1 -n 100",
                                             "-m 256 -n 100",
                                             "--use_old_post_send -n 100",
                                             "--mr_per_qp -q 4 -n 50",
                                             "--perform_warm_up -Q 1 -n 50"};
const std::vector<std::string> kLatency = {"-n 50", "-D 1", "-m 256 -n 50", "--use_old_post_send -n 50"};
const std::vector<std::string> kAnySize = {"-a -n 10", "-s 1 -n 50", "-s 1000001 -n 10"};
// With events, perftest polls up to 16 completions per event. It needs an event for completions that are already in the
// queue when it requests one.
const std::vector<std::string> kEvents = {"-e -n 50", "-e -Q 1 -n 50"};
const std::vector<std::string> kInline = {"-I 64 -s 64 -n 100", "-I 900 -s 900 -n 100"};
const std::vector<std::string> kSharedReceives = {"--use-srq -n 50 -s 4096", "--use-srq -q 8 -n 50 -s 4096"};
// Lost messages are not retransmitted, and the programs wait for them: at most the capacity of a socket.
const std::vector<std::string> kFewMessages = {"-s 4096 -n 20", "-s 4096 -b -n 20", "-s 4096 -e -n 20",
                                               "-s 64 -I 64 -n 20", "-s 4096 -q 4 -n 5"};

std::vector<std::string> all_of(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> options;
  for (const auto& list : lists) options.insert(options.end(), list.begin(), list.end());
  return options;
}

// perftest does not support events for WRITE.
std::vector<std::string> command_lines() {
  const std::vector<Program> programs = {
      {"ib_send_bw", all_of({kBandwidth, kAnySize, kEvents, kInline, kSharedReceives})},
      {"ib_send_bw", {"-r 1 -n 50 -s 100", "--recv_post_list 8 -n 96", "--reversed -n 50"}},
      {"ib_write_bw", all_of({kBandwidth, kAnySize, kInline})},
      {"ib_read_bw", all_of({kBandwidth, kAnySize, kEvents})},
      {"ib_atomic_bw", all_of({kBandwidth, kEvents})},
      {"ib_atomic_bw -A CMP_AND_SWAP", {"-n 100", "-b -n 100", "-q 8 -n 50"}},
      {"ib_send_lat", all_of({kLatency, kAnySize, kEvents, kInline})},
      {"ib_send_lat", {"--use-srq -n 50"}},
      {"ib_write_lat", all_of({kLatency, kAnySize, kInline})},
      {"ib_read_lat", all_of({kLatency, kAnySize, kEvents})},
      {"ib_atomic_lat", all_of({kLatency, kEvents})},
      {"ib_atomic_lat -A CMP_AND_SWAP", {"-n 50"}},
      {"ib_send_bw -c UC", kFewMessages},
      {"ib_write_bw -c UC", {"-n 100", "-b -n 100", "-q 8 -n 20", "-D 1", "-I 64 -s 64 -n 100"}},
      {"ib_send_bw -c UD", kFewMessages},
      {"ib_send_bw -c XRC", {"-n 100", "-b -n 100", "-q 4 -n 20"}},
      {"ib_write_bw -c XRC", {"-n 100", "-b -n 100"}},
      {"ib_send_lat -c XRC", {"-n 50"}},
      {"ib_send_lat -c UC", {"-n 50", "-e -n 50", "-s 4096 -n 50"}},
      {"ib_write_lat -c UC", {"-n 50", "-s 4096 -n 50"}},
      {"ib_send_lat -c UD", {"-n 50", "-e -n 50", "-s 4096 -n 50"}}};
  std::vector<std::string> lines;
  std::size_t count = 0;
  for (const Program& program : programs)
    for (std::size_t i = 0; i < program.options.size(); ++i)
      if (runs_long_tests() || i == 0 || ++count % kStep == 0)
        lines.push_back(program.command + " " + program.options[i]);
  // perftest spins on memory, without a call, until SIGALRM ends the measurement. ThreadSanitizer delays a signal until
  // the next call of a function that it intercepts, so the program that runs longer than its peer would never end.
  if (std::getenv("PLUGFEST_TEST_PRELOAD") != nullptr) std::erase(lines, "ib_write_lat -D 1");
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words = {"timeout", kTimeoutSeconds};
  for (std::string word; text >> word;) words.push_back(word);
  words.insert(words.end(), {"-d", "roce_eth0", "-F"});
  return words;
}

void expect_measurement(const std::string& line) {
  SCOPED_TRACE(fmt::format("to repeat: PLUGFEST_PERFTEST=\"{}\" verbs_perftest_test --gtest_filter='*/0'", line));
  TwoHosts hosts;
  const std::string output = hosts.run_server_and_client(words_of(line));
  // After the heading, at least one row that starts with the size.
  const std::size_t heading = output.find("#bytes");
  ASSERT_NE(heading, std::string::npos) << output;
  std::istringstream rows(output.substr(heading));
  std::string row;
  std::getline(rows, row);
  std::size_t bytes = 0;
  EXPECT_TRUE(rows >> bytes) << output;
}

class Perftest : public testing::TestWithParam<unsigned> {};

TEST_P(Perftest, PrintsAMeasurementAndSucceeds) {
  PLUGFEST_NEEDS_PROGRAM("ib_send_bw");
  if (const char* const line = std::getenv("PLUGFEST_PERFTEST")) return expect_measurement(line);
  const std::vector<std::string> lines = command_lines();
  for (std::size_t i = GetParam(); i < lines.size() && !HasFailure(); i += kParts) {
    fmt::print("{}\n", lines[i]);
    expect_measurement(lines[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Part, Perftest, testing::Range(0u, kParts));

}  // namespace
}  // namespace plugfest::roce::verbs
