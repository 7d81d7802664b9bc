// plugfest run where namespaces are barred: what it says, and what goes without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "test_paths.h"

namespace plugfest::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Answer {
  int exit_code = -1;
  std::string output;
};

/// The filter that container runtimes put on.
void refuse_namespaces() {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_unshare},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  sock_fprog filter = {4, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(126);
}

Answer plugfest_without_namespaces(const std::string& arguments) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    refuse_namespaces();
    execl("/bin/sh", "sh", "-c", ("exec " PLUGFEST_PROGRAM " " + arguments).c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  Answer answer;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
    answer.output.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

TEST(Loopback, IsSuggestedWhereNamespacesAreBarred) {
  const Answer answer = plugfest_without_namespaces("run --rule CN-06");
  EXPECT_EQ(answer.exit_code, 2);
  EXPECT_THAT(answer.output, StartsWith("plugfest: "));
  EXPECT_THAT(answer.output, EndsWith("  or add --nic loopback, which needs no namespaces\n"));
}

TEST(Loopback, JudgesWithoutNamespaces) {
  const Answer answer = plugfest_without_namespaces("run --nic loopback --rule CN-06,DP-04,XF-06,ER-04 --seed 7");
  EXPECT_EQ(answer.exit_code, 0) << answer.output;
  EXPECT_THAT(answer.output, HasSubstr("triangle, NIC loopback"));
  EXPECT_THAT(answer.output, HasSubstr("4 pass"));
}

TEST(Loopback, JudgesBehindABridge) {
  const Answer answer = plugfest_without_namespaces("run --nic loopback -t star:4 --rule XF-01,XF-31");
  EXPECT_EQ(answer.exit_code, 0) << answer.output;
}

TEST(Loopback, SaysWhatItCannotBe) {
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t fat-tree:2").output,
              StartsWith("plugfest: --nic loopback: edge1 is a router, and hosts that are only addresses of this "
                         "machine have none: "));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback -t star:300").output,
              HasSubstr("topology star:300 is too large: 256 subnets of 254 hosts fit"));
  EXPECT_THAT(plugfest_without_namespaces("run --nic loopback --oob").output, HasSubstr("there is no fabric"));
}

}  // namespace
}  // namespace plugfest::cli
