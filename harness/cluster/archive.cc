#include "harness/cluster/archive.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/cluster/agents/token.h"
#include "harness/cluster/plan.h"
#include "harness/report/formats.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kMaxNameBytes = 100;
constexpr std::size_t kSizeAt = 124, kSizeDigits = 11;

std::string header_of(const ArchiveFile& file) {
  if (file.name.empty() || file.name.size() > kMaxNameBytes)
    throw std::runtime_error(fmt::format("\"{}\": expected a name of 1 to {} bytes", file.name, kMaxNameBytes));
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  put(0, file.name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(kSizeAt, fmt::format("{:011o}", file.content.size()));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header;
}

// Whether the file stays in the folder in which the archive is unpacked.
bool is_inside(const std::string& name) {
  return !name.empty() && name.front() != '/' && ("/" + name + "/").find("/../") == std::string::npos;
}

}  // namespace

std::string make_tar(const std::vector<ArchiveFile>& files) {
  std::string tar;
  for (const ArchiveFile& file : files) {
    tar += header_of(file);
    tar += file.content;
    tar.append((kBlock - tar.size() % kBlock) % kBlock, '\0');
  }
  return tar.append(2 * kBlock, '\0');
}

std::vector<ArchiveFile> read_tar(std::string_view tar) {
  std::vector<ArchiveFile> files;
  std::set<std::string> names;
  std::size_t at = 0;
  while (at + kBlock <= tar.size() && tar[at] != '\0') {
    const std::string_view header = tar.substr(at, kBlock);
    ArchiveFile file;
    file.name = std::string(header.substr(0, std::min(header.find('\0'), kMaxNameBytes)));
    std::size_t size = 0;
    for (const char digit : header.substr(kSizeAt, kSizeDigits)) {
      if (digit < '0' || digit > '7') throw std::runtime_error(fmt::format("byte {}: not written by plugfest", at));
      size = size * 8 + static_cast<std::size_t>(digit - '0');
    }
    at += kBlock;
    if (size > tar.size() - at) throw std::runtime_error(fmt::format("{}: the archive ends in the middle", file.name));
    file.content = std::string(tar.substr(at, size));
    at += round_up(size, kBlock);
    if (at > tar.size()) throw std::runtime_error(fmt::format("{}: the archive ends in the middle", file.name));
    if (!is_inside(file.name) || !names.insert(file.name).second)
      throw std::runtime_error(fmt::format("\"{}\": a name that plugfest does not write", file.name));
    files.push_back(std::move(file));
  }
  const std::string again = make_tar(files);
  if (again != tar) {
    std::size_t first = 0;
    while (first < std::min(again.size(), tar.size()) && again[first] == tar[first]) ++first;
    throw std::runtime_error(fmt::format("byte {}: not as plugfest writes it", first));
  }
  return files;
}

