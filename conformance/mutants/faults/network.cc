// Mutants of the ER rules about the network.
#include <atomic>
#include <cstdlib>
#include <memory>

#include "conformance/mutants/faults/end_to_end/port.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
// isend and test hide errors while a port is down.
MUTANT(errors_hidden_while_port_down, breaks("ER-09")) {
  net.isend = [&good](void* comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    const Result result = good.isend(comm, data, size, tag, mhandle, request);
    if (result == Result::kSuccess || !a_port_is_down()) return result;
    *request = nullptr;
    return Result::kSuccess;
  };
  net.test = [&good](void* request, int* done, int* sizes) {
    const Result result = good.test(request, done, sizes);
    if (result == Result::kSuccess || !a_port_is_down()) return result;
    *done = 0;
    return Result::kSuccess;
  };
}

// test fails permanently once a port was down.
MUTANT(port_error_is_final, breaks("ER-10")) {
  auto failed = std::make_shared<std::atomic<bool>>(false);
  net.test = [&good, failed](void* request, int* done, int* sizes) {
    if (a_port_is_down()) *failed = true;
    return *failed ? Result::kRemoteError : good.test(request, done, sizes);
  };
}

// test exits the process when a port is down.
MUTANT(exits_on_port_error, breaks("ER-11", "ER-09", "ER-10")) {
  net.test = [&good](void* request, int* done, int* sizes) {
    if (a_port_is_down()) std::exit(1);
    return good.test(request, done, sizes);
  };
}

}  // namespace plugfest::mutants
