#include "harness/control/connection.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/process/rank_process.h"

namespace plugfest::control {

namespace {

std::uint64_t context_of(RankProcess& process, const std::optional<std::uint64_t>& wanted) {
  if (wanted) return *wanted;
  return process.ledger.contexts.empty() ? 0 : process.ledger.contexts.front();
}

Started<Outcome> start_closing(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                               rank::CommKind kind, std::uint64_t comm) {
  static constexpr const char* kNames[] = {"closeSend", "closeRecv", "closeListen"};
  return start<Outcome>(process, thread, rank::Close{kind, comm},
                        fmt::format("{}({})", kNames[static_cast<int>(kind)], pointer_text(comm)),
                        [kind, comm](Outcome&, const rank::CallAnswer&, RankProcess& rank) {
                          rank.ledger.closed(kind, comm);
                          return "Success";
                        });
}

Started<Outcome> start_deregistering(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                     std::uint64_t comm, std::uint64_t mhandle) {
  return start<Outcome>(process, thread, rank::DeregMr{comm, mhandle},
                        fmt::format("deregMr(comm {}, mhandle {})", pointer_text(comm), pointer_text(mhandle)),
                        [comm, mhandle](Outcome&, const rank::CallAnswer&, RankProcess& rank) {
                          rank.ledger.deregistered(comm, mhandle);
                          return "Success";
                        });
}

}  // namespace

RemoteObject::RemoteObject(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value)
    : rank_(std::move(rank)), thread_(std::move(thread)), value_(value) {}

const std::string& RemoteObject::rank_name() const { return rank_->name(); }
std::int64_t RemoteObject::timeout_ns() const { return rank_->timeout_ns(); }
StallLimit RemoteObject::stall_limit() const { return rank_->stall_limit(); }

// ------------------------------------------------------------------------------------------------- registrations

Registration::Registration(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t comm, Slice slice,
                           std::uint64_t mhandle)
    : RemoteObject(std::move(rank), std::move(thread), mhandle), comm_(comm), slice_(slice) {}

Registration Registration::on(std::string_view thread) const {
  return Registration(rank_, std::string(thread), comm_, slice_, value_);
}

void Registration::dereg() { require_success(try_dereg()); }
Started<Outcome> Registration::start_dereg() { return start_deregistering(rank_, thread_, comm_, value_); }

// --------------------------------------------------------------------------------------------------------- comms

Registration Comm::reg(const Slice& slice) const {
  const PointerOutcome outcome = try_reg(slice);
  require_success(outcome);
  return registration(slice, outcome.value);
}

Started<PointerOutcome> Comm::start_reg(const Slice& slice, int type, Preset preset) const {
  const std::uint64_t comm = value_;
  return start<PointerOutcome>(rank_, thread_,
                               rank::RegMr{comm, slice.address, slice.size, type, slot_value(preset, kPoison)},
                               fmt::format("regMr(comm {}, {}{})", pointer_text(comm), counted(slice.size, "byte"),
                                           type == 1 ? "" : fmt::format(", type {}", type)),
                               [comm](PointerOutcome& outcome, const rank::PointerAnswer& answer, RankProcess& rank) {
                                 outcome.value = answer.value;
                                 outcome.untouched = answer.untouched;
                                 if (outcome.ok()) rank.ledger.registrations.emplace(comm, outcome.value);
                                 return fmt::format("mhandle {}", pointer_text(outcome.value));
                               });
}

Registration Comm::registration(const Slice& slice, std::uint64_t mhandle) const {
  return Registration(rank_, thread_, value_, slice, mhandle);
}

Outcome Comm::try_dereg(std::uint64_t mhandle) const {
  return start_deregistering(rank_, thread_, value_, mhandle).get();
}

void Comm::close() { require_success(try_close()); }

Started<Outcome> Comm::start_close() {
  return start_closing(rank_, thread_, sends_ ? rank::CommKind::kSend : rank::CommKind::kRecv, value_);
}

// ------------------------------------------------------------------------------------------------------ listening

Listener::Listener(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value, Handle handle)
    : RemoteObject(std::move(rank), std::move(thread), value), handle_(handle) {}

Listener Listener::on(std::string_view thread) const { return Listener(rank_, std::string(thread), value_, handle_); }

void Listener::close() { require_success(try_close()); }
Started<Outcome> Listener::start_close() { return start_closing(rank_, thread_, rank::CommKind::kListen, value_); }

// ------------------------------------------------------------------------------------------- connects and accepts

struct Connect::State {
  std::uint64_t attempt = 0;
  Device device;
  Handle handle;
  AttemptOptions options;
  std::uint64_t comm = 0;
};

namespace {

/// Sets the outcome of connect or accept. An output that still holds the poison is no comm.
template <class State>
std::string finish_attempt(State& state, rank::CommKind kind, PointerOutcome& outcome,
                           const rank::PointerAnswer& answer, RankProcess& rank) {
  outcome.value = answer.value;
  outcome.untouched = answer.untouched;
  if (outcome.ok() && outcome.value != 0 && outcome.value != kPoison) {
    state.comm = outcome.value;
    rank.ledger.attempts.erase(state.attempt);
    rank.ledger.finished_attempts.push_back(state.attempt);
    rank.ledger.comms[outcome.value] = kind;
  }
  return outcome.value == 0 ? "NULL" : fmt::format("comm {}", pointer_text(outcome.value));
}

}  // namespace

Connect::Connect(std::shared_ptr<RankProcess> rank, std::string thread, Device device, const Handle& handle,
                 AttemptOptions options)
    : RemoteObject(std::move(rank), std::move(thread), 0), state_(std::make_shared<State>()) {
  state_->attempt = rank_->ledger.next_attempt++;
  state_->device = device;
  state_->handle = handle;
  state_->options = options;
}

Connect Connect::on(std::string_view thread) const {
  Connect other = *this;
  other.thread_ = thread;
  return other;
}

bool Connect::poll() {
  const PointerOutcome outcome = try_poll();
  require_success(outcome);
  return done();
}

Started<PointerOutcome> Connect::start_poll() const {
  rank_->ledger.attempts.insert(state_->attempt);
  return start<PointerOutcome>(
      rank_, thread_,
      rank::Connect{state_->attempt, state_->device.index, context_of(*rank_, state_->options.context),
                    state_->handle.bytes, slot_value(state_->options.comm, kPoison), state_->options.device_handle},
      fmt::format("connect(device {})", state_->device.index),
      [state = state_](PointerOutcome& outcome, const rank::PointerAnswer& answer, RankProcess& rank) {
        return finish_attempt(*state, rank::CommKind::kSend, outcome, answer, rank);
      });
}

PointerOutcome Connect::take(Started<PointerOutcome> started) {
  PointerOutcome outcome = started.get();
  value_ = state_->comm;
  return outcome;
}

bool Connect::done() const { return state_->comm != 0; }

SendComm Connect::comm() const {
  if (!done()) throw std::logic_error("a connect that is not done has no comm");
  return SendComm(rank_, thread_, state_->comm);
}

struct Accept::State {
  std::uint64_t attempt = 0;
  std::uint64_t listener = 0;
  AttemptOptions options;
  std::uint64_t comm = 0;
};

Accept::Accept(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t listener, AttemptOptions options)
    : RemoteObject(std::move(rank), std::move(thread), 0), state_(std::make_shared<State>()) {
  state_->attempt = rank_->ledger.next_attempt++;
  state_->listener = listener;
  state_->options = options;
}

Accept Accept::on(std::string_view thread) const {
  Accept other = *this;
  other.thread_ = thread;
  return other;
}

bool Accept::poll() {
  const PointerOutcome outcome = try_poll();
  require_success(outcome);
  return done();
}

Started<PointerOutcome> Accept::start_poll() const {
  rank_->ledger.attempts.insert(state_->attempt);
  return start<PointerOutcome>(
      rank_, thread_,
      rank::Accept{state_->attempt, state_->listener, slot_value(state_->options.comm, kPoison),
                   state_->options.device_handle},
      fmt::format("accept(listener {})", pointer_text(state_->listener)),
      [state = state_](PointerOutcome& outcome, const rank::PointerAnswer& answer, RankProcess& rank) {
        return finish_attempt(*state, rank::CommKind::kRecv, outcome, answer, rank);
      });
}

PointerOutcome Accept::take(Started<PointerOutcome> started) {
  PointerOutcome outcome = started.get();
  value_ = state_->comm;
  return outcome;
}

bool Accept::done() const { return state_->comm != 0; }

RecvComm Accept::comm() const {
  if (!done()) throw std::logic_error("an accept that is not done has no comm");
  return RecvComm(rank_, thread_, state_->comm);
}

Slice Slice::sub(std::size_t offset, std::size_t length) const {
  if (offset > size || length > size - offset) {
    throw std::out_of_range(fmt::format("bytes {} to {} of a slice of {}", offset, offset + length, size));
  }
  return {address + offset, length};
}

Memory::Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping)
    : rank_(std::move(rank)), whole_(whole), mapping_(mapping) {}

void Memory::forbid() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_NONE}); }

void Memory::make_read_only() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_READ}); }

void Memory::allow() { rank_->ask(rank::Protect{mapping_.address, mapping_.size, PROT_READ | PROT_WRITE}); }

void Memory::unmap() { rank_->ask(rank::Unmap{{mapping_.address, mapping_.size}}); }

void Memory::map_again() { rank_->ask(rank::MapAgain{{mapping_.address, mapping_.size}}); }

void Memory::free() {
  rank_->ask(rank::Free{{mapping_.address, mapping_.size}});
  std::erase_if(rank_->ledger.memory,
                [this](const MappedMemory& each) { return each.mapping.pages_address == mapping_.address; });
}

}  // namespace plugfest::control