namespace {

using nlohmann::json;

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kSeal = "SEAL";
// Size of the seal in a tar archive: a header, a block with the digits, and two empty blocks.
constexpr std::size_t kSealBytes = 4 * kBlock;
constexpr const char* kWrongContent = "a file in the archive does not have the content that plugfest writes";

std::string seal_of(std::string_view before) { return sha256_hex(before) + "\n"; }

void check_sums(const Manifest& manifest, const std::vector<ArchiveFile>& files, Verification& verification) {
  std::map<std::string, std::string> sums;
  for (std::size_t i = 1; i + 1 < files.size(); ++i) sums[files[i].name] = sha256_hex(files[i].content);
  for (const auto& [name, sum] : sums) {
    const auto listed = manifest.files.find(name);
    if (listed == manifest.files.end())
      verification.add_problem(fmt::format("{} is not in the manifest", name));
    else if (listed->second != sum)
      verification.add_problem(fmt::format("{} has another SHA-256 than in the manifest", name));
  }
  for (const auto& [name, sum] : manifest.files)
    if (!sums.contains(name)) verification.add_problem(fmt::format("{} is missing", name));
}

// Checks that each rule of the manifest has one verdict in each run, and that the counts match the verdicts.
void check_rules(const Manifest& manifest, const std::string& results, const std::string& today,
                 Verification& verification) {
  const report::Document document = report::read_document(results);
  const std::set<std::string> wanted(manifest.rules.begin(), manifest.rules.end());
  if (document.runs.size() != manifest.runs) {
    verification.add_problem(
        fmt::format("results.json has {}, and the manifest {}", counted(document.runs.size(), "run"), manifest.runs));
  }
  for (const report::Run& run : document.runs) {
    std::map<std::string, int> reported;
    for (const report::RuleResult& rule : run.rules) {
      ++reported[rule.id];
      if (rule.verdict == report::Verdict::kMissing)
        verification.add_problem(fmt::format("rule {} has no verdict", rule.id));
    }
    for (const std::string& id : wanted)
      if (reported[id] != 1) verification.add_problem(fmt::format("rule {} is reported {} times", id, reported[id]));
    for (const auto& [id, count] : reported)
      if (!wanted.contains(id)) verification.add_problem(fmt::format("rule {} is not in the manifest", id));
  }
  const report::Summary summary = report::summarize(document.runs);
  const json counts = json::parse(results).at("summary");
  for (const report::Verdict verdict : report::kVerdicts) {
    const std::string name(report::text(verdict));
    if (counts.value(name, std::size_t{0}) == summary.of(verdict)) continue;
    verification.add_problem(fmt::format("the summary counts {} {}, and there are {}",
                                         counts.value(name, std::size_t{0}), name, summary.of(verdict)));
  }
  for (const report::KnownFinding& waiver : manifest.waivers) {
    if (waiver.expires.empty() || today <= waiver.expires) continue;
    verification.add_problem(fmt::format("the waiver of {} has expired on {}", waiver.rule, waiver.expires));
  }
  if (!document.runs.empty()) {
    verification.statements.push_back(fmt::format("{} on {}: {}", counted(wanted.size(), "rule"),
                                                  counted(document.runs.size(), "pair"), summary.describe()));
  }
}

// Checks that each pair of NICs of one rail in the requested rounds is one pair, and that each host has its facts.
int check_measurements(const json& certification, const std::vector<ArchiveFile>& files, Verification& verification) {
  std::map<std::size_t, std::vector<std::string>> rails;
  for (const json& nic : certification.at("nics"))
    rails[nic.at("rail").get<std::size_t>()].push_back(nic.at("name").get<std::string>());
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
          verification.add_problem(fmt::format("pair {} {} is reported {} times", names[one], names[other], count));
      }
    }
  }
  if (certification.at("pairs").size() != expected) {
    verification.add_problem(fmt::format("{} are reported, and the NICs make {}",
                                         counted(certification.at("pairs").size(), "pair"), expected));
  }
  const double soak_seconds = certification.value("soak_seconds", 0.0);
  const json soaks = certification.value("soaks", json::array());
  std::set<std::string> soaked;
  for (const json& soak : soaks)
    for (const char* nic : {"one", "other"}) soaked.insert(soak.at(nic).get<std::string>());
  for (const json& pair : certification.at("pairs")) {
    if (soak_seconds == 0 || !pair.at("broken").get<std::string>().empty()) continue;
    for (const char* nic : {"one", "other"})
      if (const auto name = pair.at(nic).get<std::string>(); soaked.insert(name).second)
        verification.add_problem(fmt::format("NIC {} was not soaked", name));
  }
  std::set<std::string> names;
  for (const ArchiveFile& file : files) names.insert(file.name);
  for (const json& host : certification.at("hosts")) {
    const std::string file = fmt::format("hosts/{}.json", host.at("name").get<std::string>());
    if (host.at("joined").get<bool>() && !names.contains(file))
      verification.add_problem(fmt::format("{} is missing", file));
  }
  verification.statements.push_back(
      fmt::format("{}, {}, {}{}{}", counted(certification.at("hosts").size(), "host"),
                  counted(certification.at("nics").size(), "NIC"), counted(expected, "pair"),
                  wanted == 0 ? "" : fmt::format(" of {}", counted(wanted, "round")),
                  unreached == 0 ? "" : fmt::format(", {} of them not reached", unreached)));
  if (soak_seconds != 0) {
    verification.statements.push_back(
        fmt::format("{} soaked for {:g} min", counted(soaks.size(), "pair"), soak_seconds / 60));
  }
  for (const json& suspect : certification.at("suspects")) {
    verification.statements.push_back(fmt::format("{:<7} {}  {}", suspect.at("kind").get<std::string>(),
                                                  suspect.at("subject").get<std::string>(),
                                                  suspect.at("why").get<std::string>()));
  }
  return certification.at("exit_code").get<int>();
}

void check(std::string_view archive, const std::string& today, Verification& verification) {
  const std::vector<ArchiveFile> files = read_tar(archive);
  if (files.size() < 4 || files.front().name != kManifest || files.back().name != kSeal || archive.size() < kSealBytes)
    throw std::runtime_error("this is not an archive of plugfest certify");
  if (files.back().content != seal_of(archive.substr(0, archive.size() - kSealBytes)))
    verification.add_problem("the seal does not match: the archive was changed after it was written");
  const auto manifest = wire::decode_json<Manifest>(files.front().content);
  check_sums(manifest, files, verification);
  const auto content = [&](const char* name) -> const std::string& {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const ArchiveFile& file) { return file.name == name; });
    if (found == files.end()) throw std::runtime_error(fmt::format("{} is missing", name));
    return found->content;
  };
  verification.statements.push_back(
      fmt::format("plugfest {}, {}, written {}", manifest.version, manifest.plugin_path, manifest.written));
  check_rules(manifest, content("results.json"), today, verification);
  const int measured = check_measurements(json::parse(content("certification.json")), files, verification);
  const std::vector<report::Run> runs = report::read_document(content("results.json")).runs;
  verification.certified = std::max(measured, runs.empty() ? 0 : report::summarize(runs).exit_code());
}

}  // namespace

std::string make_archive(Manifest manifest, const std::vector<ArchiveFile>& files) {
  for (const ArchiveFile& file : files) manifest.files[file.name] = sha256_hex(file.content);
  std::vector<ArchiveFile> all = {{kManifest, wire::json_text(manifest)}};
  all.insert(all.end(), files.begin(), files.end());
  // The archive without the two empty blocks at its end.
  const std::string before = make_tar(all);
  all.push_back({kSeal, seal_of(std::string_view(before).substr(0, before.size() - 2 * kBlock))});
  return make_tar(all);
}

Verification verify(std::string_view archive, const std::string& today) {
  Verification verification;
  try {
    check(archive, today, verification);
  } catch (const wire::JsonError&) {
    verification.problems.push_back(kWrongContent);
  } catch (const json::exception&) {
    verification.problems.push_back(kWrongContent);
  } catch (const std::exception& error) {
    verification.problems.push_back(error.what());
  }
  return verification;
}

}  // namespace plugfest::cluster
