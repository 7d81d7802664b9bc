// The archive of a certification: its results, the tools and versions of the measurements, and checksums of all files.
//
// Its files, in this order: MANIFEST.json; certification.json; results.json; report.html; hosts/NAME.json, the facts of
// each host; SEAL. The manifest contains the SHA-256 of each file between it and the seal, the command line, versions,
// the rules that had to run and the waivers. The seal is the SHA-256 of all bytes before its own header. It reveals a
// change of any byte, unless the checksums were computed again: they prove integrity, not the author. The SHA-256 of
// the whole archive, kept elsewhere or signed, also proves the author.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/known_findings.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

struct ArchiveFile {
  /// At most 100 bytes, a relative path: "hosts/h1.json".
  std::string name;
  std::string content;
};

/// A tar archive (POSIX.1-1988 ustar) with one possible sequence of bytes for each list of files: owner 0, mode 0644,
/// time 0; the files in order, and two empty blocks at the end. Errors: std::runtime_error for a name that is too long.
std::string make_tar(const std::vector<ArchiveFile>& files);

/// Reads an archive of make_tar() from an untrusted source. Errors: std::runtime_error if a byte differs from what
/// make_tar() writes for these files, or names repeat or leave the folder.
std::vector<ArchiveFile> read_tar(std::string_view tar);

struct Manifest {
  std::string version;
  std::string commit;
  std::vector<std::string> command;
  /// When it was written, UTC: "2026-11-22T12:00:00Z".
  std::string written;
  std::string plugin_path;
  std::string plugin_sha256;
  std::string tool_sha256;
  /// Ids of the rules that each run had to report; empty if rules were skipped.
  std::vector<std::string> rules;
  /// The number of runs of the rules.
  std::size_t runs = 0;
  std::vector<report::KnownFinding> waivers;
  /// The SHA-256 of each file between the manifest and the seal.
  std::map<std::string, std::string> files;
  PLUGFEST_FIELDS(computed("format", [] { return 1; }), version, commit, written, command,
                  key("plugin.path", plugin_path), key("plugin.sha256", plugin_sha256), key("tool.sha256", tool_sha256),
                  rules, runs, waivers, files)
};

/// `files`: all files except the seal and the manifest, whose list of files is set here. Errors: std::runtime_error.
std::string make_archive(Manifest manifest, const std::vector<ArchiveFile>& files);

/// The problems and the statements of an archive.
struct Verification {
  static constexpr std::size_t kMaxProblems = 20;
  /// Differences from what was written, and missing parts. Empty: none.
  std::vector<std::string> problems;
  /// "54 rules on 2 pairs: 50 pass, 4 n/a", "120 pairs"; empty if the archive cannot be read.
  std::vector<std::string> statements;
  /// The exit code of the certification itself; 2 if it is unknown.
  int certified = 2;

  /// Adds a problem unless there are kMaxProblems.
  void add_problem(const std::string& text) {
    if (problems.size() < kMaxProblems) problems.push_back(text);
  }
  /// 2 if there are problems; otherwise the certification's exit code.
  int exit_code() const { return problems.empty() ? certified : 2; }
};

/// Checks an archive from an untrusted source. `today`: "2026-11-22". Throws only std::bad_alloc.
Verification verify(std::string_view archive, const std::string& today);

}  // namespace plugfest::cluster
