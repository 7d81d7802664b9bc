#include "harness/control/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <future>
#include <stdexcept>
#include <utility>

#include "harness/control/call.h"
#include "harness/control/pool.h"

namespace plugfest::control {

struct Lease::Parts {
  std::shared_ptr<Pool> pool;
  std::map<std::string, std::shared_ptr<RankProcess>> ranks;
  // Dead processes; for the evidence.
  std::map<std::string, std::shared_ptr<RankProcess>> failed;
  std::function<void()> before_freeze;
  // Whether the ranks are new processes, not processes of the pool.
  bool only_new = false;
  // New processes to which these ranks may have connected.
  std::shared_ptr<Pool::Peers> new_peers = std::make_shared<Pool::Peers>();
  // With new ranks: `new_peers` of the lease that has created this one; otherwise null.
  std::shared_ptr<Pool::Peers> new_peers_of_parent;
  bool retransmits = false;
  // Watches these ranks and the thread of the rule.
  std::shared_ptr<LoadClock> clock = std::make_shared<LoadClock>(LoadClock::Own::kThread);
};

namespace {

// True when `name` contains `interface` as a word: "roce_eth1" contains eth1, but neither eth nor eth11.
bool names_interface(std::string_view name, std::string_view interface) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = name.find(interface); at != std::string_view::npos; at = name.find(interface, at + 1)) {
    const std::size_t end = at + interface.size();
    const bool begins = at == 0 || !is_part(name[at - 1]);
    const bool ends = end == name.size() || !is_part(name[end]);
    if (begins && ends) return true;
  }
  return false;
}

// A clock for one thread, since a LoadClock belongs to one. It watches all ranks of the lease.
std::shared_ptr<LoadClock> clock_of(const std::map<std::string, std::shared_ptr<RankProcess>>& ranks) {
  auto clock = std::make_shared<LoadClock>(LoadClock::Own::kThread);
  for (const auto& [name, process] : ranks)
    if (process->pid() > 0) clock->watch(process->pid());
  return clock;
}

// The first error, or "".
std::string close_what_is_open(const std::shared_ptr<RankProcess>& process) {
  try {
    std::string error = close_all(process);
    process->check_alive();
    return error;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

bool names_similar_interface(std::string_view name, std::string_view interface) {
  const std::string_view kind = interface.substr(0, interface.find_last_not_of("0123456789") + 1);
  for (std::size_t at = name.find(kind); at != std::string_view::npos; at = name.find(kind, at + 1)) {
    const std::size_t digits = at + kind.size();
    if (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits])) != 0) return true;
  }
  return false;
}

std::optional<int> device_of_interface(const std::vector<Properties>& devices, std::string_view interface) {
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (names_interface(devices[i].name, interface)) return static_cast<int>(i);
  const bool only = devices.size() == 1 && !names_similar_interface(devices.front().name, interface);
  return only ? std::optional<int>(0) : std::nullopt;
}

