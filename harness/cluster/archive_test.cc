// Archives of certifications: their content, and the detection of changes.
#include "harness/cluster/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/cluster/certification.h"
#include "harness/report/formats.h"
#include "harness/report/results.h"

namespace plugfest::cluster {
namespace {

using testing::HasSubstr;

// The parts of a complete archive: two hosts, one pair, two runs of two rules.
struct Parts {
  Manifest manifest;
  report::Document document;
  Certification certification;

  Parts() {
    manifest.version = "0.1.0";
    manifest.command = {"plugfest", "certify"};
    manifest.written = "2026-11-22T12:00:00Z";
    manifest.plugin_path = "/opt/libnccl-net.so";
    manifest.rules = {"CN-01", "CN-02"};
    manifest.runs = 2;
    report::Run run;
    for (const char* id : {"CN-01", "CN-02"}) {
      report::RuleResult rule;
      rule.id = id;
      rule.verdict = report::Verdict::kPass;
      run.rules.push_back(rule);
    }
    document.runs = {run, run};
    for (const char* host : {"h1", "h2"}) {
      certification.hosts.push_back({.name = host, .joined = true});
      add_nic(host, "x");
    }
    certification.pairs = {{.one = 0, .other = 1, .reached = true}};
  }

  void add_nic(const std::string& host, const std::string& device) {
    certification.nics.push_back({.host = host, .name = host + "." + device});
  }
  std::string archive() const {
    return make_archive(manifest, {{"certification.json", certification.json()},
                                   {"results.json", report::to_json(document)},
                                   {"hosts/h1.json", "{}"},
                                   {"hosts/h2.json", "{}"}});
  }
  // The problems of the archive, one line each.
  std::string problems() const {
    std::string all;
    for (const std::string& problem : verify(archive(), "2026-11-22").problems) all += problem + "\n";
    return all;
  }
};

TEST(Archive, ACompleteArchiveIsIntactAndHasTheSameBytesEachTime) {
  const Parts parts;
  EXPECT_EQ(parts.problems(), "");
  EXPECT_EQ(verify(parts.archive(), "2026-11-22").exit_code(), 0);
  EXPECT_EQ(parts.archive(), parts.archive());
}

TEST(Archive, AChangeOfAnyByteIsNoticed) {
  const std::string archive = Parts().archive();
  for (std::size_t at = 0; at < archive.size(); ++at) {
    std::string changed = archive;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    ASSERT_EQ(verify(changed, "2026-11-22").exit_code(), 2) << "byte " << at;
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{512}, archive.size() / 2, archive.size() - 1})
    EXPECT_EQ(verify(archive.substr(0, size), "2026-11-22").exit_code(), 2) << size << " bytes";
  EXPECT_EQ(verify(archive + std::string(512, '\0'), "2026-11-22").exit_code(), 2);
}

TEST(Archive, AFileThatWasReplacedIsNoticedThoughTheSealIsNew) {
  const Parts parts;
  std::vector<ArchiveFile> files = read_tar(parts.archive());
  files.pop_back();
  for (ArchiveFile& file : files)
    if (file.name == "hosts/h1.json") file.content = "[]";
  // A manifest of the old checksums inside a new seal, which make_archive() would never write.
  Manifest manifest;
  std::vector<ArchiveFile> rest(files.begin() + 1, files.end());
  std::vector<ArchiveFile> sealed = read_tar(make_archive(manifest, rest));
  sealed.front() = files.front();
  std::string problems;
  for (const std::string& problem : verify(make_tar(sealed), "2026-11-22").problems) problems += problem + "\n";
  EXPECT_NE(problems.find("hosts/h1.json has another SHA-256 than in the manifest"), std::string::npos) << problems;
}

TEST(Archive, SaysWhichRuleIsNotReported) {
  Parts parts;
  parts.document.runs[1].rules.pop_back();
  EXPECT_EQ(parts.problems(), "rule CN-02 is reported 0 times\n");
  parts = Parts();
  parts.document.runs.pop_back();
  EXPECT_EQ(parts.problems(), "results.json has 1 run, and the manifest 2\n");
  parts = Parts();
  parts.document.runs[0].rules[0].verdict = report::Verdict::kMissing;
  EXPECT_EQ(parts.problems(), "rule CN-01 has no verdict\n");
  parts = Parts();
  parts.document.runs[0].rules[0].id = "CN-03";
  EXPECT_EQ(parts.problems(), "rule CN-01 is reported 0 times\nrule CN-03 is not in the manifest\n");
}

TEST(Archive, SaysWhichPairOrHostIsMissing) {
  Parts parts;
  parts.certification.pairs.clear();
  EXPECT_EQ(parts.problems(), "pair h1.x h2.x is reported 0 times\n0 pairs are reported, and the NICs make 1\n");
  parts = Parts();
  parts.certification.hosts.push_back({.name = "h3", .joined = true});
  EXPECT_EQ(parts.problems(), "hosts/h3.json is missing\n");
  // Four NICs need three rounds, of which one was requested.
  parts = Parts();
  for (const char* host : {"h1", "h2"}) parts.add_nic(host, "y");
  parts.certification.pairs = {{.one = 0, .other = 3, .reached = true}, {.one = 1, .other = 2, .reached = true}};
  parts.certification.rounds = 1;
  EXPECT_EQ(parts.problems(), "");
  parts.certification.rounds = 2;
  EXPECT_THAT(parts.problems(), HasSubstr("2 pairs are reported, and the NICs make 4\n"));
}

TEST(Archive, RefusesNicsWithOneNameAndUnknownExitCodes) {
  Parts parts;
  parts.add_nic("h1", "x");
  EXPECT_EQ(parts.problems(), "NIC h1.x is reported twice\n");
  std::string text = Parts().certification.json();
  text.replace(text.find("\"exit_code\": 0"), 14, "\"exit_code\": 256");
  const std::string archive = make_archive(
      Parts().manifest, {{"certification.json", text}, {"results.json", report::to_json(Parts().document)}});
  EXPECT_THAT(verify(archive, "2026-11-22").problems,
              testing::ElementsAre("certification.json: exit_code 256: expected 0, 1 or 2"));
  const std::string damaged = make_archive(
      Parts().manifest, {{"certification.json", "{}"}, {"results.json", report::to_json(Parts().document)}});
  EXPECT_THAT(verify(damaged, "2026-11-22").problems,
              testing::ElementsAre("certification.json: not as plugfest writes it: exit_code is missing"));
}

TEST(Archive, SaysWhichNicWasNotSoaked) {
  Parts parts;
  parts.certification.soak_seconds = 60;
  EXPECT_EQ(parts.problems(), "NIC h1.x was not soaked\nNIC h2.x was not soaked\n");
  SoakedPair soak;
  soak.one = "h1.x";
  soak.other = "h2.x";
  parts.certification.soaks = {soak};
  EXPECT_EQ(parts.problems(), "");
}

TEST(Archive, SaysWhichWaiverHasExpired) {
  Parts parts;
  parts.manifest.waivers = {
      {.rule = "CN-01", .subject = "Mesh", .reason = "known", .expires = "2026-11-22", .location = ""}};
  EXPECT_EQ(parts.problems(), "");
  parts.manifest.waivers[0].expires = "2026-11-21";
  EXPECT_EQ(parts.problems(), "the waiver of CN-01 has expired on 2026-11-21\n");
}

TEST(Archive, CertifiesWhatItHolds) {
  Parts parts;
  parts.document.runs[0].rules[0].verdict = report::Verdict::kFail;
  EXPECT_EQ(verify(parts.archive(), "2026-11-22").exit_code(), 1);
  parts = Parts();
  parts.certification.suspects = {{.kind = "slow", .subject = "h1.x", .why = "slow"}};
  EXPECT_EQ(verify(parts.archive(), "2026-11-22").exit_code(), 1);
}

TEST(Tar, HoldsNothingOutsideOfItsFolder) {
  for (const char* name : {"/etc/passwd", "../x", "a/../x", "a/.."})
    EXPECT_THROW(read_tar(make_tar({{name, ""}})), std::runtime_error) << name;
  EXPECT_THROW(read_tar(make_tar({{"x", "1"}, {"x", "2"}})), std::runtime_error);
  EXPECT_THROW(make_tar({{std::string(101, 'x'), ""}}), std::runtime_error);
}

}  // namespace
}  // namespace plugfest::cluster
