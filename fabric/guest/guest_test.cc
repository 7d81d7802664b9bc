// Each test boots a guest once and therefore checks several facts.
#include "fabric/guest/guest.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>

#include "fabric/system/file.h"
#include "fabric/system/testing.h"
#include "test_paths.h"

namespace plugfest::guest {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Guest : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

 private:
  ScratchFolder folder_;
};

TEST_F(Guest, RunsACommandWithTheHostsFilesAndItsOwnKernel) {
  std::ofstream(file("old")) << "from the host";
  std::ofstream(file("result")) << "an earlier result";
  const std::string script = "uname -r; cat " + file("old") + "; echo changed > " + file("old") + "; test -e " +
                             file("result") + " && echo still there; printf 'a\\0b' > " + file("result") +
                             "; pwd; echo to stderr >&2; exit 7";
  const Finished run = run_program(
      {PLUGFEST_GUEST_RUN, "--result", file("result"), "--result", file("never"), "/bin/sh", "-c", script}, "/usr/lib");
  EXPECT_EQ(run.exit_code, 7) << run.errors;
  const std::string host = run_program({"uname", "-r"}).output;
  EXPECT_THAT(run.output, Not(HasSubstr(host)));
  EXPECT_THAT(run.output, HasSubstr("from the host"));
  EXPECT_THAT(run.output, HasSubstr("/usr/lib\n"));
  EXPECT_THAT(run.output, Not(HasSubstr("still there")));
  EXPECT_THAT(run.errors, HasSubstr("to stderr\n"));
  EXPECT_EQ(read_file(file("old")), "from the host");
  EXPECT_EQ(read_file(file("result")), std::string("a\0b", 3));
  EXPECT_FALSE(fs::exists(file("never")));
}

// The command prints "set" after it has set its trap. The signal is sent to the process on the host.
TEST_F(Guest, ForwardsSignalsToTheCommand) {
  Pipe output = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    dup2(output.write_end.get(), 1);
    execl(PLUGFEST_GUEST_RUN, PLUGFEST_GUEST_RUN, "/bin/sh", "-c",
          "trap 'echo caught; exit 9' TERM; echo set; while :; do sleep 0.1; done", nullptr);
    _exit(127);
  }
  output.write_end.close();
  char byte = 0;
  std::string printed;
  while (read(output.read_end.get(), &byte, 1) == 1) {
    printed += byte;
    if (printed == "set\n") kill(child, SIGTERM);
  }
  EXPECT_EQ(printed, "set\ncaught\n");
  EXPECT_EQ(await_exit(child), 9);
}

TEST_F(Guest, RefusesAFileThatIsNotAKernel) {
  const Finished run = run_program({PLUGFEST_GUEST_RUN, "--kernel", "/etc/passwd", "/bin/true"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.errors, HasSubstr("plugfest: /etc/passwd: not a Linux kernel image"));
}

TEST_F(Guest, RefusesAKernelWithoutModules) {
  fs::create_directories(file("k/boot"));
  std::ofstream(file("k/boot/vmlinuz-1")) << "nothing";
  const Finished run = run_program({PLUGFEST_GUEST_RUN, "--kernel", file("k"), "/bin/true"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.errors, HasSubstr("no kernel with the required modules"));
}

TEST_F(Guest, NamesThePackageOfAMissingQemu) {
  fs::create_directories(file("bin"));
  const Finished run = run_program({"env", "PATH=" + file("bin"), PLUGFEST_GUEST_RUN, "/bin/true"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.errors, HasSubstr("apt-get install qemu-system-x86"));
}

// A proxy that refuses every connection simulates a machine without network.
TEST_F(Guest, LeavesNothingBehindWithoutANetwork) {
  const Finished run = run_program({"env", "XDG_CACHE_HOME=" + file("cache"), "http_proxy=http://127.0.0.1:9",
                                    "https_proxy=http://127.0.0.1:9", PLUGFEST_GUEST_RUN, "/bin/true"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.errors, HasSubstr("no kernel for the guest: "));
  EXPECT_THAT(run.errors, HasSubstr("--kernel PATH"));
  EXPECT_FALSE(fs::exists(file("cache/plugfest/kernel")));
  EXPECT_FALSE(fs::exists(file("cache/plugfest/partial")));
}

}  // namespace
}  // namespace plugfest::guest
