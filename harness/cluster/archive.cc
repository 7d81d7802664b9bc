#include "harness/cluster/archive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>

#include "fabric/system/number.h"
#include "fabric/system/text.h"
#include "harness/cluster/agents/token.h"
#include "harness/cluster/certification.h"
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

constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kSeal = "SEAL";
// Size of the seal in a tar archive: a header, a block with the digits, and two empty blocks.
constexpr std::size_t kSealBytes = 4 * kBlock;

// Errors: std::runtime_error "certification.json: not as plugfest writes it: nics[0].name is missing".
template <typename Content>
Content decoded(const char* name, const std::string& text) {
  try {
    return wire::decode_json<Content>(text);
  } catch (const wire::JsonError& error) {
    throw std::runtime_error(fmt::format("{}: not as plugfest writes it: {}", name, error.what()));
  }
}

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

// The counts of verdicts in results.json.
struct Counts {
  std::map<std::string, std::size_t> summary;
  PLUGFEST_FIELDS(summary)
};

// Checks that each rule of the manifest has one verdict in each run, and that the counts match the verdicts.
void check_rules(const Manifest& manifest, const report::Document& document, Counts counts, const std::string& today,
                 Verification& verification) {
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
  for (const report::Verdict verdict : report::kVerdicts) {
    const std::string name(report::text(verdict));
    if (counts.summary[name] == summary.of(verdict)) continue;
    verification.add_problem(
        fmt::format("the summary counts {} {}, and there are {}", counts.summary[name], name, summary.of(verdict)));
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

// The parts of certification.json that are checked; see Certification.
struct Measured {
  int exit_code = 0;
  std::vector<HostRecord> hosts;
  std::vector<Nic> nics;
  std::size_t rounds = 0;
  std::vector<NamedPair> pairs;
  double soak_seconds = 0;
  std::vector<SoakedPair> soaks;
  std::vector<Suspect> suspects;
  PLUGFEST_FIELDS(exit_code, hosts, nics, rounds, pairs, soak_seconds, unless_empty(soaks), suspects)
};

// Checks that each pair of NICs of one rail in the requested rounds is one pair, and returns the number of these pairs.
std::size_t check_pairs(const Measured& measured, Verification& verification) {
  std::map<std::size_t, std::vector<std::string>> rails;
  std::set<std::string> nics;
  for (const Nic& nic : measured.nics) {
    if (!nics.insert(nic.name).second) throw std::runtime_error(fmt::format("NIC {} is reported twice", nic.name));
    rails[nic.rail].push_back(nic.name);
  }
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (const NamedPair& pair : measured.pairs) ++pairs[std::minmax(pair.one, pair.other)];
  std::size_t expected = 0;
  for (const auto& [rail, names] : rails) {
    const std::size_t all = rounds_of(names.size());
    const std::size_t rounds = measured.rounds == 0 ? all : std::min(all, measured.rounds);
    expected += rounds * (names.size() / 2);
    for (std::size_t round = 0; round < rounds; ++round) {
      for (const auto& [one, other] : pairs_of_round(names.size(), round)) {
        // An untrusted list of NICs can make more pairs than can be counted. Almost all of them are then missing.
        if (verification.problems.size() == Verification::kMaxProblems) return expected;
        const int count = pairs[std::minmax(names[one], names[other])];
        if (count != 1)
          verification.add_problem(fmt::format("pair {} {} is reported {} times", names[one], names[other], count));
      }
    }
  }
  if (measured.pairs.size() != expected) {
    verification.add_problem(
        fmt::format("{} are reported, and the NICs make {}", counted(measured.pairs.size(), "pair"), expected));
  }
  return expected;
}

// Checks that all pairs were measured, that each NIC was soaked if a soak was requested, and that each host has its
// facts. States what was measured.
void check_measurements(const Measured& measured, const std::vector<ArchiveFile>& files, Verification& verification) {
  const std::size_t pairs = check_pairs(measured, verification);
  std::set<std::string> soaked;
  for (const SoakedPair& soak : measured.soaks) soaked.insert({soak.one, soak.other});
  for (const NamedPair& pair : measured.pairs) {
    if (measured.soak_seconds == 0 || !pair.broken.empty()) continue;
    for (const std::string& nic : {pair.one, pair.other})
      if (soaked.insert(nic).second) verification.add_problem(fmt::format("NIC {} was not soaked", nic));
  }
  std::set<std::string> names;
  for (const ArchiveFile& file : files) names.insert(file.name);
  for (const HostRecord& host : measured.hosts) {
    const std::string file = fmt::format("hosts/{}.json", host.name);
    if (host.joined && !names.contains(file)) verification.add_problem(fmt::format("{} is missing", file));
  }
  const auto unreached =
      std::count_if(measured.pairs.begin(), measured.pairs.end(), [](const NamedPair& pair) { return !pair.reached; });
  verification.statements.push_back(fmt::format(
      "{}, {}, {}{}{}", counted(measured.hosts.size(), "host"), counted(measured.nics.size(), "NIC"),
      counted(pairs, "pair"), measured.rounds == 0 ? "" : fmt::format(" of {}", counted(measured.rounds, "round")),
      unreached == 0 ? "" : fmt::format(", {} of them not reached", unreached)));
  if (measured.soak_seconds != 0) {
    verification.statements.push_back(
        fmt::format("{} soaked for {:g} min", counted(measured.soaks.size(), "pair"), measured.soak_seconds / 60));
  }
  for (const Suspect& suspect : measured.suspects)
    verification.statements.push_back(fmt::format("{:<7} {}  {}", suspect.kind, suspect.subject, suspect.why));
}

void check(std::string_view archive, const std::string& today, Verification& verification) {
  const std::vector<ArchiveFile> files = read_tar(archive);
  if (files.size() < 4 || files.front().name != kManifest || files.back().name != kSeal || archive.size() < kSealBytes)
    throw std::runtime_error("this is not an archive of plugfest certify");
  if (files.back().content != seal_of(archive.substr(0, archive.size() - kSealBytes)))
    verification.add_problem("the seal does not match: the archive was changed after it was written");
  const auto manifest = decoded<Manifest>(kManifest, files.front().content);
  check_sums(manifest, files, verification);
  const auto content = [&](const char* name) -> const std::string& {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const ArchiveFile& file) { return file.name == name; });
    if (found == files.end()) throw std::runtime_error(fmt::format("{} is missing", name));
    return found->content;
  };
  verification.statements.push_back(
      fmt::format("plugfest {}, {}, written {}", manifest.version, manifest.plugin_path, manifest.written));
  const std::string& results = content("results.json");
  const report::Document document = report::read_document(results);
  check_rules(manifest, document, decoded<Counts>("results.json", results), today, verification);
  const auto measured = decoded<Measured>("certification.json", content("certification.json"));
  if (measured.exit_code < 0 || measured.exit_code > 2)
    throw std::runtime_error(fmt::format("certification.json: exit_code {}: expected 0, 1 or 2", measured.exit_code));
  check_measurements(measured, files, verification);
  const int of_rules = document.runs.empty() ? 0 : report::summarize(document.runs).exit_code();
  verification.certified = std::max(measured.exit_code, of_rules);
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
  } catch (const std::exception& error) {
    verification.problems.push_back(error.what());
  }
  return verification;
}

}  // namespace plugfest::cluster
