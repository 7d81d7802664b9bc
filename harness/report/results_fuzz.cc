// Fuzz target: results.json of another machine. It must be refused, or have the same content after it was written and
// read again, in all formats.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "harness/report/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plugfest::report;
  Document document;
  try {
    document = read_document({reinterpret_cast<const char*>(data), size});
  } catch (const std::runtime_error&) {
    return 0;
  }
  const std::string text = to_json(document);
  if (to_json(read_document(text)) != text) std::abort();
  to_junit(document);
  to_markdown(document);
  to_badge(document);
  to_html(document);
  return 0;
}
