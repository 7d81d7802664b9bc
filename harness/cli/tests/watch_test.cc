// plugfest run --watch.

#include <csignal>

#include "harness/cli/tests/program.h"

namespace plugfest::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kMutant = PLUGFEST_MUTANTS "/libnccl-net-device_129_exists.so";
const fs::path kMesh = fs::path(PLUGFEST_PROGRAM).parent_path().parent_path() / "lib/libnccl-net-mesh.so";

class WatchedRun : public RunTest {
 protected:
  WatchedRun() {
    fs::create_directory(plugin().parent_path());
    fs::copy_file(kMesh, folder_ / kMesh.filename());  // of which mutants change the behavior
    replace_by(kMesh);
  }
  ~WatchedRun() override {
    if (process_ > 0) end();
  }

  // Writes another file and moves it to the path, as linkers do.
  void replace_by(const fs::path& library) const {
    fs::copy_file(library, folder_ / "other.so");
    fs::rename(folder_ / "other.so", plugin());
  }
  // A mutant has the behavior that its file name states.
  fs::path plugin() const { return folder_ / "mutants" / fs::path(kMutant).filename(); }
  void start(const std::string& options) {
    process_ = start_plugfest("run --watch --plugin " + plugin().string() + " " + options, folder_ / "output");
  }
  // Waits until the command has waited for a change `times` times.
  void await_rounds(int times) const {
    const auto found = [&] {
      int count = 0;
      const std::string text = output();
      for (std::size_t at = 0; (at = text.find("\nWaiting until ", at)) != text.npos; ++at) ++count;
      return count >= times;
    };
    EXPECT_TRUE(wait_until(found, std::chrono::minutes(4))) << output();
  }
  int end() {
    kill(process_, SIGINT);
    return await_exit(std::exchange(process_, -1));
  }

 private:
  pid_t process_ = -1;
};

TEST_F(WatchedRun, TestsTheLibraryThatReplacesTheFirstOne) {
  start("--rule DP-01 --rule DP-02");
  await_rounds(1);
  EXPECT_THAT(output(), HasSubstr("Mesh v12: 2 pass in"));

  std::ofstream(plugin().parent_path() / "unrelated") << "no library";
  std::ofstream(plugin()) << "the linker has not finished";
  await_rounds(2);
  EXPECT_THAT(output(), HasSubstr("not a shared library: a text that begins with"));

  fs::remove(plugin());
  replace_by(kMutant);
  await_rounds(3);
  EXPECT_THAT(output(), HasSubstr("worse  DP-02 pass → fail"));
  EXPECT_THAT(output(), HasSubstr("2 rules compared: 1 worse, 0 better, 0 otherwise changed\n"));
  EXPECT_EQ(end(), 1) << output();
}

TEST_F(WatchedRun, EndsDuringARoundOnCtrlC) {
  start("--rule XF-06 --repeat 100000 --json " + (folder_ / "r.json").string());
  await_output(folder_ / "output", "pass");
  EXPECT_EQ(end(), 130) << output();
  EXPECT_EQ(read_results()["interrupted"], true);
}

TEST_F(WatchedRun, EndsIfTheFirstRoundHasNoResults) {
  EXPECT_THAT(error_of("run --watch --plugin /nowhere.so"), HasSubstr("/nowhere.so: "));
  EXPECT_THAT(error_of("run --watch --json /nowhere/r.json"), HasSubstr("/nowhere/r.json: cannot write: "));
}

TEST_F(WatchedRun, RefusesOptionsWithoutRounds) {
  for (const char* const option : {"--list", "--wrap", "--last-failed", "--nic vm"}) {
    const std::string value = std::string(option) == "--wrap" ? " valgrind" : "";
    EXPECT_EQ(error_of(std::string("run --watch ") + option + value),
              std::string("plugfest: --watch excludes ") + option + ": leave out one of them\n");
  }
  EXPECT_EQ(error_of("run --watch --json -"),
            "plugfest: --watch: each round writes its results: name a file instead of standard output\n");
}

}  // namespace
}  // namespace plugfest::cli
