// Connects the ranks of a plan and registers their buffers, as NCCL's service thread does.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/control/session.h"
#include "harness/traffic/plan.h"

namespace plugfest::traffic {

/// The ranks of a plan, in order.
class Team {
 public:
  /// `group`: rank i of the plan is group.ranks[i]. Starts ranks. Errors: as Lease::endpoint.
  Team(control::Lease& lease, bed::RankGroup group);

  std::size_t size() const { return group_.ranks.size(); }
  const std::string& name(std::size_t rank) const { return group_.ranks[rank]; }
  const control::Rank& rank(std::size_t rank) const { return ranks_[rank]; }
  bool reaches(std::size_t from, std::size_t to) const { return !group_.interfaces[from][to].empty(); }
  /// The device of `from` towards `to`.
  control::Device device(std::size_t from, std::size_t to) const { return devices_[from][to]; }
  /// Buffers that one irecv takes on every device.
  std::uint32_t max_buffers() const { return max_buffers_; }

  /// All ranks so that each reaches the next and the last reaches the first; empty if there is no such order, or none
  /// was found quickly.
  std::vector<std::size_t> ring_order() const;
  /// The parent of each rank in a tree with at most three children each; empty if not all are connected.
  std::vector<std::size_t> tree() const;
  bool complete() const;

 private:
  bed::RankGroup group_;
  std::vector<control::Rank> ranks_;
  std::vector<std::vector<control::Device>> devices_;
  std::uint32_t max_buffers_ = 1;
};

/// Connections that exist and have buffers. They stay open until the lease ends.
class Setup {
 public:
  /// Connects in the order of NCCL (transport.cc: ncclTransportP2pSetup). Errors: as control::Rank; `Deviation`
  /// and `Stalled` if a connection fails.
  Setup(const Team& team, const Plan& plan);

  /// The connections of a rank, in the order of the plan, without other ranks' connections.
  const std::vector<wire::ReplayConnection>& connections(std::size_t rank) const { return ends_[rank]; }
  /// Index in connections(rank) of a connection of the plan.
  std::uint32_t local(std::size_t rank, std::uint32_t connection) const { return local_[rank].at(connection); }
  /// The comms of a rank by the thread that has made them.
  const std::map<std::string, std::set<std::uint64_t>>& comms(std::size_t rank) const {
    return comms_of_threads_[rank];
  }
  /// Keeps the positions of the connections for the next replay.
  void advance(std::size_t rank, const wire::ReplayReport& report);

 private:
  struct Comm {
    std::uint64_t send = 0, receive = 0;
  };
  void connect(const Team& team, const Plan& plan);
  void register_buffers(const Team& team, const Plan& plan);
  wire::ReplayBuffer register_on(const control::Rank& rank, bool sends, std::uint64_t comm,
                                 const control::Memory& memory);

  std::vector<Comm> comms_;  ///< by connection of the plan
  std::vector<std::vector<wire::ReplayConnection>> ends_;
  std::vector<std::vector<std::uint32_t>> local_;
  std::vector<std::map<std::string, std::set<std::uint64_t>>> comms_of_threads_;  ///< by rank
};

}  // namespace plugfest::traffic
