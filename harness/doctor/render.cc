#include "harness/doctor/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::size_t kModeIndent = 14;

constexpr std::string_view kRed = "31";
constexpr std::string_view kGreen = "32";
constexpr std::string_view kYellow = "33";
constexpr std::string_view kDim = "2";
constexpr std::string_view kBold = "1";

std::string_view text(State state) {
  switch (state) {
    case State::kGood:
      return "ok";
    case State::kNote:
      return "note";
    case State::kWarning:
      return "warn";
    case State::kBad:
      return "bad";
  }
  return "bad";
}

std::string_view colour_of(State state) {
  return state == State::kBad ? kRed : state == State::kWarning ? kYellow : state == State::kGood ? kGreen : kDim;
}

}  // namespace

std::string to_text(const Diagnosis& diagnosis, bool colour) {
  const auto paint = [colour](std::string_view code, std::string_view word) {
    return colour ? fmt::format("\033[{}m{}\033[0m", code, word) : std::string(word);
  };
  const MachineSummary& machine = diagnosis.machine;
  std::string out = fmt::format("{}Linux {} {}, as {}\n\n", machine.system.empty() ? "" : machine.system + ", ",
                                machine.kernel, machine.architecture, machine.user);
  for (const Mode& mode : diagnosis.modes) {
    const Finding* const bad = mode.first_bad();
    const std::string verdict = fmt::format("{:<3}", bad == nullptr ? "yes" : "no");
    const std::string indent(kModeIndent, ' ');
    out += fmt::format("{}  {:<8} {}\n", paint(bad == nullptr ? kGreen : kRed, verdict), mode.name, mode.title);
    if (!mode.command.empty()) out += fmt::format("{}{}\n", indent, paint(kDim, mode.command));
    if (bad == nullptr) continue;
    out += fmt::format("{}{}\n", indent, report::wrapped(fmt::format("{}: {}", bad->name, bad->text), kModeIndent));
    if (!bad->mend.empty()) out += fmt::format("{}→ {}\n", indent, bad->mend);
  }
  for (const Mode& mode : diagnosis.modes) {
    out += fmt::format("\n{}\n", paint(kBold, mode.name));
    std::size_t width = 0;
    for (const Finding& finding : mode.findings) width = std::max(width, finding.name.size());
    for (const Finding& finding : mode.findings) {
      const std::string state = fmt::format("{:<5}", text(finding.state));
      out += fmt::format("  {} {:<{}}  {}\n", paint(colour_of(finding.state), state), finding.name, width,
                         report::wrapped(finding.text, 10 + width));
      if (!finding.mend.empty()) out += fmt::format("        {:<{}}  → {}\n", "", width, finding.mend);
    }
  }
  return out;
}

std::string to_json(const Diagnosis& diagnosis, std::string_view version) {
  const MachineSummary& machine = diagnosis.machine;
  Json json = {{"schema", kSchema},
               {"version", version},
               {"machine",
                {{"system", machine.system},
                 {"kernel", machine.kernel},
                 {"architecture", machine.architecture},
                 {"user", machine.user}}},
               {"modes", Json::array()}};
  if (diagnosis.mesh) {
    json["mesh"] = {{"host", diagnosis.mesh->name}, {"nics", Json::array()}};
    for (const MeshNic& nic : diagnosis.mesh->nics)
      json["mesh"]["nics"].push_back({{"name", nic.name}, {"path_mtu", nic.path_mtu}, {"subnets", nic.subnets}});
  }
  for (const Mode& mode : diagnosis.modes) {
    Json findings = Json::array();
    for (const Finding& finding : mode.findings) {
      findings.push_back({{"name", finding.name}, {"state", text(finding.state)}, {"text", finding.text}});
      if (!finding.mend.empty()) findings.back()["mend"] = finding.mend;
    }
    json["modes"].push_back({{"name", mode.name},
                             {"title", mode.title},
                             {"command", mode.command},
                             {"works", mode.works()},
                             {"findings", findings}});
  }
  return wire::json_text(json);
}

MeshHost read_mesh_host(std::string_view text, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema").get<int>() != kSchema) throw std::runtime_error("unknown schema");
    MeshHost host{.name = json.at("mesh").at("host").get<std::string>(), .nics = {}};
    for (const Json& each : json.at("mesh").at("nics"))
      host.nics.push_back({.name = each.at("name").get<std::string>(),
                           .path_mtu = each.at("path_mtu").get<int>(),
                           .subnets = each.at("subnets").get<std::vector<std::string>>()});
    return host;
  } catch (const std::exception&) {
    throw std::runtime_error(file + ": not written by plugfest doctor --plugin mesh --json");
  }
}

}  // namespace plugfest::doctor
