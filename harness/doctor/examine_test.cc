// The whole report, modes nccl and tools, and trials on this machine.
#include "harness/doctor/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/doctor/fake_machine.h"

namespace plugfest::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DoctorNccl, NamesTheReleasesThatModesNeed) {
  FakeMachine paper;
  const auto library = [&](NcclTrial trial) {
    paper.trials.nccl = [trial] { return trial; };
    return named(examine_nccl(paper.machine()), "libnccl.so.2");
  };
  EXPECT_EQ(library({}).state, State::kBad);
  EXPECT_THAT(library({}).fix, HasSubstr("NCCL_LIBRARY"));
  EXPECT_EQ(library({.path = "/l/libnccl.so.2", .version = 22809, .problem = {}}).text, "/l/libnccl.so.2, NCCL 2.28.9");
  EXPECT_EQ(library({.path = "/l/libnccl.so.2", .version = 22803, .problem = {}}).state, State::kWarning);
  EXPECT_EQ(library({.path = "/l/libnccl.so.2", .version = 22105, .problem = {}}).state, State::kBad);
  EXPECT_THAT(library({.path = "/l/libnccl.so.2", .version = 0, .problem = "wrong ELF class"}).text,
              HasSubstr("wrong ELF class"));
}

TEST(DoctorNccl, WorksWithoutACudaDriver) {
  FakeMachine paper;
  EXPECT_EQ(named(examine_nccl(paper.machine()), "CUDA driver").state, State::kNote);
  paper.trials.cuda = [] { return CudaTrial{.library = true, .version = 12040, .devices = 8, .problem = {}}; };
  const auto findings = examine_nccl(paper.machine());
  EXPECT_EQ(named(findings, "CUDA driver").text, "CUDA 12.4, 8 GPUs");
  EXPECT_EQ(named(findings, "GPUDirect").fix, "sudo modprobe nvidia_peermem");
}

TEST(DoctorTools, NamesTheirPackages) {
  FakeMachine paper;
  paper.program("tshark");
  const auto findings = examine_tools(paper.machine());
  EXPECT_EQ(named(findings, "tshark").text, "/usr/bin/tshark (reading captures)");
  EXPECT_EQ(named(findings, "dot").fix, "sudo apt-get install graphviz");
  EXPECT_EQ(named(findings, "srun").fix, "");
}

TEST(Doctor, ExaminesOnlyTheRequestedModes) {
  FakeMachine paper;
  paper.trials.sandbox = [](bool) -> SandboxTrial { throw std::logic_error("not requested"); };
  const Diagnosis diagnosis = examine(paper.machine(), {"vm", "tools"});
  ASSERT_EQ(diagnosis.modes.size(), 2u);
  EXPECT_EQ(diagnosis.modes[0].name, "vm");
  EXPECT_THROW(examine(paper.machine(), {"lab"}), std::runtime_error);
}

TEST(Doctor, PrintsAVerdictPerModeBeforeTheFindings) {
  FakeMachine paper;
  const std::string text = to_text(examine(paper.machine(), {}), false);
  EXPECT_THAT(text, HasSubstr("Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64 x86_64, as user 1000\n"));
  EXPECT_THAT(text, HasSubstr("\nyes  fabric "));
  EXPECT_THAT(text, HasSubstr("\nno   vm "));
  EXPECT_THAT(
      text,
      HasSubstr("              QEMU: no qemu-system-x86_64\n              → sudo apt-get install qemu-system-x86\n"));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(to_text(examine(paper.machine(), {"vm"}), true), HasSubstr("\033[31mno "));
}

TEST(Doctor, WritesItsFindingsAsJson) {
  FakeMachine paper;
  const auto json = nlohmann::json::parse(to_json(examine(paper.machine(), {"vm"}), "1.2.3"));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["machine"]["kernel"], "6.1.0-18-amd64");
  const auto& mode = json["modes"].at(0);
  EXPECT_EQ(mode["works"], false);
  EXPECT_EQ(mode["findings"].at(0)["state"], "bad");
  EXPECT_EQ(mode["findings"].at(0)["fix"], "sudo apt-get install qemu-system-x86");
  EXPECT_FALSE(mode["findings"].at(2).contains("fix"));
}

TEST(DoctorTrials, SurviveHangsAndCrashes) {
  EXPECT_EQ(run_in_child(60, [] { return std::string("answer"); }), "answer");
  EXPECT_EQ(run_in_child(0.05,
                         []() -> std::string {
                           for (;;) pause();
                         }),
            std::nullopt);
  EXPECT_EQ(run_in_child(60, []() -> std::string { abort(); }), std::nullopt);
  EXPECT_EQ(run_in_child(60, []() -> std::string { throw std::runtime_error("no"); }), std::nullopt);
}

TEST(DoctorTrials, RunOnThisMachine) {
  const Diagnosis diagnosis = examine(Machine::this_machine("plugfest"), {});
  EXPECT_EQ(diagnosis.modes.size(), mode_names().size());
  for (const Mode& mode : diagnosis.modes) EXPECT_FALSE(mode.findings.empty()) << mode.name;
  EXPECT_TRUE(diagnosis.modes.front().works()) << to_text(diagnosis, false);
}

}  // namespace
}  // namespace plugfest::doctor
