// sandbox-exec COMMAND [ARGUMENT…], a program for tests: runs a command inside a sandbox.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>

#include "fabric/netns/sandbox/sandbox.h"

int main(int argc, char** argv) {
  try {
    if (const std::optional<int> exit_code = plugfest::netns::enter_sandbox()) return *exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s\n", error.what());
    return 2;
  }
  if (argc > 1) execvp(argv[1], argv + 1);
  std::fprintf(stderr, "plugfest: cannot run %s: %s\n", argc > 1 ? argv[1] : "nothing", std::strerror(errno));
  return 2;
}
