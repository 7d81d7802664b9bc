// fabric-holder TOPOLOGY, a program for tests: builds the topology, starts processes that print "ready" in each host,
// and waits until it is killed.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox.h"

int main(int argc, char** argv) {
  using namespace plugfest;
  try {
    if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
    netns::Options options;
    options.out_of_band = true;
    netns::Fabric fabric(topology::named(argc > 1 ? argv[1] : ""), options);
    for (const topology::Host& host : fabric.graph().hosts) {
      // Two processes: one child, and one grandchild in its own session.
      fabric.spawn(host.name, {.argv = {"sh", "-c", "setsid sleep 1000 & echo ready; exec sleep 1000"}});
    }
    for (;;) pause();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s\n", error.what());
    return 2;
  }
}
