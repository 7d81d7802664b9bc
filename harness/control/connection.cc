#include "harness/control/connection.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"
#include "harness/abi/base.h"
#include "harness/control/rank_process.h"

namespace plugfest::control {

namespace {

Started<Outcome> start_closing(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                               wire::CommKind kind, std::uint64_t comm) {
  static constexpr const char* kNames[] = {"closeSend", "closeRecv", "closeListen"};
  const char* const name = kNames[static_cast<int>(kind)];
  return start_plain(process, thread, {name, {comm}}, fmt::format("{}({})", name, pointer_text(comm)),
                     [kind, comm](RankProcess& rank) { rank.ledger.closed(kind, comm); });
}

Started<Outcome> start_deregistering(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                     std::uint64_t comm, std::uint64_t mhandle) {
  return start_plain(process, thread, {"deregMr", {comm, mhandle}},
                     fmt::format("deregMr(comm {}, mhandle {})", pointer_text(comm), pointer_text(mhandle)),
                     [comm, mhandle](RankProcess& rank) { rank.ledger.deregistered(comm, mhandle); });
}

}  // namespace

RemoteObject::RemoteObject(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value)
    : rank_(std::move(rank)), thread_(std::move(thread)), value_(value) {}

const std::string& RemoteObject::rank_name() const { return rank_->name(); }
std::int64_t RemoteObject::timeout_ns() const { return rank_->timeout_ns(); }
StallLimit RemoteObject::stall_limit() const { return rank_->stall_limit(); }

Registration::Registration(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t comm, Slice slice,
                           std::uint64_t mhandle)
    : RemoteObject(std::move(rank), std::move(thread), mhandle), comm_(comm), slice_(slice) {}

Registration Registration::on(std::string_view thread) const {
  return Registration(rank_, std::string(thread), comm_, slice_, value_);
}

void Registration::dereg() { require_success(try_dereg()); }
Started<Outcome> Registration::start_dereg() { return start_deregistering(rank_, thread_, comm_, value_); }

Registration Comm::reg(const Slice& slice, int type) const {
  const PointerOutcome outcome = try_reg(slice, type);
  require_success(outcome);
  return registration(slice, outcome.value);
}

Started<PointerOutcome> Comm::start_handle(wire::Call call, std::string text, Preset preset, bool registers) const {
  const std::uint64_t comm = value_, stored = slot_value(preset, kPoison);
  const std::size_t last = call.arguments.size();
  call.arguments.emplace_back(stored);
  return start_net<PointerOutcome>(rank_, thread_, call, std::move(text),
                                   [=](PointerOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
                                     take_pointer(outcome, answer, last, stored);
                                     if (registers && outcome.ok())
                                       rank.ledger.registrations.emplace(comm, outcome.value);
                                     return fmt::format("mhandle {}", pointer_text(outcome.value));
                                   });
}

Started<PointerOutcome> Comm::start_reg(const Slice& slice, int type, Preset preset) const {
  return start_handle({"regMr", {value_, slice.address, slice.size, type}},
                      fmt::format("regMr(comm {}, {}{})", pointer_text(value_), counted(slice.size, "byte"),
                                  type == 1 ? "" : fmt::format(", type {}", type)),
                      preset, true);
}

PointerOutcome Comm::try_reg_dma_buf(const Slice& slice, int descriptor) const {
  return start_handle({"regMrDmaBuf", {value_, slice.address, slice.size, int{abi::kPointerCuda}, 0, descriptor}},
                      fmt::format("regMrDmaBuf(comm {}, {}, fd {})", pointer_text(value_), counted(slice.size, "byte"),
                                  descriptor),
                      Preset::kPoison, true)
      .get();
}

PointerOutcome Comm::try_device_mr(std::uint64_t mhandle, Preset preset) const {
  return start_handle({"getDeviceMr", {value_, mhandle}},
                      fmt::format("getDeviceMr(comm {}, mhandle {})", pointer_text(value_), pointer_text(mhandle)),
                      preset, false)
      .get();
}

Registration Comm::registration(const Slice& slice, std::uint64_t mhandle) const {
  return Registration(rank_, thread_, value_, slice, mhandle);
}

Started<Outcome> Comm::start_dereg(std::uint64_t mhandle) const {
  return start_deregistering(rank_, thread_, value_, mhandle);
}

void Comm::close() { require_success(try_close()); }

Started<Outcome> Comm::start_close() {
  return start_closing(rank_, thread_, sends_ ? wire::CommKind::kSend : wire::CommKind::kRecv, value_);
}

Listener::Listener(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value, Handle handle)
    : RemoteObject(std::move(rank), std::move(thread), value), handle_(handle) {}

Listener Listener::on(std::string_view thread) const { return Listener(rank_, std::string(thread), value_, handle_); }

void Listener::close() { require_success(try_close()); }
Started<Outcome> Listener::start_close() { return start_closing(rank_, thread_, wire::CommKind::kListen, value_); }

template <typename CommType>
struct Attempt<CommType>::State {
  wire::Call call;
  std::string text;
  // The value of the comm pointer before the next call.
  std::uint64_t stored = 0;
  bool device_handle = true;
  std::uint64_t comm = 0;
};

template <typename CommType>
Attempt<CommType>::Attempt(std::shared_ptr<RankProcess> rank, std::string thread, wire::Call call, std::string text,
                           const AttemptOptions& options)
    : RemoteObject(std::move(rank), std::move(thread), 0),
      state_(new State{std::move(call), std::move(text), slot_value(options.comm, kPoison), options.device_handle}) {
  state_->call.attempt = rank_->ledger.next_attempt++;
}

template <typename CommType>
Attempt<CommType> Attempt<CommType>::on(std::string_view thread) const {
  Attempt other = *this;
  other.thread_ = thread;
  return other;
}

template <typename CommType>
bool Attempt<CommType>::poll() {
  require_success(try_poll());
  return done();
}

template <typename CommType>
Started<PointerOutcome> Attempt<CommType>::start_poll() const {
  wire::Call call = state_->call;
  const std::size_t index = call.arguments.size();
  call.arguments.insert(call.arguments.end(), {state_->stored, state_->device_handle});
  rank_->ledger.attempts.insert(call.attempt);
  return start_net<PointerOutcome>(
      rank_, thread_, call, state_->text,
      [state = state_, index](PointerOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
        take_pointer(outcome, answer, index, state->stored);
        state->stored = outcome.value;
        // An output that still holds the poison is not a comm.
        if (outcome.ok() && outcome.value != 0 && outcome.value != kPoison) {
          state->comm = outcome.value;
          rank.ledger.attempts.erase(state->call.attempt);
          rank.ledger.finished_attempts.push_back(state->call.attempt);
          constexpr bool kSends = std::is_same_v<CommType, SendComm>;
          rank.ledger.comms[outcome.value] = kSends ? wire::CommKind::kSend : wire::CommKind::kRecv;
        }
        return outcome.value == 0 ? "NULL" : fmt::format("comm {}", pointer_text(outcome.value));
      });
}

template <typename CommType>
PointerOutcome Attempt<CommType>::take(Started<PointerOutcome> started) {
  PointerOutcome outcome = started.get();
  value_ = state_->comm;
  return outcome;
}

template <typename CommType>
bool Attempt<CommType>::done() const {
  return state_->comm != 0;
}

template <typename CommType>
CommType Attempt<CommType>::comm() const {
  if (!done()) throw std::logic_error("a call of " + state_->call.function + " that is not done has no comm");
  return CommType(rank_, thread_, state_->comm);
}

template class Attempt<SendComm>;
template class Attempt<RecvComm>;

Slice Slice::sub(std::size_t offset, std::size_t length) const {
  if (offset > size || length > size - offset)
    throw std::out_of_range(fmt::format("bytes {} to {} of a slice of {}", offset, offset + length, size));
  return {address + offset, length};
}

Memory::Memory(std::shared_ptr<RankProcess> rank, Slice whole, Slice mapping)
    : rank_(std::move(rank)), whole_(whole), mapping_(mapping) {}

void Memory::forbid() { rank_->ask(wire::Protect{mapping_.address, mapping_.size, PROT_NONE}); }

void Memory::make_read_only() { rank_->ask(wire::Protect{mapping_.address, mapping_.size, PROT_READ}); }

void Memory::allow() { rank_->ask(wire::Protect{mapping_.address, mapping_.size, PROT_READ | PROT_WRITE}); }

void Memory::unmap() { rank_->ask(wire::Unmap{{mapping_.address, mapping_.size}}); }

void Memory::map_again() { rank_->ask(wire::MapAgain{{mapping_.address, mapping_.size}}); }

void Memory::free() {
  rank_->ask(wire::Free{{mapping_.address, mapping_.size}});
  std::erase_if(rank_->ledger.memory,
                [this](const MappedMemory& mapped) { return mapped.mapping.pages_address == mapping_.address; });
}

}  // namespace plugfest::control
