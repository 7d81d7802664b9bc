// sandbox-exec [--contained] COMMAND [ARGUMENT…], a program for tests: runs a command inside a sandbox, or with
// --contained, without namespaces.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>

#include "fabric/netns/sandbox.h"

int main(int argc, char** argv) {
  const bool contained = argc > 1 && std::strcmp(argv[1], "--contained") == 0;
  if (contained) ++argv, --argc;
  try {
    const std::optional<int> exit_code =
        contained ? plugfest::netns::contain_processes() : plugfest::netns::enter_sandbox();
    if (exit_code) return *exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s\n", error.what());
    return 2;
  }
  if (argc > 1) execvp(argv[1], argv + 1);
  std::fprintf(stderr, "plugfest: cannot run %s: %s\n", argc > 1 ? argv[1] : "nothing", std::strerror(errno));
  return 2;
}
