#include "harness/cluster/archive/archive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "fabric/system/text.h"
#include "harness/cluster/plan/rounds.h"
#include "harness/cluster/wire/token.h"
#include "harness/report/json.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kSeal = "SEAL";
/// Of a tar archive: a header, the seal's digits in a block, and two empty blocks.
constexpr std::size_t kSealBytes = 4 * 512;
constexpr std::size_t kMostProblems = 20;

std::string seal_of(std::string_view before) { return sha256_hex(before) + "\n"; }

/// Takes problems until there are enough of them.
class Checker {
 public:
  explicit Checker(Verification& verification) : verification_(verification) {}
  void problem(const std::string& text) {
    if (verification_.problems.size() < kMostProblems) verification_.problems.push_back(text);
  }
  void state(const std::string& text) { verification_.statements.push_back(text); }

 private:
  Verification& verification_;
};

void check_sums(const json& manifest, const std::vector<ArchiveFile>& files, Checker& checker) {
  std::map<std::string, std::string> sums;
  for (std::size_t i = 1; i + 1 < files.size(); ++i) sums[files[i].name] = sha256_hex(files[i].content);
  const json& listed = manifest.at("files");
  for (const auto& [name, sum] : sums) {
    if (!listed.contains(name)) {
      checker.problem(fmt::format("{} is not in the manifest", name));
    } else if (listed.at(name) != sum) {
      checker.problem(fmt::format("{} has another SHA-256 than in the manifest", name));
    }
  }
  for (const auto& [name, sum] : listed.items()) {
    if (!sums.contains(name)) checker.problem(fmt::format("{} is missing", name));
  }
}

/// Each rule of the manifest has one verdict in each run, and the counts are those of the verdicts.
void check_rules(const json& manifest, const std::string& results, const std::string& today, Checker& checker) {
  const report::Document document = report::read_document(results);
  const auto wanted = manifest.at("rules").get<std::set<std::string>>();
  if (document.runs.size() != manifest.at("runs").get<std::size_t>()) {
    checker.problem(fmt::format("results.json has {}, and the manifest {}", counted(document.runs.size(), "run"),
                                manifest.at("runs").get<std::size_t>()));
  }
  for (const report::Run& run : document.runs) {
    std::map<std::string, int> reported;
    for (const report::RuleResult& rule : run.rules) {
      ++reported[rule.id];
      if (rule.verdict == report::Verdict::kMissing) checker.problem(fmt::format("rule {} has no verdict", rule.id));
    }
    for (const std::string& id : wanted) {
      if (reported[id] != 1) checker.problem(fmt::format("rule {} is reported {} times", id, reported[id]));
    }
    for (const auto& [id, count] : reported) {
      if (!wanted.contains(id)) checker.problem(fmt::format("rule {} is not in the manifest", id));
    }
  }
  const report::Summary summary = report::summarize(document.runs);
  const json counts = json::parse(results).at("summary");
  for (const report::Verdict verdict : report::kVerdicts) {
    const std::string name(report::text(verdict));
    if (counts.value(name, std::size_t{0}) == summary.of(verdict)) continue;
    checker.problem(fmt::format("the summary counts {} {}, and there are {}", counts.value(name, std::size_t{0}), name,
                                summary.of(verdict)));
  }
  for (const json& waiver : manifest.at("waivers")) {
    const std::string expires = waiver.at("expires").get<std::string>();
    if (expires.empty() || today <= expires) continue;
    checker.problem(fmt::format("the waiver of {} has expired on {}", waiver.at("rule").get<std::string>(), expires));
  }
  if (!document.runs.empty()) {
    checker.state(fmt::format("{} on {}: {}", counted(wanted.size(), "rule"), counted(document.runs.size(), "pair"),
                              summary.describe()));
  }
}

