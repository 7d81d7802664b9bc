#include "harness/cli/replay/team_options.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "fabric/netns/namespace_restriction.h"
#include "fabric/netns/sandbox.h"
#include "fabric/system/text.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/stop.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cli {

namespace {

constexpr int kMostRanks = 1024;
constexpr std::size_t kMostNameBytes = 40;

FabricSelection selection(const TeamOptions& options) {
  return options.fabric.empty() ? FabricSelection::built(options.topology)
                                : FabricSelection::background(options.fabric);
}

void check_combination(const TeamOptions& options, const bed::NicKind& nic) {
  const bed::NicSupport support = nic.support();
  if (options.out_of_band && !support.out_of_band) {
    throw std::runtime_error(fmt::format("--nic {}: there is no fabric: leave out --oob", nic.name()));
  }
  if (!options.fabric.empty() && !support.background_fabric) {
    throw std::runtime_error(fmt::format("--nic {}: fabric {} already has NICs, of the kind {}", nic.name(),
                                         options.fabric, bed::default_nic_kind()->name()));
  }
}

}  // namespace

void TeamOptions::add_options(Command command) {
  command
      .add_option("-p,--plugin", plugin,
                  "A libnccl-net.so, a name as in NCCL_NET_PLUGIN, nccl:IB or nccl:Socket; default: the bundled mesh "
                  "plugin")
      .type_name("PLUGIN");
  command.add_option("--api", api, "Version of the net interface: v6 to v12; default: the newest").type_name("VERSION");
  command.add_option("-t,--topology", topology, "Hosts and links to build; default: triangle").type_name("NAME");
  command.add_option("--fabric", fabric, "Use a background fabric; see fabric up")
      .type_name("NAME")
      .excludes("--topology");
  check_count(command.add_option("--ranks", ranks, "Use the first N hosts; default: all"), kMostRanks).type_name("N");
  command.add_option("--device", devices, "The plugin's device NAME is this interface, as in run --device; repeatable")
      .type_name("NAME=HOST/INTERFACE");
  nic.add_options(command);
  command.add_flag("--oob", out_of_band,
                   "Add oob0 to each host, on a network without NICs that all hosts reach; always for nccl:*");
  check_seed(command.add_option("--seed", seed, "Repeat the random choices of an earlier run")).type_name("N");
  check_timeout_scale(command.add_option("--timeout-scale", timeout_scale,
                                         "Multiply the time limit of calls and of transfers without progress, 10 s"))
      .type_name("X");
  command.add_option("--json", json, "Write the results to this file; - is standard output").type_name("FILE");
}

std::string TeamOptions::as_typed() const {
  std::string text;
  if (!api.empty()) text += " --api " + shell_word(api);
  if (!fabric.empty()) text += " --fabric " + shell_word(fabric);
  if (topology != "triangle") text += " --topology " + shell_word(topology);
  if (ranks != 0) text += fmt::format(" --ranks {}", ranks);
  if (!nic.is_default()) text += " --nic " + nic.kind;
  for (const std::string& device : devices) text += " --device " + shell_word(device);
  if (out_of_band) text += " --oob";
  if (timeout_scale != 1) text += fmt::format(" --timeout-scale {}", timeout_scale);
  return text;
}

TeamBed::TeamBed(const TeamOptions& options)
    : options_(options),
      nic_(options.nic.make()),
      nic_name_(nic_->name()),
      fabric_(selection(options)),
      seed_(options.seed ? *options.seed : std::random_device{}()) {
  check_combination(options, *nic_);
  nic_->check_topology(fabric_.graph());
  for (const std::string& text : options.devices) devices_.push_back(bed::parse_device_choice(text));
  if (static_cast<std::size_t>(options.ranks) > fabric_.graph().hosts.size() || options.ranks == 1) {
    throw std::runtime_error(fmt::format("--ranks {}: expected 2 to {}, the hosts of {}", options.ranks,
                                         fabric_.graph().hosts.size(), fabric_.graph().name));
  }
  if (!options.json.empty()) json_ = std::make_unique<report::OutputFile>(options.json);
}

