#include "fabric/system/number.h"

#include <sys/random.h>

#include <cerrno>

#include "fabric/system/file.h"

namespace plugfest {

std::uint32_t random_number() {
  std::uint32_t number = 0;
  while (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number)))
    if (errno != EINTR) throw_errno("get random bytes");
  return number;
}

}  // namespace plugfest
