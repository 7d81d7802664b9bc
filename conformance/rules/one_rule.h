// Runs one rule of a run on its own ranks.
#pragma once

#include "conformance/rules/runner.h"
#include "conformance/rules/turns.h"
#include "fabric/system/clock.h"

namespace plugfest::conformance {

/// Waits for the rule's turn, runs it on ranks of `session`, and returns the ranks to `session`. Writes the verdict,
/// the message and the evidence into `result`; a rule that cannot run gets the reason. `run_watch` began with the run.
/// Returns RuleOutcome::undefined_code. Thread safety: one thread for each group of ranks.
bool run_on_ranks(control::Session* session, const Rule& rule, const bed::RankGroup& ranks, const RunSettings& settings,
                  Turns& turns, const Stopwatch& run_watch, report::RuleResult& result);

}  // namespace plugfest::conformance