Lease::Lease(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;
Lease::~Lease() {
  if (parts_) release(false);
}

Rank Lease::rank(std::string_view name, const RankOptions& options) {
  const std::string key(name);
  if (const auto found = parts_->ranks.find(key); found != parts_->ranks.end()) return Rank(found->second);
  std::shared_ptr<RankProcess> failed;
  try {
    auto process = parts_->only_new ? parts_->pool->start(key, options, parts_->clock, failed)
                                    : parts_->pool->acquire(key, options, parts_->clock, failed);
    process->before_freeze(parts_->before_freeze);
    process->wait_for_retransmissions(parts_->retransmits);
    return Rank(parts_->ranks.emplace(key, std::move(process)).first->second);
  } catch (...) {
    if (failed) parts_->failed[key] = std::move(failed);
    throw;
  }
}

std::string text_of_missing_device(std::string_view rank, std::string_view interface,
                                   const std::vector<Properties>& devices) {
  if (devices.empty())
    return "the plugin finds no device: devices() wrote 0, so no rule that connects can run; its log may say why";
  std::string names;
  for (const Properties& device : devices) names += (names.empty() ? "" : ", ") + device.name;
  return fmt::format(
      "no device of rank {} is named after its interface {}: assign its devices ({}) with --device, or, if it uses "
      "fewer interfaces than the host has, choose another topology, such as --topology star:3",
      rank, interface, names);
}

Endpoint Lease::endpoint(std::string_view name, std::string_view interface, const RankOptions& options) {
  Rank rank = this->rank(name, options);
  std::vector<Properties> devices;
  const int count = rank.devices();
  for (int index = 0; index < count; ++index) devices.push_back(rank.properties(Device{index}));
  const std::string short_name(interface.substr(interface.rfind('.') + 1));
  const std::map<std::string, KnownDevice>& known = rank.rank_process()->subject().devices;
  const auto found = known.find(std::string(interface));
  const std::optional<int> index =
      found != known.end() ? found->second.find(devices) : device_of_interface(devices, short_name);
  if (index) return {rank, Device{*index}};
  throw std::runtime_error(text_of_missing_device(name, short_name, devices));
}

void Lease::before_freeze(std::function<void()> action) { parts_->before_freeze = std::move(action); }

void Lease::wait_for_retransmissions() {
  parts_->retransmits = true;
  for (const auto& [name, process] : parts_->ranks) process->wait_for_retransmissions(true);
}

Lease Lease::with_new_ranks() const {
  auto parts = std::make_unique<Parts>();
  parts->pool = parts_->pool;
  parts->before_freeze = parts_->before_freeze;
  parts->only_new = true;
  parts->new_peers_of_parent = parts_->new_peers;
  parts->retransmits = parts_->retransmits;
  return Lease(std::move(parts));
}

void Lease::keep_evidence_of(Lease other) {
  for (auto* ranks : {&other.parts_->ranks, &other.parts_->failed}) {
    for (auto& [name, process] : *ranks) {
      process->kill();
      parts_->failed.emplace(name + " (new)", process);
    }
  }
}

StallLimit Lease::stall_limit() const {
  return {parts_->clock, static_cast<Nanoseconds>(parts_->pool->limits().call_seconds * 1e9)};
}

void Lease::check() {
  for (const auto& [name, process] : parts_->ranks)
    if (!process->killed()) process->check_alive();
}

Evidence Lease::evidence() const {
  Evidence evidence;
  std::int64_t origin = INT64_MAX;
  std::map<std::string, std::shared_ptr<RankProcess>> all = parts_->ranks;
  all.insert(parts_->failed.begin(), parts_->failed.end());
  for (const auto& [name, process] : all)
    if (!process->records().all().empty()) origin = std::min(origin, process->records().all().front().start_ns);
  evidence.origin_ns = origin == INT64_MAX ? 0 : origin;
  for (const auto& [name, process] : all) {
    RankEvidence& rank = evidence.ranks.emplace_back();
    rank.name = name;
    rank.last_calls = process->records().last_lines(parts_->pool->limits().last_calls, origin);
    const std::size_t left_out = process->capture()->log_left_out();
    if (left_out != 0) rank.log.push_back(fmt::format("… {} earlier lines are left out …", left_out));
    for (const LogLine& line : process->capture()->log()) rank.log.push_back(to_text(line));
    rank.output = process->capture()->output();
    rank.calls.assign(process->records().all().begin(), process->records().all().end());
  }
  return evidence;
}

std::vector<std::string> Lease::release(bool clean) {
  std::vector<std::string> wrong;
  parts_->failed.clear();
  // All ranks close at the same time, as in NCCL: the last close of a plugin may wait until its peer also closes.
  std::map<std::string, std::future<std::string>> closing;
  for (const auto& [name, process] : parts_->ranks) {
    if (parts_->only_new || !clean || !process->reusable()) continue;
    process->use_clock(clock_of(parts_->ranks));
    closing.emplace(name, std::async(std::launch::async, close_what_is_open, process));
  }
  Pool::Peers peers = *parts_->new_peers;
  for (const auto& [name, process] : parts_->ranks) peers.push_back(process);
  // A single new process is a peer of the other lease's ranks. Several are peers of each other.
  if (parts_->only_new && peers.size() == 1) parts_->new_peers_of_parent->push_back(peers.front());
  for (auto& [name, process] : std::exchange(parts_->ranks, {})) {
    if (parts_->only_new) {
      process->kill();
      continue;
    }
    bool keep = false;
    if (const auto found = closing.find(name); found != closing.end()) {
      std::string what = found->second.get();
      keep = what.empty() && process->reusable();
      if (!what.empty()) wrong.push_back(std::move(what));
    }
    parts_->pool->release(name, std::move(process), keep, peers);
  }
  return wrong;
}

Session::Session(Launcher& launcher, Subject subject, Limits limits, CallObserver* observer)
    : pool_(std::make_shared<Pool>(launcher, std::move(subject), limits, observer)) {}
Session::~Session() = default;

Lease Session::lease() {
  auto parts = std::make_unique<Lease::Parts>();
  parts->pool = pool_;
  return Lease(std::move(parts));
}

void Session::refuse(const std::string& reason) { pool_->refuse(reason); }

void Session::end_idle() { pool_->end_idle(); }

double Session::idle_cpu_share() const { return pool_->idle_cpu_share(); }

}  // namespace plugfest::control
