#include "harness/control/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "harness/control/deviation.h"
#include "harness/control/process/pool.h"

namespace plugfest::control {

// ---------------------------------------------------------------------------------------------------------- lease

struct Lease::Parts {
  std::shared_ptr<Pool> pool;
  std::map<std::string, std::shared_ptr<RankProcess>> ranks;
};

namespace {

/// True when `name` contains `interface` as a word: "roce_eth1" contains eth1, but neither eth nor eth11.
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

/// True when `name` contains the name of an interface of the same type: "roce_eth1" for "eth0".
bool names_similar_interface(std::string_view name, std::string_view interface) {
  const std::string_view kind = interface.substr(0, interface.find_last_not_of("0123456789") + 1);
  for (std::size_t at = name.find(kind); at != std::string_view::npos; at = name.find(kind, at + 1)) {
    const std::size_t digits = at + kind.size();
    if (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits])) != 0) return true;
  }
  return false;
}

}  // namespace

Lease::Lease(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;
Lease::~Lease() {
  if (parts_) release(false);
}

Rank Lease::rank(std::string_view name, const RankOptions& options) {
  const std::string key(name);
  if (const auto found = parts_->ranks.find(key); found != parts_->ranks.end()) return Rank(found->second);
  auto process = parts_->pool->acquire(key, options);
  parts_->ranks.emplace(key, process);
  return Rank(std::move(process));
}

Endpoint Lease::endpoint(std::string_view name, const RankOptions& options) {
  Rank rank = this->rank(name, options);
  const std::string_view interface = name.substr(name.rfind('.') + 1);
  const int count = rank.devices();
  std::string table;
  bool names_another = false;
  for (int index = 0; index < count; ++index) {
    const std::string device = rank.properties(Device{index}).name;
    if (names_interface(device, interface)) return {rank, Device{index}};
    names_another = names_another || names_similar_interface(device, interface);
    table += fmt::format("\n  device {}: {}", index, device);
  }
  if (count == 1 && !names_another) return {rank, Device{0}};
  throw std::runtime_error(fmt::format("no device of rank {} is called after its interface {}; there {}{}", name,
                                       interface, count == 0 ? "are none" : "are", table));
}

void Lease::check() {
  for (const auto& [name, process] : parts_->ranks) {
    if (!process->killed()) process->check_alive();
  }
}

Evidence Lease::evidence() const {
  Evidence evidence;
  std::int64_t origin = INT64_MAX;
  for (const auto& [name, process] : parts_->ranks) {
    if (!process->records.all().empty()) origin = std::min(origin, process->records.all().front().start_ns);
  }
  for (const auto& [name, process] : parts_->ranks) {
    Evidence::OfRank& of_rank = evidence.ranks.emplace_back();
    of_rank.name = name;
    of_rank.last_calls = process->records.last_lines(parts_->pool->limits().last_calls, origin);
    for (const LogLine& line : process->capture()->log()) of_rank.log.push_back(to_text(line));
    of_rank.output = process->capture()->output();
  }
  return evidence;
}

std::vector<std::string> Lease::release(bool clean) {
  std::vector<std::string> wrong;
  for (auto& [name, process] : std::exchange(parts_->ranks, {})) {
    bool keep = clean && process->reusable();
    if (keep) {
      try {
        const std::string what = close_all(process);
        process->check_alive();
        if (!what.empty()) wrong.push_back(what);
        keep = what.empty() && process->reusable();
      } catch (const std::exception& error) {
        wrong.emplace_back(error.what());
        keep = false;
      }
    }
    parts_->pool->release(name, std::move(process), keep);
  }
  return wrong;
}

// -------------------------------------------------------------------------------------------------------- session

Session::Session(Launcher& launcher, Subject subject, Limits limits, CallObserver* observer)
    : pool_(std::make_shared<Pool>(launcher, std::move(subject), limits, observer)) {}
Session::~Session() = default;

Lease Session::lease() {
  auto parts = std::make_unique<Lease::Parts>();
  parts->pool = pool_;
  return Lease(std::move(parts));
}

double Session::idle_cpu_share() const { return pool_->idle_cpu_share(); }

}  // namespace plugfest::control
