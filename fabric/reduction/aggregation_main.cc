// plugfest-aggregation: the manager or a node, on sockets that the fabric's keeper passes as descriptors from 3.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "fabric/reduction/control.h"
#include "fabric/reduction/node_process.h"

int main(int argc, char** argv) {
  using namespace plugfest;
  using namespace plugfest::reduction;
  const std::string role = argc == 3 ? argv[1] : "";
  try {
    if (role == "manager") {
      Manager manager{Trees(topology::named(argv[2]))};
      serve(manager, Descriptor(3));
    } else if (role == "node") {
      std::vector<Descriptor> sockets;
      for (int i = 1; i < std::atoi(argv[2]); ++i) sockets.emplace_back(3 + i);
      run_node(Descriptor(3), std::move(sockets));
    } else {
      std::fputs("plugfest-aggregation: plugfest fabric up --reduction starts this program\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest-aggregation: %s\n", error.what());
    return 1;
  }
  return 0;
}
