// The functions of a plugin as replaceable objects, and helpers with which a mutation replaces them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "harness/abi/base.h"
#include "harness/abi/net.h"
#include "harness/plugin/layout.h"

namespace plugfest::plugin {
class Net;
}

namespace plugfest::mutants {

using abi::Result;
using Properties = abi::newest::Properties;

/// The arguments of each call. A call that may succeed without an outcome, since its operation is not finished, has
/// functions to query and to revoke the outcome.
struct Init {
  void** context;
  std::uint64_t comm_id;
  abi::newest::CommConfig* config;
  abi::Logger logger;
  abi::ProfilerCallback profiler;
};
struct GetProperties {
  int device;
  Properties* properties;
};
struct Listen {
  void* context;
  int device;
  void* handle;
  void** comm;
};
struct Connect {
  void* context;
  int device;
  void* handle;
  void** comm;
  bool has_outcome() const { return *comm != nullptr; }
  void clear_outcome() const { *comm = nullptr; }
};
struct Accept {
  void* listener;
  void** comm;
  bool has_outcome() const { return *comm != nullptr; }
  void clear_outcome() const { *comm = nullptr; }
};
struct Register {
  void* comm;
  void* data;
  std::size_t size;
  int type;
  void** mhandle;
};
struct Deregister {
  void* comm;
  void* mhandle;
};
struct Send {
  void* comm;
  void* data;
  std::size_t size;
  int tag;
  void* mhandle;
  void** request;
  void* phandle = nullptr;
  void* base_phandle = nullptr;  ///< the phandle that the base plugin gets
  bool has_outcome() const { return *request != nullptr; }
  void clear_outcome() const { *request = nullptr; }
};
struct Receive {
  void* comm;
  int n;
  void** data;
  std::size_t* sizes;
  int* tags;
  void** mhandles;
  void** request;
  void** phandles = nullptr;
  void** base_phandles = nullptr;  ///< the phandles that the base plugin gets; null: each is NULL
  bool has_outcome() const { return *request != nullptr; }
  void clear_outcome() const { *request = nullptr; }
};
struct Flush {
  void* comm;
  int n;
  void** data;
  int* sizes;
  void** mhandles;
  void** request;
};
struct Test {
  void* request;
  int* done;
  int* sizes;
  bool has_outcome() const { return *done != 0; }
  void clear_outcome() const { *done = 0; }
};
struct Consumed {
  void* comm;
  int n;
  void* request;
};

template <typename Call>
using Function = std::function<Result(Call)>;

/// The functions of net v12 that mutations replace. Thread safety: any thread, as for a plugin's functions.
struct Net {
  Function<Init> init;
  Function<int*> devices;
  Function<GetProperties> get_properties;
  Function<Listen> listen;
  Function<Connect> connect;
  Function<Accept> accept;
  Function<Register> reg_mr;
  Function<Deregister> dereg_mr;
  Function<Send> isend;
  Function<Receive> irecv;
  Function<Flush> iflush;
  Function<Test> test;
  Function<void*> close_send;
  Function<void*> close_recv;
  Function<void*> close_listen;
  Function<Consumed> irecv_consumed;
  Function<void*> finalize;
  /// The base plugin's makeVDevice. Mutants have none unless a mutation sets it in `table`.
  std::function<Result(int* device, abi::newest::VDevice* members)> make_vdevice;

