// Fuzz target: archives of certifications. A damaged archive must be reported. The input is also the certification.json
// and the results.json of an archive with valid checksums, since checksums would stop almost every input.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "harness/cluster/archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plugfest::cluster;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  verify(input, "2026-11-22");
  // The part before the first zero byte is the certification, and the part after it the results.
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string results(input.substr(std::min(end + 1, size)));
  Manifest manifest;
  manifest.rules = {"CN-01"};
  manifest.runs = 1;
  const std::string archive =
      make_archive(manifest, {{"certification.json", std::string(input.substr(0, end))}, {"results.json", results}});
  if (read_tar(archive).size() != 4) std::abort();
  verify(archive, "2026-11-22");
  return 0;
}
