// Schedules, the model, files, random schedules and their shrinking. No rank runs.
#include "conformance/model/model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "conformance/model/schedule.h"
#include "fabric/system/testing.h"

namespace plugfest::model {
namespace {

Schedule schedule_of(std::vector<Step> steps) {
  return {.topology = "pair", .ranks = {"h1.eth0", "h2.eth0"}, .seed = 7, .steps = std::move(steps)};
}

Transfer one_message(unsigned comm, std::uint32_t bytes) {
  return {.comm = comm, .messages = {{.tag = 3, .bytes = bytes, .room = bytes}}, .sends = {0}};
}

// The error of plan(); "" for none.
std::string refusal_of(std::vector<Step> steps) {
  try {
    plan(schedule_of(std::move(steps)));
    return "";
  } catch (const InvalidStep& invalid) {
    return fmt::format("step {}: {}", invalid.step(), invalid.what());
  }
}

TEST(Model, EqualTagsAreFilledInTheOrderOfTheBuffers) {
  Transfer group{.comm = 0, .messages = {{5, 10, 30}, {6, 20, 20}, {5, 30, 30}}, .sends = {2, 1, 0}};
  const Plan made = plan(schedule_of({Connect{}, group}));
  const wire::ProgramStep& sends = made.programs[0].steps[1];
  const wire::ProgramStep& receive = made.programs[1].steps[1];
  ASSERT_EQ(sends.messages.size(), 3u);
  EXPECT_EQ(sends.messages[0].bytes, 30u);
  EXPECT_EQ(sends.messages[2].bytes, 10u);
  // The first send with tag 5 has 30 bytes and fills the first buffer with tag 5.
  EXPECT_EQ(receive.messages[0].bytes, 30u);
  EXPECT_EQ(receive.messages[0].contents, sends.messages[0].contents);
  EXPECT_EQ(receive.messages[1].contents, sends.messages[1].contents);
  EXPECT_EQ(receive.messages[2].bytes, 10u);
  EXPECT_EQ(receive.messages[2].room, 30u);
}

TEST(Model, CommsThatNoStepClosesAreClosedAtTheEnd) {
  const Plan made = plan(schedule_of({Connect{}, Connect{.comm = 1, .from = 1, .to = 0}, Close{0}}));
  for (const wire::Program& program : made.programs) {
    EXPECT_EQ(std::count_if(program.steps.begin(), program.steps.end(),
                            [](const auto& step) { return step.action == wire::ProgramAction::kClose; }),
              2);
  }
}

TEST(Model, NoRankClosesACommWhileFaultsMayHitTheLastAcknowledgement) {
  Schedule schedule = schedule_of({Connect{}, one_message(0, 1), Close{0}});
  schedule.faults = "loss=1%";
  for (const wire::Program& program : plan(schedule).programs) {
    ASSERT_EQ(program.steps.size(), 2u);
    EXPECT_EQ(program.steps.back().action, wire::ProgramAction::kTransfer);
  }
}

TEST(Model, RefusesStepsThatNoCorrectUserTakes) {
  EXPECT_EQ(refusal_of({one_message(0, 1)}), "step 0: comm 0 is not connected");
  EXPECT_EQ(refusal_of({Connect{}, Connect{}}), "step 1: comm 0 is already connected");
  EXPECT_EQ(refusal_of({Connect{}, Close{0}, one_message(0, 1)}), "step 2: comm 0 is closed");
  EXPECT_EQ(refusal_of({Connect{}, Close{0}, Close{0}}), "step 2: comm 0 is closed");
  EXPECT_EQ(refusal_of({Connect{}, Transfer{.comm = 0, .messages = {{1, 9, 8}}, .sends = {0}}}),
            "step 1: a message of 9 bytes with tag 1 does not fit into the room of 8");
  EXPECT_EQ(refusal_of({Connect{}, Transfer{.comm = 0, .messages = {{1, 9, 9}, {1, 9, 9}}, .sends = {0, 0}}}),
            "step 1: sends: expected each of 0 to 1 once");
}

TEST(Model, LeavesOutStepsWhoseCommIsNotOpen) {
  const Schedule left = without_invalid_steps(
      schedule_of({one_message(0, 1), Connect{.comm = 1}, Close{0}, one_message(1, 2), Close{1}, one_message(1, 3)}));
  EXPECT_EQ(left.steps, (std::vector<Step>{Connect{.comm = 1}, one_message(1, 2), Close{1}}));
}

Schedule one_sided(std::vector<Step> steps) {
  Schedule schedule = schedule_of(std::move(steps));
  schedule.interface = "rma";
  return schedule;
}

TEST(OneSidedModel, PlacesBytesAndAddsUpSignals) {
  const Plan made = plan(
      one_sided({OneSided{.bytes = 100, .signal = 1, .add = 5}, OneSided{.get = true, .from = 1, .to = 0, .bytes = 30},
                 Compare{}, Compare{}, OneSided{.bytes = 10, .signal = 1}, OneSided{.bytes = 20, .signal = 0}}));
  ASSERT_EQ(made.rounds.size(), 2u) << "a comparison without operations has no effect";
  EXPECT_EQ(made.rounds[0].operations.size(), 2u);
  EXPECT_EQ(made.rounds[0].operations[1].offset, 0u) << "of the other rank";
  EXPECT_EQ(made.rounds[1].operations[1].step, 5u);
  EXPECT_EQ(made.rounds[1].operations[1].offset, 10 + kGapBytes);
  EXPECT_EQ(made.rounds[0].signals, (std::vector<std::uint64_t>{0, 0, 0, 5}));
  EXPECT_EQ(made.rounds[1].signals, (std::vector<std::uint64_t>{0, 0, 1, 6}));
  EXPECT_EQ(made.source_bytes, 100u);
  EXPECT_EQ(made.target_bytes, 100 + kGapBytes);
}

TEST(OneSidedModel, RefusesStepsThatNoCorrectUserTakes) {
  const auto refusal = [](const Schedule& schedule) { return error_message([&] { plan(schedule); }); };
  EXPECT_EQ(refusal(one_sided({OneSided{}})), "expected bytes or a signal");
  EXPECT_EQ(refusal(one_sided({OneSided{.get = true, .bytes = 1, .signal = 0}})), "a get has no signal");
  EXPECT_EQ(refusal(one_sided({OneSided{.bytes = 1, .add = 0}})), "add needs a signal");
  EXPECT_EQ(refusal(one_sided({Connect{}})), "rma has no such step: expected put, get or compare");
  EXPECT_EQ(refusal(schedule_of({Compare{}})), "a net has no such step: expected a line interface: gin or rma");
  std::vector<Step> many(kMaxInFlight + 1, OneSided{.bytes = 1});
  EXPECT_EQ(refusal(one_sided(many)),
            "32 operations of the rank to the other one are in flight: expected a compare before it");
  many.insert(many.begin() + 9, Compare{});
  EXPECT_EQ(plan(one_sided(many)).rounds.size(), 2u);
}

class ScheduleFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::filesystem::path path = folder_.path() / "x.yaml";
    std::ofstream(path) << text;
    return path;
  }
  // The error for a file with these steps, without the path.
  std::string error_of(const std::string& steps) {
    const std::string path = write("topology: pair\nranks: [h1.eth0, h2.eth0]\nseed: 1\nsteps:\n" + steps);
    const std::string text = error_message([&] { read_schedule(path); }), head = "schedule " + path;
    EXPECT_THAT(text, ::testing::StartsWith(head));
    return text.substr(std::min(head.size(), text.size()));
  }