  /// Called before each connect and accept with its devHandle argument.
  std::function<void(abi::DeviceHandle** device_handle)> before_device_handle = [](abi::DeviceHandle**) {};
  abi::newest::Net* table = nullptr;
};

/// Functions that call `plugin`, which must outlive them.
Net forward_to(plugin::Net& plugin);

/// State of a mutation. Lives until the process ends, as the functions that use it do.
template <typename State>
State& kept() {
  return *new State;
}

/// Calls `action(arguments)` before each call. It may change the arguments.
template <typename Call, typename Action>
void before(Function<Call>& function, Action action) {
  function = [next = std::move(function), action](Call call) {
    action(call);
    return next(call);
  };
}

/// Makes each call return `action(arguments, result)`.
template <typename Call, typename Action>
void after(Function<Call>& function, Action action) {
  function = [next = std::move(function), action](Call call) { return action(call, next(call)); };
}

/// Calls `action(arguments)` after each call that succeeded and has an outcome: a comm, a request, *done.
template <typename Call, typename Action>
void on_success(Function<Call>& function, Action action) {
  after(function, [action](Call call, Result result) {
    if (result != Result::kSuccess) return result;
    if constexpr (requires { call.has_outcome(); }) {
      if (!call.has_outcome()) return result;
    }
    action(call);
    return result;
  });
}

/// Calls `action(arguments)` after each call that succeeded and has no outcome yet.
template <typename Call, typename Action>
void on_pending(Function<Call>& function, Action action) {
  after(function, [action](Call call, Result result) {
    if (result == Result::kSuccess && !call.has_outcome()) action(call);
    return result;
  });
}

/// Makes calls that succeed and have no outcome yet return ncclInProgress.
template <typename Call>
void return_in_progress(Function<Call>& function) {
  after(function, [](Call call, Result result) {
    return result == Result::kSuccess && !call.has_outcome() ? Result::kInProgress : result;
  });
}

/// Aborts the process in calls for which `condition(arguments)` holds.
template <typename Call, typename Condition>
void abort_if(Function<Call>& function, Condition condition) {
  before(function, [condition](const Call& call) {
    if (condition(call)) std::abort();
  });
}

/// Calls `action(arguments)` after each call that failed.
template <typename Call, typename Action>
void on_failure(Function<Call>& function, Action action) {
  after(function, [action](Call call, Result result) {
    if (result != Result::kSuccess) action(call);
    return result;
  });
}

/// Makes calls for which `condition(arguments)` holds return `code` and do nothing.
template <typename Call, typename Condition>
void refuse(Function<Call>& function, Result code, Condition condition) {
  function = [next = std::move(function), code, condition](Call call) { return condition(call) ? code : next(call); };
}

/// Makes calls for which `condition(arguments)` holds succeed without an outcome.
template <typename Call, typename Condition>
void delay(Function<Call>& function, Condition condition) {
  function = [next = std::move(function), condition](Call call) {
    if (!condition(call)) return next(call);
    call.clear_outcome();
    return Result::kSuccess;
  };
}

/// Changes the properties that getProperties returns.
template <typename Change>
void change_properties(Net& net, Change change) {
  on_success(net.get_properties, [change](GetProperties call) { change(*call.properties); });
}

/// Makes getProperties report `value` for a member.
template <typename Member>
void set_property(Net& net, Member Properties::*member, std::type_identity_t<Member> value) {
  change_properties(net, [member, value](Properties& properties) { properties.*member = value; });
}

/// Makes maxRecvs 1, and irecv refuse other numbers of buffers.
inline void accept_one_buffer_per_receive(Net& net) {
  set_property(net, &Properties::maxRecvs, 1);
  refuse(net.irecv, Result::kInvalidArgument, [](const Receive& receive) { return receive.n != 1; });
}

}  // namespace plugfest::mutants

// The functions of an interface other than the net, replaceable one by one.

namespace plugfest::mutants {

/// The arguments of a call, in the order of plugin::Parameter; a pointer is its address. The rest is undefined.
using Words = std::array<std::uint64_t, 15>;

/// Functions by name. A mutation replaces some, and erases those that are to be NULL after init.
using Calls = std::map<std::string, std::function<abi::Result(Words& words)>>;

/// The object to which an argument points.
template <typename T>
T& at(std::uint64_t word) {
  return *reinterpret_cast<T*>(word);
}

/// Whether init of the net was called in the library of the mutants of GIN and RMA.
inline std::atomic<bool> net_is_initialized = false;

/// Calls `action(words)` before each call of the function `name`.
template <typename Action>
void before_call(Calls& calls, const char* name, Action action) {
  calls[name] = [action, good = calls[name]](Words& words) {
    action(words);
    return good(words);
  };
}

/// Calls `action(words)` after each call of the function `name`.
template <typename Action>
void after_call(Calls& calls, const char* name, Action action) {
  calls[name] = [action, good = calls[name]](Words& words) {
    const Result result = good(words);
    action(words);
    return result;
  };
}

}  // namespace plugfest::mutants
