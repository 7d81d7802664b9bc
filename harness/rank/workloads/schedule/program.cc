// Runs a program: issues its steps to the ends of its connections, and drives all of them in one loop.
#include <time.h>

#include <algorithm>
#include <deque>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/workloads/schedule/comm_end.h"
#include "harness/rank/workloads/stall_timer.h"

namespace plugfest::rank {

namespace {

/// Time without plugin calls.
void pause(std::uint32_t us) {
  const timespec length{us / 1'000'000, static_cast<long>(us % 1'000'000) * 1000};
  nanosleep(&length, nullptr);
}

void run(const Program& program, ProgramAnswer& answer) {
  std::deque<CommEnd> ends;
  for (const ProgramComm& comm : program.comms) ends.emplace_back(program, comm, answer);
  const auto accepted = [](const CommEnd& end) { return end.all_accepted(); };
  const auto idle = [](const CommEnd& end) { return end.idle(); };
  StallTimer stall(program.timeout_ns);
  auto next = program.steps.begin();
  try {
    for (;;) {
      for (; next != program.steps.end(); ++next) {
        if (next->action != ProgramAction::kPause) {
          ends.at(next->comm).issue(*next);
        } else if (std::all_of(ends.begin(), ends.end(), accepted)) {
          pause(next->pause_us);
        } else {
          break;
        }
      }
      bool moved = false;
      for (CommEnd& end : ends) moved |= end.turn();
      if (next == program.steps.end() && std::all_of(ends.begin(), ends.end(), idle)) return;
      if (moved) {
        stall.restart();
      } else if (stall.expired()) {
        answer.stalled = true;
        throw std::find_if_not(ends.begin(), ends.end(), idle)->oldest();
      }
    }
  } catch (const Deviates& deviates) {
    answer.broken = deviates.what;
    answer.step = deviates.step;
  }
}

}  // namespace

ProgramAnswer execute(const Program& program) {
  ProgramAnswer answer;
  answer.start_ns = now_ns();
  run(program, answer);
  answer.end_ns = now_ns();
  return answer;
}

}  // namespace plugfest::rank
