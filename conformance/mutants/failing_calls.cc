// The plugin of EE-07: passes all calls on to the plugin under test, which PLUGFEST_FAILING_BASE names, and fails the
// one that its process asks for.
#include <mutex>
#include <string>
#include <string_view>

#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

std::mutex mutex;
std::string wanted;  ///< name of the function; empty: none
int calls_before = 0;

/// Whether this call of `function` is the one to fail.
bool fails(std::string_view function) {
  const std::lock_guard lock(mutex);
  if (wanted != function || calls_before-- > 0) return false;
  wanted.clear();
  return true;
}

template <class... Arguments>
std::function<Result(Arguments...)> may_fail(const char* name, const std::function<Result(Arguments...)>& good) {
  return [name, &good](Arguments... arguments) { return fails(name) ? Result::kSystemError : good(arguments...); };
}

}  // namespace

VARIANT(fails_calls) {
  // NCCL's own sockets leave vProps as they find them.
  net.get_properties = [&good](int device, Properties* properties) {
    const Result result = good.get_properties(device, properties);
    if (result == Result::kSuccess &&
        (properties->vProps.ndevs < 1 || properties->vProps.ndevs > abi::kMaxVDeviceMembersV12))
      properties->vProps = {.ndevs = 1, .devs = {device}};
    return result;
  };
  net.listen = may_fail("listen", good.listen);
  net.connect = may_fail("connect", good.connect);
  net.accept = may_fail("accept", good.accept);
  net.reg_mr = may_fail("regMr", good.reg_mr);
  net.isend = may_fail("isend", good.isend);
  net.irecv = may_fail("irecv", good.irecv);
  net.test = may_fail("test", good.test);
}

}  // namespace plugfest::mutants

/// Lets a call of `function` return an error, once: the one after `before` others.
extern "C" __attribute__((visibility("default"))) void plugfest_fail_call(const char* function, int before) {
  const std::lock_guard lock(plugfest::mutants::mutex);
  plugfest::mutants::wanted = function;
  plugfest::mutants::calls_before = before;
}
