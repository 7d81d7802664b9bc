// Runs one rule, and turns what it returns or throws into a verdict.
#include "conformance/rules/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>

#include "fabric/system/number.h"
#include "harness/control/call.h"
#include "harness/control/process/stack.h"

namespace plugfest::conformance {
namespace {

using report::Verdict;

std::string with_stack(const std::string& message, const std::vector<std::string>& stack) {
  std::string text = message;
  for (const std::string& frame : stack) text += "\n  " + frame;
  return text;
}

// The verdict of a rule of `level` on a plugin that broke it. `must`: the verdict of a [M] rule.
Verdict broken_verdict(Level level, bool strict, Verdict must = Verdict::kFail) {
  if (level == Level::kShould) return strict ? must : Verdict::kWarn;
  return level == Level::kInfo && must == Verdict::kFail ? Verdict::kInfo : must;
}

// `call`: "test(request 0x2)". `stack`: see control::Hung. `library`: the plugin's file.
report::Cause cause_of(const std::string& call, const std::vector<std::string>& stack, bool hangs,
                       const std::string& library) {
  report::Cause cause = {.call = call.substr(0, call.find_first_of(" (")), .place = {}};
  const bool waits = !stack.empty() && stack.front().starts_with(control::kInSystemCall);
  if (hangs && !waits) return cause;
  cause.place = control::place_in_plugin(stack, library);
  if (!waits || cause.place.empty()) return cause;
  cause.place = fmt::format("{} at {}", stack.front().substr(control::kInSystemCall.size()), cause.place);
  return cause;
}

// Whether a call that does not return waits in the user-space NIC, in a function that neither is called in loops
// nor waits for an event by contract.
bool waits_in_nic(const std::vector<std::string>& stack) {
  const auto is_nic = [](const std::string& frame) { return frame.find("(libibverbs.so") != std::string::npos; };
  const auto is_below = [](const std::string& frame) {
    return frame.starts_with(control::kInSystemCall) || frame.ends_with("(libc.so.6)") ||
           frame.ends_with("(libpthread.so.0)");
  };
  const auto first = std::find_if_not(stack.begin(), stack.end(), is_below);
  const auto last = std::find_if_not(first, stack.end(), is_nic);
  const auto any_names = [&](std::string_view part) {
    return std::any_of(first, last, [&](const std::string& frame) { return frame.find(part) != std::string::npos; });
  };
  // The types of their arguments also match, since the functions themselves are lambdas.
  constexpr std::string_view kLooped[] = {"poll", "ibv_wc", "post", "_wr", "event"};
  // rdma-core's library has the same file name, but not these names.
  return any_names("plugfest::") && std::none_of(std::begin(kLooped), std::end(kLooped), any_names);
}

RuleOutcome outcome_of_return(const Rule& rule, const Remarks& remarks, bool strict) {
  if (!remarks.warnings.empty()) {
    const Level level = rule.level == Level::kInfo ? Level::kInfo : Level::kShould;
    return {broken_verdict(level, strict), fmt::format("{}", fmt::join(remarks.warnings, "\n")), true};
  }
  return {rule.level == Level::kInfo ? Verdict::kInfo : Verdict::kPass,
          fmt::format("{}", fmt::join(remarks.observations, "\n")), true};
}

// Returns the seed of one rule. It depends only on the run's seed and the rule's id.
std::uint64_t seed_of(std::uint64_t run_seed, std::string_view rule_id) { return run_seed ^ hash_of(rule_id); }

}  // namespace

std::optional<Breach> breach_in(const std::function<void()>& part, const std::string& library) {
  try {
    part();
    return std::nullopt;
  } catch (const Broken& broken) {
    return Breach{Verdict::kFail, broken.what()};
  } catch (const control::Hung& hung) {
    if (waits_in_nic(hung.stack()))
      throw std::runtime_error(
          with_stack(fmt::format("{}: it waits in plugfest's own NIC", hung.what()), hung.stack()));
    return Breach{Verdict::kTimeout, with_stack(hung.what(), hung.stack()),
                  cause_of(hung.call(), hung.stack(), true, library), hung.cut_short()};
  } catch (const control::Crashed& crashed) {
    return Breach{Verdict::kCrash, with_stack(crashed.what(), crashed.stack()),
                  cause_of(crashed.call(), crashed.stack(), false, library)};
  } catch (const control::UndefinedCode&) {
    throw;  // a bug of the whole plugin: see Declaration::covers_undefined_codes
  } catch (const control::Deviation& deviation) {
    return Breach{Verdict::kFail, deviation.what()};
  }
}

RuleOutcome run_rule(const Rule& rule, const RuleContext& context, std::uint64_t run_seed, bool strict) {
  try {
    const std::unique_ptr<RuleBody> body = rule.make_body();
    body->enter(context, seed_of(run_seed, rule.id));
    const std::optional<Breach> breach = breach_in(
        [&] {
          body->run();
          if (context.lease != nullptr) context.lease->check();  // a rank may have crashed outside a call
        },
        context.library);
    if (!breach) return outcome_of_return(rule, body->remarks(), strict);
    return {broken_verdict(rule.level, strict, breach->verdict),
            breach->message,
            false,
            breach->cause,
            false,
            breach->cut_short};
  } catch (const NotApplicable& reason) {
    return {Verdict::kNotApplicable, reason.what(), true};
  } catch (const Skipped& reason) {
    return {Verdict::kSkip, reason.what(), true};
  } catch (const control::Unusable& unusable) {
    return {Verdict::kSkip, unusable.what(), true};
  } catch (const control::Interrupted&) {
    return {Verdict::kMissing, "interrupted: a signal ended the run", false};
  } catch (const control::UndefinedCode& undefined) {
    return {broken_verdict(rule.level, strict), undefined.what(), false, {}, true};
  } catch (const std::exception& error) {
    return {Verdict::kError, error.what(), false};
  } catch (...) {
    return {Verdict::kError, "the rule threw an object that is not a std::exception", false};
  }
}

}  // namespace plugfest::conformance
