#include "harness/control/joining.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

namespace plugfest::control {

Joining::Joining(std::vector<Rank> ranks, CallArguments more)
    : ranks_(std::move(ranks)), more_(std::move(more)), started_(ranks_.size()) {
  for (Rank& rank : ranks_) {
    const CallOutcome listening = rank.call("listen", {{"dev", 0}, {"handle", 0}});
    listeners_.push_back(listening.pointer("*listenComm"));
    const std::vector<std::byte>& handle = listening.bytes("handle");
    handles_.insert(handles_.end(), handle.begin(), handle.end());
  }
}

void Joining::start(std::size_t number) {
  CallArguments arguments = {{"handles", handles_},
                             {"nranks", ranks_.size()},
                             {"rank", number},
                             {"listenComm", listeners_[number]},
                             {"*collComm", 0}};
  arguments.insert(more_.begin(), more_.end());
  started_[number].emplace(ranks_[number].start_call("connect", arguments));
}

void Joining::start_all(std::chrono::milliseconds lateness) {
  const std::size_t last = ranks_.size() - 1;
  for (std::size_t i = 0; i < last; ++i) start(i);
  std::this_thread::sleep_for(lateness);  // the lateness that a rule is about
  start(last);
}

CallOutcome Joining::get(std::size_t number) {
  CallOutcome outcome = started_[number]->get();
  if (outcome.ok()) ranks_[number].call("closeListen", {{"listenComm", listeners_[number]}});
  return outcome;
}

std::vector<Joined> Joining::get_all() {
  std::vector<Joined> joined;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const CallOutcome outcome = get(i);
    require_success(outcome);
    if (outcome.pointer("*collComm") == 0)
      throw Deviation(outcome.rank, fmt::format("{} succeeded and stored no collComm", outcome.call));
    joined.push_back({ranks_[i], outcome.pointer("*collComm")});
  }
  return joined;
}

}  // namespace plugfest::control