  ScratchFolder folder_;
};

TEST_F(ScheduleFile, HoldsEverySchedule) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Schedule made = random_schedule({"", "star:3", {"h1.eth0", "h2.eth0", "h3.eth0"}, 8, true}, seed);
    EXPECT_EQ(read_schedule(write(file_text(made, {"a comment", "another\nline"}))), made) << "seed " << seed;
  }
}

TEST_F(ScheduleFile, HoldsEveryOneSidedSchedule) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Schedule made = random_schedule({.interface = "gin",
                                           .topology = "pair",
                                           .ranks = {"h1.eth0", "h2.eth0"},
                                           .faults = true,
                                           .gets = true,
                                           .contexts = true},
                                          seed);
    EXPECT_EQ(read_schedule(write(file_text(made, {"a comment"}))), made) << "seed " << seed;
  }
}

TEST_F(ScheduleFile, NamesTheInterfaces) {
  const std::string path = write("topology: pair\nranks: [h1.eth0, h2.eth0]\nseed: 1\ninterface: ib\nsteps: []\n");
  EXPECT_EQ(error_message([&] { read_schedule(path); }),
            "schedule " + path + ":4: interface \"ib\": expected gin or rma, or no such line for a net");
}

TEST_F(ScheduleFile, ErrorsNameTheLine) {
  const std::string connect = "  - connect: {comm: 0, from: h1.eth0, to: h2.eth0}\n";
  EXPECT_EQ(error_of(connect + "  - mesage: {comm: 0}\n"), ":6: no operation \"mesage\": did you mean message?");
  EXPECT_EQ(error_of(connect + "  - message: {comm: 0, tag: 1, byte: 5}\n"),
            ":6: message: no field \"byte\": expected one of comm, tag, bytes, room, repeat");
  EXPECT_EQ(error_of(connect + "  - message: {comm: 0, tag: 1}\n"), ":6: message: field bytes is missing");
  EXPECT_EQ(error_of(connect + "  - message: {comm: 0, tag: 1, bytes: -1}\n"),
            ":6: message bytes \"-1\": expected a whole number from 0 to 16777216");
  EXPECT_EQ(error_of(connect + "  - close: {comm: 0}\n  - message: {comm: 0, tag: 1, bytes: 5}\n"),
            ":7: message: comm 0 is closed");
  EXPECT_EQ(error_of("  - connect: {comm: 0, from: h1.eth0, to: h9.eth0}\n"),
            ":5: connect to \"h9.eth0\": did you mean h1.eth0?");
  EXPECT_EQ(error_of("  - close\n"), ":5: step: expected fields, as in name: value");
}

