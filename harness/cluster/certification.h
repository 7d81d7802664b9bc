// The measurements of a certification, in order: hosts, NICs, pairs, loads, soaks. Its results as plain data and as
// JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/cluster/agents/hub.h"
#include "harness/cluster/agents/pair.h"
#include "harness/cluster/load.h"
#include "harness/cluster/nics.h"
#include "harness/cluster/plan.h"
#include "harness/report/results.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

/// One host of the certification, including hosts that never joined.
struct HostRecord {
  std::string name;
  bool joined = false;
  /// The problem of this host; empty if it has none.
  std::string problem = {};
  std::string version = {};
  /// JSON, see facts(); empty if unknown.
  std::string facts = {};
  PLUGFEST_FIELDS(name, joined, version, problem)
};

struct PairRecord {
  /// Indices of NICs of one rail.
  std::size_t one = 0, other = 0;
  bool reached = false;
  /// Not measured, because the user stopped the run.
  bool interrupted = false;
  PairOutcome outcome = {};
  /// Why the pair is slow; empty if it is not.
  std::string slow = {};
};

struct NamedPair : PairOutcome {
  std::string one = {}, other = {};
  bool reached = false;
  PLUGFEST_FIELDS_AFTER(PairOutcome, one, other, reached)
};

/// The soak of a pair.
struct SoakedPair : report::SoakRecord {
  /// Names of NICs.
  std::string one = {}, other = {};
  /// Not soaked to its end, because the user stopped the run.
  bool interrupted = false;
  PLUGFEST_FIELDS_AFTER(SoakRecord, one, other)
};

using report::Suspect;

struct Certification {
  std::string plugin_name;
  std::vector<HostRecord> hosts;
  std::vector<Difference> differences;
  std::vector<Nic> nics;
  std::vector<PairRecord> pairs;
  std::vector<LoadRecord> loads;
  /// Each NIC with a pair that is not broken is in one of these, if a soak was requested.
  std::vector<SoakedPair> soaks;
  double soak_seconds = 0;
  std::vector<Suspect> suspects;
  HubCounters counters;
  /// CertifySettings::rounds.
  std::size_t rounds = 0;
  /// The largest resident set and the CPU time of this process.
  std::uint64_t peak_memory_bytes = 0;
  double processor_seconds = 0;
  std::map<std::string, double> seconds;
  bool interrupted = false;

  /// certification.json.
  std::string json() const;
  PLUGFEST_FIELDS(key("plugin", plugin_name), interrupted, computed("exit_code", [this] { return exit_code(); }), hosts,
                  differences, nics, rounds, computed("pairs", [this] { return named_pairs(); }), loads, soak_seconds,
                  unless_empty(soaks), suspects, seconds, key("control.messages", counters.messages),
                  key("control.bytes", counters.bytes), key("control.watching", counters.watching),
                  key("control.peak_memory_bytes", peak_memory_bytes),
                  key("control.processor_seconds", processor_seconds),
                  key("control.refused_connections", counters.refused))

  /// 2 if a host is lost or never joined, or a pair was not measured; else 1 if there are suspects; else 0.
  int exit_code() const;
  /// Indices of NICs, by rail.
  std::map<std::size_t, std::vector<std::size_t>> rails() const;

 private:
  std::vector<NamedPair> named_pairs() const;
};

struct CertifySettings {
  PairSettings pair;
  LoadSettings load;
  bool loads = true;
  /// Duration of the soaks of pairs; 0: none.
  double soak_seconds = 0;
  control::Subject subject;
  /// See control::Limits and HubOptions.
  double call_seconds = 10, host_seconds = 20;
  /// Number of pairs measured at the same time. 0: all of a round.
  std::size_t width = 0;
  /// The number of rounds to run. 0: all, so that each NIC is measured with each other NIC of its rail.
  std::size_t rounds = 0;
  std::function<bool()> stop;
  /// Called with one line at a time, from one thread.
  std::function<void(const std::string&)> progress;
};

/// Makes agents collect facts about their hosts and the plugin report its devices. `expected`: the names of all hosts,
/// including those that did not join. `stop`: ends the wait for facts.
void examine_hosts(Certification& certification, Hub& hub, control::Session& session,
                   const std::vector<std::string>& expected, const std::string& plugin,
                   const std::function<bool()>& stop);

/// Measures pairs of NICs of each rail, in rounds, then the loads, then soaks one pair of each NIC. Agents measure and
/// soak the pairs by themselves. `session`: runs the loads; its Subject::devices contains the NICs.
void measure(Certification& certification, Hub& hub, control::Session& session, const CertifySettings& settings);

/// Adds lost hosts, and broken and slow parts, to `suspects`. `loss_of`: why a host is lost; "" if it is not.
void find_suspects(Certification& certification, const std::function<std::string(const std::string& host)>& loss_of);

/// Sets `counters`, `peak_memory_bytes` and `processor_seconds`.
void record_cost(Certification& certification, Hub& hub);

/// The pairs for results.json, each in both directions.
std::vector<report::PairResult> pair_results(const Certification& certification);

/// What the ranks of some soaked pairs hold, for results.json: of those that leak, if there are any.
std::vector<report::Curve> soak_curves(const Certification& certification);

/// The verdict for results.json. Does not know the rules: its exit code is the certification's without them.
report::CertificationRecord record_of(const Certification& certification);

}  // namespace plugfest::cluster
