#include "harness/cluster/load.h"

#include <algorithm>
#include <exception>
#include <set>

#include "harness/cluster/agents/pair.h"
#include "harness/control/call.h"
#include "harness/control/script.h"
#include "harness/control/workload.h"

namespace plugfest::cluster {
namespace {

constexpr std::uint64_t kFirstCount = 4;

// A NIC in a load, and its comms.
struct Member {
  control::Endpoint endpoint;
  std::vector<control::SendComm> sends = {};
  std::vector<control::RecvComm> receives = {};
};

void connect(Member& from, Member& to) {
  const control::Connection connection = control::connect(from.endpoint, to.endpoint);
  from.sends.push_back(connection.send);
  to.receives.push_back(connection.receive);
}

// The distances of a member's peers: 1, 2, 4, …, then the rest, spread over the whole ring.
std::vector<std::size_t> distances(std::size_t members, std::size_t peers) {
  std::set<std::size_t> chosen;
  for (std::size_t distance = 1; distance < members && chosen.size() < peers; distance *= 2) chosen.insert(distance);
  for (std::size_t distance = 1; distance < members && chosen.size() < peers; ++distance) chosen.insert(distance);
  return {chosen.begin(), chosen.end()};
}

// Lets all comms transfer for about the requested time. Returns the seconds that each member took, according to its
// own clock, and sets the number of messages on each comm.
std::vector<double> transfer(std::vector<Member>& members, const LoadSettings& settings, std::uint64_t& count) {
  for (count = kFirstCount;;) {
    const control::ThroughputPlan plan{.size = settings.message_bytes, .count = count};
    std::vector<control::Started<control::MeasuredOutcome>> started;
    for (Member& member : members)
      started.push_back(control::start_throughput(member.endpoint.rank, member.sends, member.receives, plan));
    std::vector<control::MeasuredOutcome> outcomes;
    for (auto& one : started) outcomes.push_back(one.get());
    std::vector<double> seconds;
    for (const control::MeasuredOutcome& outcome : outcomes) {
      control::require_clean(outcome);
      seconds.push_back(static_cast<double>(outcome.end_ns - outcome.start_ns) / 1e9);
    }
    const double longest = *std::max_element(seconds.begin(), seconds.end());
    const auto more = longer(count, longest, settings.seconds);
    if (!more) return seconds;
    count = *more;
  }
}

std::vector<Member> members_of(control::Lease& lease, const std::vector<std::string>& nics) {
  std::vector<Member> members;
  for (const std::string& nic : nics) members.push_back({lease.endpoint(nic)});
  return members;
}

template <typename Work>
LoadRecord guarded(control::Session& session, const std::string& kind, Work work) {
  LoadRecord record{.kind = kind};
  try {
    control::Lease lease = session.lease();
    work(lease, record);
    lease.release(true);
  } catch (const control::Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    record.broken = error.what();
  }
  return record;
}

}  // namespace

LoadRecord all_to_all(control::Session& session, const std::vector<std::string>& nics, const LoadSettings& settings) {
  return guarded(session, "all-to-all", [&](control::Lease& lease, LoadRecord& record) {
    std::vector<Member> members = members_of(lease, nics);
    for (const std::size_t distance : distances(members.size(), settings.peers)) {
      ++record.peers;
      for (std::size_t i = 0; i < members.size(); ++i) connect(members[i], members[(i + distance) % members.size()]);
    }
    std::uint64_t count = 0;
    const std::vector<double> seconds = transfer(members, settings, count);
    record.seconds = *std::max_element(seconds.begin(), seconds.end());
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto bytes = count * settings.message_bytes * members[i].receives.size();
      record.bits_per_second[nics[i]] = static_cast<double>(bytes) * 8 / seconds[i];
    }
  });
}

LoadRecord incast(control::Session& session, const std::vector<std::string>& nics, const LoadSettings& settings) {
  return guarded(session, "incast", [&](control::Lease& lease, LoadRecord& record) {
    std::vector<std::string> some(
        nics.begin(), nics.begin() + static_cast<std::ptrdiff_t>(std::min(nics.size(), settings.peers + 1)));
    std::vector<Member> members = members_of(lease, some);
    for (std::size_t i = 1; i < members.size(); ++i) connect(members[i], members[0]);
    record.peers = members.size() - 1;
    std::uint64_t count = 0;
    const std::vector<double> seconds = transfer(members, settings, count);
    record.seconds = *std::max_element(seconds.begin(), seconds.end());
    const double bits = static_cast<double>(count * settings.message_bytes) * 8;
    record.bits_per_second[some[0]] = bits * static_cast<double>(record.peers) / seconds[0];
    for (std::size_t i = 1; i < members.size(); ++i) record.bits_per_second[some[i]] = bits / seconds[i];
  });
}

}  // namespace plugfest::cluster
