// plugfest certify and plugfest verify on the emulated hosts of a background fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fabric/system/testing/scratch_folder.h"
#include "harness/certify/archive/tar.h"
#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A fabric with three hosts, and a command that enters a host instead of ssh.
class Certify : public testing::Test {
 protected:
  Certify() {
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
    const ShellResult up = plugfest("fabric up lab --topology star:3 --oob");
    EXPECT_EQ(up.exit_code, 0) << up.output;
    write("hosts", "h1\nh2 slots=1\n# h4\nh3\n", 0600);
    write("enter", "#!/bin/sh\nhost=$1; shift\nexec " PLUGFEST_PROGRAM " fabric exec lab $host -- \"$@\"\n", 0700);
  }
  ~Certify() override { plugfest("fabric down --all"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, const std::string& content, mode_t mode) const {
    std::ofstream(path(name)) << content;
    chmod(path(name).c_str(), mode);
  }

  std::string command(const std::string& arguments, const std::string& pair_seconds = "0.01") const {
    return "fabric exec lab h1 -- " PLUGFEST_PROGRAM " certify --plugin " PLUGFEST_MESH " --interface oob0 --hosts " +
           path("hosts") + " --launch-agent " + path("enter") + " -o " + path("c.tar") +
           " --rule CN-01 --load-seconds 0.02 --seed 1 --pair-seconds " + pair_seconds + " " + arguments;
  }

  /// A JSON file of the archive.
  json file(const std::string& name) const {
    for (const certify::ArchiveFile& it : certify::read_tar(content_of(path("c.tar")))) {
      if (it.name == name) return json::parse(it.content);
    }
    ADD_FAILURE() << name << " is not in the archive";
    return {};
  }

  /// "host h3", "broken h1.x h2.x", without those that are slow, which another program on the machine can cause.
  std::string suspects() const {
    std::string all;
    const json certification = file("certification.json");
    for (const json& it : certification["suspects"]) {
      if (it["kind"] != "slow") all += it["kind"].get<std::string>() + " " + it["subject"].get<std::string>() + "\n";
    }
    return all;
  }

  ScratchFolder folder_;
};

TEST_F(Certify, MeasuresEachPairAndItsArchiveCanBeVerified) {
  const ShellResult answer = plugfest(command(""));
  ASSERT_LE(answer.exit_code, 1) << answer.output;
  EXPECT_EQ(suspects(), "") << answer.output;
  const json certification = file("certification.json");
  EXPECT_EQ(certification["pairs"].size(), 3u);
  for (const json& pair : certification["pairs"]) {
    EXPECT_TRUE(pair["reached"]) << pair;
    EXPECT_GT(pair["forth_bits_per_second"], 0) << pair;
    EXPECT_GT(pair["back_bits_per_second"], 0) << pair;
    EXPECT_GT(pair["latency_p50_seconds"], 0) << pair;
  }
  EXPECT_EQ(certification["loads"].size(), 2u);
  EXPECT_EQ(certification["differences"].size(), 0u) << certification["differences"];
  const json results = file("results.json");
  EXPECT_EQ(results["runs"].size(), 2u) << "neighbours, and the ends of the list";
  EXPECT_EQ(results["pairs"].size(), 6u);
  EXPECT_EQ(file("hosts/h2.json")["devices"][0]["name"], "roce_eth0");

  const ShellResult verified = plugfest("verify " + path("c.tar"));
  EXPECT_EQ(verified.exit_code, answer.exit_code) << verified.output;
  EXPECT_THAT(verified.output, AllOf(HasSubstr("3 hosts, 3 NICs, 3 pairs\n"), HasSubstr("1 rule on 2 pairs: 2 pass")));
  std::string archive = content_of(path("c.tar"));
  archive[archive.size() / 2] = static_cast<char>(archive[archive.size() / 2] ^ 1);
  std::ofstream(path("c.tar")) << archive;
  EXPECT_EQ(plugfest("verify " + path("c.tar")).exit_code, 2);
}

TEST_F(Certify, NamesAHostThatNeverJoinsAndWhy) {
  write("hosts", "h1\nh9\nh2\n", 0600);
  const ShellResult answer = plugfest(command("--skip rules,loads"));
  EXPECT_EQ(answer.exit_code, 2) << answer.output;
  EXPECT_THAT(answer.output, AllOf(HasSubstr("host h9: its agent has ended: "), HasSubstr("no host \"h9\""),
                                   HasSubstr("exit code 2")));
  EXPECT_EQ(suspects(), "host h9\n");
  EXPECT_EQ(plugfest("verify " + path("c.tar")).exit_code, 2);
}

TEST_F(Certify, NamesAHostThatIsKilledAndGoesOn) {
  // The agent of h3 and all that it has started are killed when the file exists.
  write("enter",
        "#!/bin/sh\nhost=$1; shift\n[ $host = h3 ] || exec " PLUGFEST_PROGRAM
        " fabric exec lab $host -- \"$@\"\nexec " PLUGFEST_PROGRAM
        " fabric exec lab h3 -- sh -c 'exec 3<&0; \"$@\" <&3 & until [ -e " +
            path("kill") + " ]; do sleep 0.05; done; kill -KILL 0' sh \"$@\"\n",
        0700);
  std::istringstream text(command("--skip rules,loads", "1"));
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  const pid_t child = start_plugfest(words, path("log"));
  while (content_of(path("log")).find("preflight: ") == std::string::npos && kill(child, 0) == 0 &&
         content_of(path("log")).find("plugfest: ") == std::string::npos) {
    usleep(20'000);
  }
  write("kill", "", 0600);
  EXPECT_EQ(wait_for(child), 2) << content_of(path("log"));
  ASSERT_TRUE(std::filesystem::exists(path("c.tar"))) << content_of(path("log"));
  EXPECT_EQ(suspects(), "host h3\n") << content_of(path("log"));
  const json certification = file("certification.json");
  for (const json& pair : certification["pairs"]) {
    if (pair["one"] == "h1.roce_eth0" && pair["other"] == "h2.roce_eth0") {
      EXPECT_EQ(pair["broken"], "");
    }
  }
}

TEST_F(Certify, RefusesWrongInputBeforeItStartsAnything) {
  // The user may not write to the current folder.
  const std::string output = " -o " + path("c.tar");
  EXPECT_THAT(error_of("certify --plugin " PLUGFEST_MESH), HasSubstr("name the hosts with --hosts FILE"));
  EXPECT_THAT(error_of("certify --hosts /nowhere" + output), HasSubstr("/nowhere: cannot read: No such file"));
  for (const auto& [content, message] : {std::pair{"h1\n", "expected two hosts or more"},
                                         {"h1\nh1\n", ":2: h1 is listed twice"},
                                         {"h1\n-oProxyCommand=x\n", ":2: \"-oProxyCommand=x\" is no host name"}}) {
    write("hosts", content, 0600);
    EXPECT_THAT(error_of("certify --hosts " + path("hosts") + output), HasSubstr(message));
  }
  write("hosts", "h1\nh2\n", 0600);
  EXPECT_THAT(error_of("certify --interface nothing0 --hosts " + path("hosts") + output),
              HasSubstr("--interface nothing0: it has no IPv4 address; there are lo (127.0.0.1)"));
  EXPECT_THAT(error_of("certify --skip pairs --hosts " + path("hosts") + output),
              HasSubstr("there are rules and loads"));
  EXPECT_THAT(error_of("certify --agent < /dev/null"), HasSubstr("expected where the controller is"));
  EXPECT_THAT(error_of("certify --agent < " + path("hosts")), HasSubstr("expected an address, a port and a token"));
  EXPECT_THAT(error_of("verify /nowhere"), HasSubstr("/nowhere: cannot read"));
  EXPECT_FALSE(std::filesystem::exists(path("c.tar")));
}

}  // namespace
}  // namespace plugfest::cli
