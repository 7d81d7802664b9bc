#include "fabric/system/process.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "fabric/system/descriptor_passing.h"
#include "fabric/system/testing.h"

namespace plugfest {
namespace {

TEST(ThrowErrno, SaysWhatCannotBeDoneAndWhy) {
  const auto fail = [] {
    errno = EACCES;
    throw_errno("change to the folder /");
  };
  EXPECT_EQ(error_message(fail), "cannot change to the folder /: Permission denied");
}

TEST(RunProgram, SeparatesOutputAndErrors) {
  const Finished finished = run_program({"sh", "-c", "echo a; echo b >&2; pwd; cat; exit 7"}, "/usr");
  EXPECT_EQ(finished.exit_code, 7);
  EXPECT_EQ(finished.output, "a\n/usr\n");
  EXPECT_EQ(finished.errors, "b\n");
}

TEST(RunProgram, ReturnsCodesAsAShellDoes) {
  EXPECT_EQ(run_program({"no-such-program"}).exit_code, 127);
  EXPECT_EQ(run_program({"true"}, "/no/such/folder").exit_code, 127);
  EXPECT_EQ(run_program({"sh", "-c", "kill -SEGV $$"}).exit_code, kKilledBySignal + SIGSEGV);
}

TEST(RunProgram, CollectsMoreThanAPipeHolds) {
  EXPECT_EQ(run_program({"head", "-c", "1000000", "/dev/zero"}).output.size(), 1000000u);
}

TEST(AwaitExit, RefusesAProcessThatIsNotAChild) { EXPECT_EQ(await_exit(getpid()), -1); }

class DescriptorPassing : public testing::Test {
 protected:
  DescriptorPassing() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
    here_ = Descriptor(sockets[0]);
    there_ = Descriptor(sockets[1]);
  }

  ssize_t send(std::string text, const std::vector<int>& fds) const {
    iovec part = {text.data(), text.size()};
    return send_with_descriptors(here_.get(), {&part, 1}, fds);
  }

  Descriptor here_;
  Descriptor there_;
};

TEST_F(DescriptorPassing, DeliversBytesAndDescriptors) {
  Pipe pipe = make_pipe();
  ASSERT_EQ(send("text", {pipe.write_end.get(), pipe.write_end.get()}), 4);
  pipe.write_end.close();
  char bytes[16];
  std::vector<Descriptor> passed;
  ASSERT_EQ(receive_with_descriptors(there_.get(), bytes, sizeof(bytes), &passed), 4);
  ASSERT_EQ(passed.size(), 2u);
  EXPECT_EQ(write(passed[0].get(), "a", 1), 1);
  EXPECT_EQ(write(passed[1].get(), "b", 1), 1);
  passed.clear();
  EXPECT_EQ(read_all(pipe.read_end.get()), "ab");
}

TEST_F(DescriptorPassing, ClosesUnwantedDescriptors) {
  Pipe pipe = make_pipe();
  ASSERT_EQ(send("x", {pipe.write_end.get()}), 1);
  pipe.write_end.close();
  char byte;
  ASSERT_EQ(receive_with_descriptors(there_.get(), &byte, 1, nullptr), 1);
  EXPECT_EQ(read_all(pipe.read_end.get()), "");
}

TEST_F(DescriptorPassing, ReportsAClosedConnectionWithoutASignal) {
  there_.close();
  EXPECT_EQ(send("x", {}), -1);
  EXPECT_EQ(errno, EPIPE);
  char byte;
  EXPECT_EQ(receive_with_descriptors(here_.get(), &byte, 1, nullptr), 0);
}

}  // namespace
}  // namespace plugfest
