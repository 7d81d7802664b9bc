// Programs that run inside a rank, where a round trip for each plugin call would be too slow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::control {

/// What both ends of a stream of messages must agree on. Message k has a size and content that follow from `seed` and k
/// alone, so each end knows them.
struct StreamPlan {
  std::uint64_t count = 1000;
  std::uint64_t seed = 1;
  /// Sizes of messages: each one of these, drawn by seed.
  std::vector<std::uint32_t> sizes = {0, 1, 63, 64, 65, 4095, 4096, 4097, 65536};
  /// Receives are posted for this size whatever the message's (0: the message's own).
  std::uint32_t posted_size = 0;
  /// Messages in flight at each end; a group counts once at the receiver.
  std::uint32_t window = 8;
  /// Receives are groups: of random width 1 to `group` (n). Tags within a group differ, and the sends of one group are
  /// posted in a random order.
  std::uint32_t group = 1;
  /// Tag of single messages; groups use tag, tag+1, ….
  int tag = 0;
  /// Only the oldest request of the comm is ever tested (TS-06); else all in turn.
  bool oldest_only = true;
  /// *request at isend and irecv; kMarker is for receives only (XF-19), where sends take kStale.
  Preset request = Preset::kStale;
  /// Contents are compared for every n-th message; sizes always.
  std::uint32_t check_every = 1;
};

struct StreamOutcome : Outcome {
  /// Messages that completed.
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  /// isend or irecv calls that were answered by NULL.
  std::uint64_t deferrals = 0;
  std::uint64_t tests = 0;
  /// "" if all went well; else what went wrong first: "message 17: sizes[0] = 4096, sent 1000 (tag 7)".
  std::string broken;
  /// True when nothing completed within a call's deadline; `broken` says what was outstanding.
  bool stalled = false;
};

/// Runs one end on `prog` (or the comm's thread). Memory and registration are made and given back by the program.
/// `get` never throws for what the plugin did wrong except `Hung` and `Crashed`: see `require_clean`.
Started<StreamOutcome> start_sending(const SendComm& comm, const StreamPlan& plan);
Started<StreamOutcome> start_receiving(const RecvComm& comm, const StreamPlan& plan);

/// Throws `Deviation` or `Stalled` when the program met something wrong.
void require_clean(const StreamOutcome& outcome);

/// Runs both ends at once and requires both to be clean.
void stream(const SendComm& send, const RecvComm& receive, const StreamPlan& plan = {});

/// Connections that one thread of a rank sets up side by side, in one loop without waiting for any (CN-09).
struct ConnectMany {
  Device device;
  /// One connect each.
  std::vector<Handle> handles;
  /// One accept each.
  std::vector<Listener> listeners;
  /// The loop takes connects and accepts in this order; indices into handles, then listeners. Empty: as listed.
  std::vector<std::uint32_t> order;
};
struct ConnectManyOutcome : Outcome {
  /// In the order of `handles` and `listeners`; 0 where not done.
  std::vector<std::uint64_t> send_comms;
  std::vector<std::uint64_t> recv_comms;
  std::uint64_t calls = 0;
  std::string broken;
  bool stalled = false;
};
/// Runs on `svc`. The comms count as open until they are closed.
Started<ConnectManyOutcome> start_connecting(const Rank& rank, const ConnectMany& plan);
void require_clean(const ConnectManyOutcome& outcome);

}  // namespace plugfest::control
