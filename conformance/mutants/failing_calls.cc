// The plugin of EE-07: forwards all calls to the plugin under test, which PLUGFEST_FAILING_BASE names, and fails the
// call that its process requests.
#include <mutex>
#include <string>
#include <string_view>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

std::mutex mutex;
std::string wanted;  ///< name of the function; empty: none
int calls_before = 0;

bool fails(std::string_view function) {
  const std::lock_guard lock(mutex);
  if (wanted != function || calls_before-- > 0) return false;
  wanted.clear();
  return true;
}

template <typename Call>
void may_fail(const char* name, Function<Call>& function) {
  refuse(function, Result::kSystemError, [name](const Call&) { return fails(name); });
}

}  // namespace

VARIANT(fails_calls) {
  // NCCL's own sockets do not write vProps.
  on_success(net.get_properties, [](GetProperties call) {
    abi::newest::VDevice& members = call.properties->vProps;
    if (members.ndevs < 1 || members.ndevs > abi::kMaxVDeviceMembersV12) members = {.ndevs = 1, .devs = {call.device}};
  });
  may_fail("listen", net.listen);
  may_fail("connect", net.connect);
  may_fail("accept", net.accept);
  may_fail("regMr", net.reg_mr);
  may_fail("isend", net.isend);
  may_fail("irecv", net.irecv);
  may_fail("test", net.test);
}

}  // namespace plugfest::mutants

// Lets one call of `function` return an error: the one after `before` others.
extern "C" __attribute__((visibility("default"))) void plugfest_fail_call(const char* function, int before) {
  const std::lock_guard lock(plugfest::mutants::mutex);
  plugfest::mutants::wanted = function;
  plugfest::mutants::calls_before = before;
}
