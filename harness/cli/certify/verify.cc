// plugfest verify: checks the archive of a certification.
#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "fabric/system/file.h"
#include "harness/cli/command.h"
#include "harness/cluster/archive/archive.h"
#include "harness/cluster/wire/token.h"
#include "harness/report/text.h"

namespace plugfest::cli {
namespace {

int verify_archive(const std::string& path) {
  const std::string archive = read_file(path);
  const cluster::Verification result = cluster::verify(archive, report::today());
  for (const std::string& line : result.statements) fmt::print("{}\n", report::printable(line));
  for (const std::string& line : result.problems) fmt::print("PROBLEM {}\n", report::printable(line));
  fmt::print("{}: {}, SHA-256 {}\n", path,
             !result.problems.empty() ? "not intact or not complete"
             : result.certified == 0  ? "intact; the cluster passed"
             : result.certified == 1  ? "intact; the cluster did not pass"
                                      : "intact; the certification is not complete",
             cluster::sha256_hex(archive));
  return result.exit_code();
}

}  // namespace

void add_verify(Command program) {
  Command command = program.add_subcommand(
      "verify", "Check the archive of a certification",
      "Exit code: that of the certification, 0, 1 or 2; 2 if the archive was changed or something is missing in it. "
      "Whoever changes an archive can also compute its sums again: compare the SHA-256 with the one that certify "
      "printed.");
  auto path = std::make_shared<std::string>();
  command.add_option("FILE", *path, "What certify has written").type_name("FILE").required();
  command.set_body([path] { return verify_archive(*path); });
}

}  // namespace plugfest::cli
