#include "harness/control/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/rank_process.h"

namespace plugfest::control {

namespace {

// Gives access to rank and thread of a comm.
struct CommAccess : RemoteObject {
  explicit CommAccess(const RemoteObject& object) : RemoteObject(object) {}
  const std::shared_ptr<RankProcess>& process() const { return rank_; }
  const std::string& thread() const { return thread_; }
};

Started<StreamOutcome> start_stream(const RemoteObject& comm, const StreamPlan& plan, bool sends) {
  const CommAccess access(comm);
  wire::Stream request;
  request.comm = comm.value();
  request.sends = sends;
  request.count = plan.count;
  request.seed = plan.seed;
  request.sizes = plan.sizes;
  request.posted_size = plan.posted_size;
  request.window = plan.window;
  request.group = plan.group;
  request.tag = plan.tag;
  request.oldest_only = plan.oldest_only;
  request.stale = plan.request == Preset::kStale || (sends && plan.request == Preset::kMarker);
  request.request_slot = sends && request.stale ? 0 : slot_value(plan.request, kPoison);
  request.check_every = plan.check_every;
  request.check_sizes = plan.check_sizes;
  request.registrations = plan.registrations;
  request.stepping_seed = plan.stepping_seed;
  request.timeout_ns = comm.timeout_ns();
  return start<StreamOutcome>(access.process(), access.thread(), request,
                              fmt::format("{} {}(comm {})", sends ? "send" : "receive", counted(plan.count, "message"),
                                          pointer_text(comm.value())),
                              [](StreamOutcome& outcome, const wire::StreamAnswer& answer, RankProcess& rank) {
                                outcome.messages = answer.messages;
                                outcome.bytes = answer.bytes;
                                outcome.deferrals = answer.deferrals;
                                outcome.tests = answer.tests;
                                outcome.broken = answer.broken;
                                outcome.stalled = answer.stalled;
                                outcome.wrong_size = answer.wrong_size;
                                if (!outcome.broken.empty()) rank.mark_unfit();
                                if (!outcome.broken.empty()) return outcome.broken;
                                return outcome.wrong_size.empty() ? counted(outcome.messages, "message")
                                                                  : outcome.wrong_size;
                              });
}

template <typename WorkloadOutcome>
void require(const WorkloadOutcome& outcome) {
  require_success(outcome);
  if (outcome.broken.empty()) return;
  const std::string what = fmt::format("rank {}: {}", outcome.rank, outcome.broken);
  if (outcome.stalled) throw Stalled(outcome.rank, what);
  throw Deviation(outcome.rank, what);
}

}  // namespace

Started<StreamOutcome> start_sending(const SendComm& comm, const StreamPlan& plan) {
  return start_stream(comm, plan, true);
}

Started<StreamOutcome> start_receiving(const RecvComm& comm, const StreamPlan& plan) {
  return start_stream(comm, plan, false);
}

void require_clean(const StreamOutcome& outcome) {
  require(outcome);
  if (!outcome.wrong_size.empty())
    throw WrongSize(outcome.rank, fmt::format("rank {}: {}", outcome.rank, outcome.wrong_size));
}

void stream(const SendComm& send, const RecvComm& receive, const StreamPlan& plan) {
  auto receiving = start_receiving(receive, plan);
  auto sending = start_sending(send, plan);
  std::vector<Started<StreamOutcome>> both;
  both.push_back(std::move(receiving));
  both.push_back(std::move(sending));
  require_all_clean(std::move(both));
}

void require_all_clean(std::vector<Started<StreamOutcome>> streams) {
  std::vector<StreamOutcome> outcomes;
  for (Started<StreamOutcome>& stream : streams) outcomes.push_back(stream.get());
  const auto key = [](const StreamOutcome& outcome) {
    return std::make_tuple(outcome.broken.empty(), outcome.stalled, outcome.wrong_size.empty(), outcome.end_ns);
  };
  const auto first = std::min_element(outcomes.begin(), outcomes.end(),
                                      [&](const auto& left, const auto& right) { return key(left) < key(right); });
  if (first != outcomes.end()) require_clean(*first);
}

Started<ConnectManyOutcome> start_connecting(const Rank& rank, const ConnectMany& plan) {
  const std::shared_ptr<RankProcess>& process = rank.rank_process();
  wire::ConnectMany request;
  request.devices.assign(plan.handles.size(), plan.device.index);
  for (std::size_t i = 0; i < plan.devices.size(); ++i) request.devices.at(i) = plan.devices[i].index;
  request.context = process->ledger.contexts.empty() ? 0 : process->ledger.contexts.front();
  for (const Handle& handle : plan.handles) request.handles.push_back(handle.bytes);
  for (const Listener& listener : plan.listeners) request.listeners.push_back(listener.value());
  request.order = plan.order;
  request.timeout_ns = process->timeout_ns();
  const std::size_t connects = request.handles.size();
  const std::size_t accepts = request.listeners.size();
  return start<ConnectManyOutcome>(
      process, rank.thread(), request,
      fmt::format("{} and {}", counted(connects, "connect"), counted(accepts, "accept")),
      [connects, accepts](ConnectManyOutcome& outcome, const wire::ConnectManyAnswer& answer, RankProcess& process) {
        outcome.send_comms = answer.send_comms;
        outcome.recv_comms = answer.recv_comms;
        outcome.send_comms.resize(connects);
        outcome.recv_comms.resize(accepts);
        outcome.calls = answer.calls;
        outcome.broken = answer.broken;
        outcome.stalled = answer.stalled;
        for (const std::uint64_t comm : outcome.send_comms)
          if (comm != 0) process.ledger.comms[comm] = wire::CommKind::kSend;
        for (const std::uint64_t comm : outcome.recv_comms)
          if (comm != 0) process.ledger.comms[comm] = wire::CommKind::kRecv;
        if (!outcome.broken.empty()) process.mark_unfit();
        return outcome.broken.empty() ? "all done, " + counted(outcome.calls, "call") : outcome.broken;
      });
}

void require_clean(const ConnectManyOutcome& outcome) { require(outcome); }

std::string finish_measurement(MeasuredOutcome& outcome, const wire::LoopAnswer& answer, RankProcess& process) {
  outcome.broken = answer.broken;
  outcome.stalled = answer.stalled;
  if (!outcome.broken.empty()) process.mark_unfit();
  return outcome.broken.empty() ? fmt::format("{} ms", (answer.end_ns - answer.start_ns) / 1'000'000) : outcome.broken;
}

Started<MeasuredOutcome> start_throughput(const Rank& rank, const std::vector<SendComm>& sends,
                                          const std::vector<RecvComm>& receives, const ThroughputPlan& plan) {
  wire::Throughput request;
  for (const SendComm& comm : sends) request.send_comms.push_back(comm.value());
  for (const RecvComm& comm : receives) request.receive_comms.push_back(comm.value());
  request.size = plan.size;
  request.window = plan.window;
  request.group = plan.group;
  request.count = plan.count;
  request.timeout_ns = rank.rank_process()->timeout_ns();
  return start<MeasuredOutcome>(
      rank.rank_process(), rank.thread(), request,
      fmt::format("{} of {} on {}", counted(plan.count, "message"), counted(plan.size, "byte"),
                  counted(sends.size() + receives.size(), "comm")),
      [](MeasuredOutcome& outcome, const wire::ThroughputAnswer& answer, RankProcess& process) {
        return finish_measurement(outcome, answer, process);
      });
}

Started<RoundTripOutcome> start_round_trips(const Rank& rank, const SendComm& send, const RecvComm& receive,
                                            bool starts, const RoundTripPlan& plan) {
  wire::RoundTrips request;
  request.send_comm = send.value();
  request.receive_comm = receive.value();
  request.starts = starts;
  request.size = plan.size;
  request.count = plan.count;
  request.per_mille = plan.per_mille;
  request.timeout_ns = rank.rank_process()->timeout_ns();
  return start<RoundTripOutcome>(
      rank.rank_process(), rank.thread(), request,
      fmt::format("{} of {}", counted(plan.count, "round trip"), counted(plan.size, "byte")),
      [](RoundTripOutcome& outcome, const wire::RoundTripsAnswer& answer, RankProcess& process) {
        outcome.half_trip_ns = answer.half_trip_ns;
        return finish_measurement(outcome, answer, process);
      });
}

void require_clean(const MeasuredOutcome& outcome) { require(outcome); }

Started<ProgramOutcome> start_program(const Rank& rank, wire::Program program) {
  const std::shared_ptr<RankProcess>& process = rank.rank_process();
  program.context = process->ledger.contexts.empty() ? 0 : process->ledger.contexts.front();
  program.timeout_ns = process->timeout_ns();
  for (const wire::ProgramComm& comm : program.comms)
    if (!comm.sends) process->ledger.closed(wire::CommKind::kListen, comm.listener);
  return start<ProgramOutcome>(process, rank.thread(), program,
                               fmt::format("program of {}", counted(program.steps.size(), "step")),
                               [](ProgramOutcome& outcome, const wire::ProgramAnswer& answer, RankProcess& process) {
                                 outcome.messages = answer.messages;
                                 outcome.bytes = answer.bytes;
                                 outcome.broken = answer.broken;
                                 outcome.step = answer.step;
                                 outcome.stalled = answer.stalled;
                                 if (!outcome.broken.empty()) process.mark_unfit();
                                 return outcome.broken.empty() ? counted(outcome.messages, "message") : outcome.broken;
                               });
}

Started<CallScriptOutcome> start_script(const Rank& rank, wire::CallScript script) {
  script.timeout_ns = rank.rank_process()->timeout_ns();
  return start<CallScriptOutcome>(
      rank.rank_process(), rank.thread(), script,
      fmt::format("script of {}, {} times", counted(script.steps.size(), "call"), script.count),
      [](CallScriptOutcome& outcome, const wire::CallScriptAnswer& answer, RankProcess&) {
        outcome.calls = answer.calls;
        outcome.failed = answer.failed;
        outcome.unwritten = answer.unwritten;
        outcome.median_ns = answer.median_ns;
        return counted(outcome.calls, "call");
      });
}

Started<WatchOutcome> start_watching(const Rank& rank, const Slice& slice, std::uint64_t seed, bool words, bool lines) {
  const auto& process = rank.rank_process();
  return start<WatchOutcome>(process, wire::kWatchThread,
                             wire::Watch{.address = slice.address,
                                         .size = slice.size,
                                         .seed = seed,
                                         .timeout_ns = process->timeout_ns(),
                                         .words = words,
                                         .lines = lines},
                             fmt::format("watch {}", counted(slice.size, "byte")),
                             [](WatchOutcome& outcome, const wire::WatchAnswer& answer, RankProcess&) {
                               outcome.broken = answer.broken;
                               return answer.broken.empty() ? "whole words and lines" : answer.broken;
                             });
}

Started<WatchOutcome> start_awaiting(const Rank& rank, const Slice& word, std::uint64_t signal, const Slice& slice,
                                     std::uint64_t seed) {
  const auto& process = rank.rank_process();
  return start<WatchOutcome>(process, wire::kWatchThread,
                             wire::Watch{slice.address, slice.size, seed, process->timeout_ns(), word.address, signal},
                             fmt::format("wait for signal {}", signal),
                             [](WatchOutcome& outcome, const wire::WatchAnswer& answer, RankProcess&) {
                               outcome.broken = answer.broken;
                               return answer.broken.empty() ? "signal and data" : answer.broken;
                             });
}

}  // namespace plugfest::control
