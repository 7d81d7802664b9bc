// Messages whose requests have phandles, and the events that the plugin reports for them through the profiler callback.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/net/script/flow.h"

namespace plugfest::conformance {

/// An isend or irecv whose buffers have phandles of their own.
struct ProfiledRequest {
  /// "isend of 1000 bytes, tag 7".
  std::string what;
  std::vector<std::uint64_t> phandles;
  /// End of the test that reported it as done, CLOCK_MONOTONIC.
  std::int64_t done_ns = 0;
};

/// What the plugin reported in one rank.
struct ProfilerReport {
  std::string rank;
  std::vector<ProfiledRequest> requests;
  /// The phandles of each group of messages, and the phandle of a single message that has their size.
  std::vector<std::vector<std::uint64_t>> groups;
  std::uint64_t single = 0;
  std::vector<ProfilerCall> calls;
  /// End of the close of the rank's comm, CLOCK_MONOTONIC.
  std::int64_t closed_ns = 0;

  /// The request that has this phandle; null if none has it.
  const ProfiledRequest* request_with(std::uint64_t phandle) const;
  std::vector<ProfilerCall> starts() const;
  /// Number of starts with this phandle.
  std::size_t starts_with(std::uint64_t phandle) const;
  /// The first flaw in the order of starts, updates and stops: "rank a.eth0: test stopped …"; "" if there is none.
  std::string flaw_in_order() const;
  /// "rank a.eth0: isend started an event (eHandle 0x1, phandle 0x2)". `end`: "isend" without it: "a thread".
  std::string describe(const ProfilerCall& call) const;
};

/// How messages are delivered to observe their events.
struct ProfiledDelivery {
  /// What the profiler callback answers to the plugin.
  ProfilerAnswers answers = {};
  /// Whether the requests have phandles; without, all are NULL.
  bool phandles = true;
  /// Whether irecv gets an array of phandles.
  bool phandle_array = true;
};

/// Base of the rules about the profiler callback.
class ProfilerCallbackRule : public MessageRule {
 protected:
  /// Delivers messages of several sizes, then groups of messages, over a new connection, and closes it. Returns the
  /// reports of sender and receiver. Errors: whatever the calls throw; `Broken` if content is wrong.
  std::vector<ProfilerReport> deliver_messages(const ProfiledDelivery& delivery = {});
  /// Delivers the messages of deliver_messages() over `connection`.
  std::vector<ProfilerReport> deliver_messages_over(const Connection& connection,
                                                    const ProfiledDelivery& delivery = {});
  /// Calls deliver_messages() with phandles. Errors: also `NotApplicable` if the plugin reports no event.
  std::vector<ProfilerReport> delivered_events();
  /// Errors: `NotApplicable` if the plugin reports no event.
  void require_events(const std::vector<ProfilerReport>& reports);
  /// Throws `Broken` if `is_flaw` holds for a call. `flaw`: continues describe(): "with a phandle that is NULL".
  template <typename IsFlaw>
  void refuse_calls(const std::vector<ProfilerReport>& reports, const std::string& flaw, IsFlaw is_flaw) {
    for (const ProfilerReport& report : reports)
      for (const ProfilerCall& call : report.calls)
        expect(!is_flaw(report, call), [&] { return report.describe(call) + flaw; });
  }
};

}  // namespace plugfest::conformance
