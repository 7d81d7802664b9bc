// libFuzzer target: preprocessed CUDA sources. Text that cannot be read must be refused with a message that begins with
// its place. Any other result must consist of complete tokens.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "harness/kernels/front/rewrite.h"
#include "harness/kernels/front/tokens.h"

namespace front = plugfest::kernels::front;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find('\0') != std::string_view::npos) return 0;  // what() would end at a NUL in the name of a file
  std::optional<std::string> rewritten;
  try {
    rewritten = front::rewrite(text);
  } catch (const front::SourceError& refused) {
    if (std::string_view(refused.what()).find(": ") == std::string_view::npos) std::abort();
  }
  if (rewritten) front::tokenize(*rewritten);
  return 0;
}