std::optional<int> TeamBed::enter() {
  if (const std::optional<bed::GuestResult> result =
          nic_->run_in_guest(options_.json.empty() ? std::vector<std::string>{} : std::vector{options_.json})) {
    const auto written = result->files.find(options_.json);
    if (json_ && written != result->files.end()) json_->write(written->second);
    return result->exit_code;
  }
  fabric_.take_turn();
  try {
    if (const std::optional<int> exit_code = fabric_.enter(*nic_)) return explain_end(*exit_code);
    if (!fabric_.record()) return std::nullopt;
    if (const std::optional<int> exit_code = netns::contain_processes()) return explain_end(*exit_code);
    return std::nullopt;
  } catch (const netns::NamespacesForbidden& forbidden) {
    throw std::runtime_error(fmt::format("{}\n  or add --nic loopback, which needs no namespaces", forbidden.what()));
  }
}

void TeamBed::build(bool needs_out_of_band) {
  stop_on_signals();
  bed_.emplace(fabric_.build(*nic_, needs_out_of_band || options_.out_of_band));
  bed::check_device_choices(devices_, bed_->interfaces());
  if (bed_->hosts().ranks.size() < 2) {
    throw std::runtime_error(fmt::format("--nic {}: all ranks run on one host, and this command needs two", nic_name_));
  }
}

TeamBed::Subject TeamBed::add_session(const Plugin& plugin, int api) {
  control::Limits limits;
  limits.call_seconds *= options_.timeout_scale * nic_->timeout_scale();
  limits.stop_fd = stop_fd();
  control::Subject subject = bed_->subject(plugin.load, api);
  // Rules need a lost peer to be noticed soon. Here none is lost, and many ranks share few processors.
  std::erase_if(subject.environment, [](const auto& variable) { return variable.first == "NCCL_IB_TIMEOUT"; });
  Subject result;
  result.api = api;
  {
    control::Session session(bed_->launcher(), subject, limits);
    for (const bed::DeviceMatch& match : bed::match_devices(session, *bed_, devices_, limits.call_seconds)) {
      if (match.found_by != "name") subject.devices[match.rank] = match.device;
    }
    control::Lease lease = session.lease();
    result.name = shortened(
        lease.rank(bed_->hosts().ranks.front(), {.state = control::RankState::kLoaded}).library().name, kMostNameBytes);
  }
  result.session = std::make_unique<control::Session>(bed_->launcher(), std::move(subject), limits);
  return result;
}

bed::RankGroup TeamBed::group() const {
  bed::RankGroup group = bed_->hosts();
  if (options_.ranks == 0) return group;
  const auto count = static_cast<std::size_t>(options_.ranks);
  group.ranks.resize(count);
  group.interfaces.resize(count);
  for (auto& interfaces : group.interfaces) interfaces.resize(count);
  return group;
}

std::FILE* TeamBed::text_stream() const { return report::is_standard_output(options_.json) ? stderr : stdout; }

void TeamBed::write_json(const nlohmann::ordered_json& document) {
  if (json_) json_->write(wire::json_text(document));
}

std::string failure_text(const control::Deviation& deviation, const control::Lease& lease) {
  std::string text = deviation.what();
  const std::vector<std::string>* stack = nullptr;
  if (const auto* hung = dynamic_cast<const control::Hung*>(&deviation)) stack = &hung->stack();
  if (const auto* crashed = dynamic_cast<const control::Crashed*>(&deviation)) stack = &crashed->stack();
  for (std::size_t i = 0; stack != nullptr && i < stack->size(); ++i) text += "\n  " + (*stack)[i];
  for (const control::Evidence::OfRank& rank : lease.evidence().ranks) {
    if (rank.name != deviation.rank()) continue;
    constexpr std::size_t kLogLines = 20;
    const std::size_t first = rank.log.size() - std::min(rank.log.size(), kLogLines);
    if (!rank.log.empty()) text += fmt::format("\nlog of rank {}:", rank.name);
    for (std::size_t i = first; i < rank.log.size(); ++i) text += "\n  " + rank.log[i];
  }
  return text;
}

void print_failure(std::FILE* out, const std::string& subject, const std::string& failure, const std::string& rerun) {
  std::string text;
  for (const char c : report::printable(shortened_lines(failure, 1000, 100), "\t\n"))
    text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  fmt::print(out, "FAIL {}\n  {}\n  again: {}\n", subject, text, rerun);
  std::fflush(out);
}

}  // namespace plugfest::cli