TEST(RandomSchedule, DependsOnTheSeedOnlyAndIsValid) {
  const Shape shape{"", "star:3", {"h1.eth0", "h2.eth0", "h3.eth0"}, 4};
  std::size_t groups = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Schedule made = random_schedule(shape, seed);
    EXPECT_EQ(made, random_schedule(shape, seed));
    EXPECT_NO_THROW(plan(made)) << "seed " << seed;
    EXPECT_LE(widest_group(made), 4u);
    if (widest_group(made) > 1) ++groups;
  }
  EXPECT_GT(groups, 20u);
  EXPECT_NE(random_schedule(shape, 1), random_schedule(shape, 2));
}

TEST(RandomSchedule, HasNoGetsIfThePluginHasNone) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const Step& step :
         random_schedule({.interface = "gin", .topology = "pair", .ranks = {"h1.eth0", "h2.eth0"}}, seed).steps)
      if (const auto* const operation = std::get_if<OneSided>(&step)) {
        EXPECT_FALSE(operation->get);
        EXPECT_EQ(operation->context, 0u);
      }
}

TEST(Shrink, KeepsTheOperationsThatTheFailureNeeds) {
  const Shape shape{.interface = "rma",
                    .topology = "star:3",
                    .ranks = {"h1.eth0", "h2.eth0", "h3.eth0"},
                    .faults = true,
                    .gets = true,
                    .contexts = true};
  // Fails when a put of at least 100 bytes follows a get.
  const auto fails = [](const Schedule& schedule) {
    bool after_get = false;
    return std::any_of(schedule.steps.begin(), schedule.steps.end(), [&](const Step& step) {
      const auto* const operation = std::get_if<OneSided>(&step);
      if (operation == nullptr) return false;
      after_get |= operation->get;
      return after_get && !operation->get && operation->bytes >= 100;
    });
  };
  std::uint64_t seed = 0;
  while (!fails(random_schedule(shape, seed))) ++seed;
  const Schedule small = shrink(random_schedule(shape, seed), fails);
  ASSERT_EQ(small.steps.size(), 2u) << file_text(small, {});
  EXPECT_EQ(small.faults, "");
  auto get = std::get<OneSided>(small.steps[0]), put = std::get<OneSided>(small.steps[1]);
  get.from = put.from = 0;
  get.to = put.to = 1;
  EXPECT_EQ(get, (OneSided{.get = true, .bytes = 1}));
  EXPECT_EQ(put, (OneSided{.bytes = 100}));
}

TEST(Shrink, KeepsTheMessagesThatTheFailureNeeds) {
  const Shape shape{"", "star:3", {"h1.eth0", "h2.eth0", "h3.eth0"}, 8};
  // Fails when a message of at least 100 bytes is sent ten times or more.
  const auto fails = [](const Schedule& schedule) {
    return std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const Step& step) {
      const auto* transfer = std::get_if<Transfer>(&step);
      return transfer != nullptr && transfer->repeat >= 10 && transfer->messages.front().bytes >= 100;
    });
  };
  std::uint64_t seed = 0;
  while (!fails(random_schedule(shape, seed))) ++seed;
  const Schedule small = shrink(random_schedule(shape, seed), fails);
  ASSERT_EQ(small.steps.size(), 2u) << file_text(small, {});
  const auto& transfer = std::get<Transfer>(small.steps[1]);
  EXPECT_EQ(transfer.repeat, 10u);
  EXPECT_EQ(transfer.messages, (std::vector<Message>{{0, 100, 100}}));
}

}  // namespace
}  // namespace plugfest::model