/// Each two NICs of one rail that meet in the rounds that were wanted are one pair, and each host has its facts.
int check_measurements(const json& certification, const std::vector<ArchiveFile>& files, Checker& checker) {
  std::map<std::size_t, std::vector<std::string>> rails;
  for (const json& nic : certification.at("nics")) {
    rails[nic.at("rail").get<std::size_t>()].push_back(nic.at("name").get<std::string>());
  }
  std::map<std::pair<std::string, std::string>, int> pairs;
  std::size_t unreached = 0;
  for (const json& pair : certification.at("pairs")) {
    ++pairs[std::minmax(pair.at("one").get<std::string>(), pair.at("other").get<std::string>())];
    if (!pair.at("reached").get<bool>()) ++unreached;
  }
  std::size_t expected = 0;
  const std::size_t wanted = certification.value("rounds", std::size_t{0});
  for (const auto& [rail, names] : rails) {
    const std::size_t all = rounds_of(names.size());
    for (std::size_t round = 0; round < (wanted == 0 ? all : std::min(all, wanted)); ++round) {
      for (const auto& [one, other] : pairs_of_round(names.size(), round)) {
        ++expected;
        const int count = pairs[std::minmax(names[one], names[other])];
        if (count != 1)
          checker.problem(fmt::format("pair {} {} is reported {} times", names[one], names[other], count));
      }
    }
  }
  if (certification.at("pairs").size() != expected) {
    checker.problem(fmt::format("{} are reported, and the NICs make {}",
                                counted(certification.at("pairs").size(), "pair"), expected));
  }
  std::set<std::string> names;
  for (const ArchiveFile& file : files) names.insert(file.name);
  for (const json& host : certification.at("hosts")) {
    const std::string file = fmt::format("hosts/{}.json", host.at("name").get<std::string>());
    if (host.at("joined").get<bool>() && !names.contains(file)) checker.problem(fmt::format("{} is missing", file));
  }
  checker.state(fmt::format("{}, {}, {}{}{}", counted(certification.at("hosts").size(), "host"),
                            counted(certification.at("nics").size(), "NIC"), counted(expected, "pair"),
                            wanted == 0 ? "" : fmt::format(" of {}", counted(wanted, "round")),
                            unreached == 0 ? "" : fmt::format(", {} of them not reached", unreached)));
  for (const json& it : certification.at("suspects")) {
    checker.state(fmt::format("{:<7} {}  {}", it.at("kind").get<std::string>(), it.at("subject").get<std::string>(),
                              it.at("why").get<std::string>()));
  }
  return certification.at("exit_code").get<int>();
}

void check(std::string_view archive, const std::string& today, Verification& verification) {
  Checker checker(verification);
  const std::vector<ArchiveFile> files = read_tar(archive);
  if (files.size() < 4 || files.front().name != kManifest || files.back().name != kSeal ||
      archive.size() < kSealBytes) {
    throw std::runtime_error("this is no archive of plugfest certify");
  }
  if (files.back().content != seal_of(archive.substr(0, archive.size() - kSealBytes))) {
    checker.problem("the seal does not match: the archive was changed after it was written");
  }
  const json manifest = json::parse(files.front().content);
  check_sums(manifest, files, checker);
  const auto content = [&](const char* name) -> const std::string& {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const ArchiveFile& file) { return file.name == name; });
    if (found == files.end()) throw std::runtime_error(fmt::format("{} is missing", name));
    return found->content;
  };
  checker.state(fmt::format("plugfest {}, {}, written {}", manifest.at("version").get<std::string>(),
                            manifest.at("plugin").at("path").get<std::string>(),
                            manifest.at("written").get<std::string>()));
  check_rules(manifest, content("results.json"), today, checker);
  const int measured = check_measurements(json::parse(content("certification.json")), files, checker);
  const std::vector<report::Run> runs = report::read_document(content("results.json")).runs;
  verification.certified = std::max(measured, runs.empty() ? 0 : report::summarize(runs).exit_code());
}

}  // namespace

std::string make_archive(const Manifest& manifest, const std::vector<ArchiveFile>& files) {
  ordered_json sums = ordered_json::object(), waivers = ordered_json::array();
  for (const ArchiveFile& file : files) sums[file.name] = sha256_hex(file.content);
  for (const report::KnownFinding& it : manifest.waivers) {
    waivers.push_back({{"rule", it.rule}, {"subject", it.subject}, {"reason", it.reason}, {"expires", it.expires}});
  }
  const std::string text =
      wire::json_text({{"format", 1},
                       {"version", manifest.version},
                       {"commit", manifest.commit},
                       {"written", manifest.written},
                       {"command", manifest.command},
                       {"plugin", {{"path", manifest.plugin_path}, {"sha256", manifest.plugin_sha256}}},
                       {"tool", {{"sha256", manifest.tool_sha256}}},
                       {"rules", manifest.rules},
                       {"runs", manifest.runs},
                       {"waivers", std::move(waivers)},
                       {"files", std::move(sums)}});
  std::vector<ArchiveFile> all = {{kManifest, text}};
  all.insert(all.end(), files.begin(), files.end());
  // Without the two empty blocks at its end.
  const std::string before = make_tar(all);
  all.push_back({kSeal, seal_of(std::string_view(before).substr(0, before.size() - 2 * 512))});
  return make_tar(all);
}

Verification verify(std::string_view archive, const std::string& today) {
  Verification verification;
  try {
    check(archive, today, verification);
  } catch (const json::exception&) {
    verification.problems.push_back("a file in the archive has not the content that plugfest writes");
  } catch (const std::exception& error) {
    verification.problems.push_back(error.what());
  }
  return verification;
}

}  // namespace plugfest::cluster
