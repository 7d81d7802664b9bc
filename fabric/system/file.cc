#include "fabric/system/file.h"

#include <fcntl.h>
#include <stdio.h>

namespace plugfest {

bool replace_file(const std::filesystem::path& file, std::string_view text) {
  const std::string temporary = file.parent_path().string() + "/.new-" + std::to_string(gettid());
  const Descriptor descriptor(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!descriptor) return false;
  if (write_all(descriptor.get(), text) && rename(temporary.c_str(), file.c_str()) == 0) return true;
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  return false;
}

}  // namespace plugfest
