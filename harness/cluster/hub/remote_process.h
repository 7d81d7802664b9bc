// A rank on the host of an agent, as rules see it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "harness/cluster/hub/shared.h"
#include "harness/cluster/wire/link.h"
#include "harness/control/process/launcher.h"

namespace plugfest::cluster {

class RemoteProcess final : public control::ChildProcess {
 public:
  /// `tell`: sends a message without a body about the rank to its agent. `shared` must outlive the object.
  RemoteProcess(HubShared& shared, std::shared_ptr<RemoteRank> rank, std::function<void(Kind)> tell)
      : shared_(shared), rank_(std::move(rank)), tell_(std::move(tell)) {}
  ~RemoteProcess() override { end(); }

  pid_t pid() const override { return -1; }
  bool alive() const override { return !reaped_; }
  bool frozen() const override { return frozen_; }
  bool has_ended() const override;
  bool freeze() override;
  void thaw() override;
  std::optional<int> end() override;
  std::shared_ptr<const LoadClock::Meter> waited() const override { return rank_->waited; }
  std::string end_reason() const override;

 private:
  HubShared& shared_;
  const std::shared_ptr<RemoteRank> rank_;
  const std::function<void(Kind)> tell_;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace plugfest::cluster
