#include "harness/control/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fabric/system/clock.h"
#include "fabric/system/process.h"
#include "harness/control/call.h"

namespace plugfest::control {

namespace {

bool has_ended(const std::weak_ptr<RankProcess>& peer) {
  const std::shared_ptr<RankProcess> process = peer.lock();
  return !process || process->killed();
}

}  // namespace

Pool::Pool(Launcher& launcher, Subject subject, Limits limits, CallObserver* observer)
    : launcher_(launcher), subject_(std::move(subject)), limits_(limits), observer_(observer) {}

std::shared_ptr<RankProcess> Pool::take_idle(const std::string& name, const RankOptions& options) {
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[name];
  changed_.wait(lock, [&] { return !entry.in_use; });
  entry.in_use = true;
  if (!options.is_shared()) return nullptr;
  end_idle_peers_of_dead();
  return entry.idle ? take_from(entry) : nullptr;
}

void Pool::end_idle_peers_of_dead() {
  const auto has_dead_peer = [](const auto& named) {
    const Entry& entry = named.second;
    return entry.idle && std::any_of(entry.peers.begin(), entry.peers.end(), has_ended);
  };
  // Each process that ends may be a peer of others.
  for (auto found = entries_.begin(); found != entries_.end();) {
    found = std::find_if(entries_.begin(), entries_.end(), has_dead_peer);
    if (found != entries_.end()) take_from(found->second);
  }
}

std::shared_ptr<RankProcess> Pool::take_from(Entry& entry) {
  idle_ns_ += now_ns() - entry.idle_since_ns;
  idle_cpu_ns_ += cpu_time_of(entry.idle->pid()) - entry.cpu_at_idle_ns;
  return std::exchange(entry.idle, nullptr);
}

std::shared_ptr<RankProcess> Pool::acquire(const std::string& name, const RankOptions& options,
                                           const std::shared_ptr<LoadClock>& clock,
                                           std::shared_ptr<RankProcess>& failed) {
  std::shared_ptr<RankProcess> process = take_idle(name, options);
  try {
    if (process) {
      try {
        process->check_alive();
        process->use_clock(clock);
        process->capture()->clear();
        process->clear_records();
        return process;
      } catch (const Crashed&) {
        process.reset();  // it ended while idle, so the rule did not cause it
      }
    }
    return start(name, options, clock, failed);
  } catch (...) {
    release(name, process, false);
    throw;
  }
}

std::shared_ptr<RankProcess> Pool::start(const std::string& name, const RankOptions& options,
                                         const std::shared_ptr<LoadClock>& clock,
                                         std::shared_ptr<RankProcess>& failed) {
  require_usable(options.state);
  auto process =
      RankProcess::start(launcher_, collector_, name, subject_, options.environment, limits_, observer_, hang_places_);
  process->use_clock(clock);
  // Other rules get neither fresh ranks nor ranks in another state.
  if (!options.is_shared()) process->mark_unfit();
  try {
    if (options.gpu) Rank(process).gpu(true);
    prepare(process, options.state);
    note(options.state, "");
    return process;
  } catch (const Deviation& deviation) {
    // Variables added by a rule may be the reason.
    const bool loaded = process->library().api != 0;
    if (options.environment.empty()) note(loaded ? RankState::kLoaded : RankState::kBare, deviation.what());
    process->kill();
    failed = std::move(process);
    throw;
  } catch (...) {
    process->kill();
    failed = std::move(process);
    throw;
  }
}

void Pool::require_usable(RankState state) {
  const std::lock_guard lock(mutex_);
  if (refused_ || (state > reached_ && !refusal_.empty())) throw Unusable("the plugin cannot be used: " + refusal_);
}

void Pool::refuse(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  refusal_ = reason;
  refused_ = true;
}

void Pool::note(RankState reached, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  reached_ = std::max(reached_, reached);
  if (refusal_.empty()) refusal_ = reason;
}

void Pool::release(const std::string& name, std::shared_ptr<RankProcess> process, bool keep, const Peers& peers) {
  if (!keep && process) {
    process->kill();  // a rule may still refer to it
    process.reset();
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[name];
  entry.in_use = false;
  if (process) {
    entry.idle_since_ns = now_ns();
    entry.cpu_at_idle_ns = cpu_time_of(process->pid());
    if (entry.owner.lock() != process) entry.peers.clear();
    entry.owner = process;
    const auto is_same = [](const auto& a, const auto& b) { return !a.owner_before(b) && !b.owner_before(a); };
    for (const std::weak_ptr<RankProcess>& peer : peers) {
      const auto is_peer = [&](const auto& known) { return is_same(known, peer); };
      if (!is_same(peer, entry.owner) && std::none_of(entry.peers.begin(), entry.peers.end(), is_peer))
        entry.peers.push_back(peer);
    }
    entry.idle = std::move(process);
  }
  changed_.notify_all();
}

void Pool::end_idle() {
  std::vector<std::shared_ptr<RankProcess>> ended;  // a process takes time to end: not while the mutex is locked
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : entries_)
    if (entry.idle) ended.push_back(take_from(entry));
}

double Pool::idle_cpu_share() const {
  const std::lock_guard lock(mutex_);
  std::int64_t idle = idle_ns_;
  std::int64_t cpu = idle_cpu_ns_;
  for (const auto& [name, entry] : entries_) {
    if (!entry.idle) continue;
    idle += now_ns() - entry.idle_since_ns;
    cpu += cpu_time_of(entry.idle->pid()) - entry.cpu_at_idle_ns;
  }
  return idle == 0 ? 0 : static_cast<double>(cpu) / static_cast<double>(idle);
}

void prepare(const std::shared_ptr<RankProcess>& process, RankState state) {
  Rank rank(process);
  if (state == RankState::kBare) return;
  rank.load();
  if (state == RankState::kLoaded) return;
  rank.init({.context = Preset::kNull});
  process->ledger.kept_objects = process->ledger.objects.size();
  if (plugin::api_layout(process->library().interface, rank.api()).find("devices") != nullptr) rank.devices();
}

std::string close_all(const std::shared_ptr<RankProcess>& process) {
  Ledger& ledger = process->ledger;
  const auto note = [](std::string& first, const Outcome& outcome) {
    if (!outcome.ok() && first.empty()) first = fmt::format("{} returned {}", outcome.call, result_name(outcome.code));
  };
  std::string error;
  while (ledger.objects.size() > ledger.kept_objects) {
    const OpenObject object = ledger.objects.back();
    CallArguments arguments;
    const plugin::ApiLayout& layout = plugin::api_layout(process->library().interface, process->library().api);
    for (const plugin::Parameter& parameter : layout.find(object.closed_by)->parameters) {
      const auto parent = object.arguments.find(parameter.name);
      if (parent != object.arguments.end()) arguments.emplace(parameter.name, parent->second);
    }
    arguments.insert_or_assign(std::string(object.name), object.value);
    note(error, Rank(process).try_call(object.closed_by, arguments));
    ledger.closed_by(object.closed_by, object.value);
  }
  const auto take = [&](const auto&, const Outcome& outcome) {
    note(error, outcome);
    return true;
  };
  const auto registrations = ledger.registrations;
  make_calls(
      registrations, [&](const auto& one) { return Comm(process, "", one.first).start_dereg(one.second); }, take);
  const auto memory = ledger.memory;
  for (const MappedMemory& mapped : memory)
    Memory(process, {mapped.mapping.address, mapped.size}, {mapped.mapping.pages_address, mapped.mapping.pages_size})
        .free();
  Rank rank(process);
  const auto comms = ledger.comms;
  for (const auto& [comm, kind] : comms)
    note(error, kind == wire::CommKind::kSend ? rank.try_close_send(comm) : rank.try_close_recv(comm));
  const auto listeners = ledger.listeners;
  make_calls(
      listeners, [&](std::uint64_t listener) { return Listener(process, "", listener, {}).start_close(); }, take);
  while (ledger.contexts.size() > 1) note(error, rank.try_finalize(ledger.contexts.back()));
  rank.free_attempts();
  return error;
}

}  // namespace plugfest::control
