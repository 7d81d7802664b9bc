// Mutants of GIN and RMA: the mesh plugin's RMA v16 with one change (one_sided_shim.cc).
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "conformance/mutants/mutant.h"
#include "harness/abi/one_sided.h"

namespace plugfest::mutants {

namespace {

// Words of the calls of RMA v15 and v16.
constexpr std::size_t kPutSourceMemory = 3, kPutSize = 4, kPutRank = 7, kPutOptions = 8, kPutRequest = 9;
constexpr std::size_t kSignalOpWord = 11, kSignalRequest = 14;

// The rank of this process and the number of ranks, from the latest connect.
struct Place {
  std::uint64_t rank = 0, ranks = 0;
};
Place& watch_connect(Calls& calls) {
  auto& place = kept<Place>();
  after_call(calls, "connect", [&place](Words& words) { place = {words[3], words[2]}; });
  return place;
}

// Makes test write 0 unless the thread has called the progress function after the last test that wrote 0.
void complete_after_progress(Calls& calls, const char* progress) {
  static thread_local bool progressed = false;
  after_call(calls, progress, [](Words&) { progressed = true; });
  calls["test"] = [good = calls["test"]](Words& words) {
    at<int>(words[2]) = 0;
    if (!progressed) return Result::kSuccess;
    const Result result = good(words);
    progressed = at<int>(words[2]) != 0;
    return result;
  };
}

}  // namespace

// finalize of one context closes the devices of all.
MUTANT_OF(one_sided_finalize_closes_all, kRma, breaks("GI-01").also("GI-33")) {
  static bool closed = false;
  after_call(calls, "finalize", [](Words&) { closed = true; });
  after_call(calls, "devices", [](Words& words) {
    if (closed) at<int>(words[0]) = 0;
  });
}

// Looks for devices once in a process, even if that has failed.
MUTANT_OF(one_sided_failure_is_final, kRma, breaks("GI-33")) {
  static bool failed = false;
  calls["init"] = [good = calls["init"]](Words& words) {
    // The base plugin's net has opened its devices already, so its init makes no call that may fail.
    const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    failed |= probe < 0 || good(words) != Result::kSuccess;
    if (probe >= 0) close(probe);
    return failed ? Result::kSystemError : Result::kSuccess;
  };
  after_call(calls, "devices", [](Words& words) {
    failed |= at<int>(words[0]) == 0;
    if (failed) at<int>(words[0]) = 0;
  });
}

// connect refuses a context that init has not stored.
MUTANT_OF(one_sided_connect_uses_context, kRma, breaks("GI-02")) {
  auto& contexts = kept<std::set<std::uint64_t>>();
  after_call(calls, "init", [&](Words& words) { contexts.insert(at<std::uint64_t>(words[0])); });
  calls["connect"] = [&, good = calls["connect"]](Words& words) {
    return contexts.contains(words[0]) ? good(words) : Result::kInvalidArgument;
  };
}

// A rank is not connected with itself.
MUTANT_OF(one_sided_no_loopback, kRma,
          breaks("GI-03", "GI-08").also("GI-*").because("in most rules a rank puts to itself")) {
  const Place& place = watch_connect(calls);
  calls["iput"] = [&place, good = calls["iput"]](Words& words) {
    return words[kPutRank] == place.rank ? Result::kInvalidArgument : good(words);
  };
}

// A process has one collComm at a time.
MUTANT_OF(one_sided_single_comm, kRma, breaks("GI-04").also("GI-29")) {
  static int open = 0;
  calls["connect"] = [good = calls["connect"]](Words& words) {
    return open++ == 0 ? good(words) : Result::kInvalidUsage;
  };
  after_call(calls, "closeColl", [](Words&) { --open; });
}

// deregMrSym ends all registrations of the same range.
MUTANT_OF(one_sided_dereg_ends_others, kRma, breaks("GI-05")) {
  auto& ranges = kept<std::map<std::uint64_t, std::uint64_t>>();  // by handle
  auto& ended = kept<std::set<std::uint64_t>>();
  after_call(calls, "regMrSym", [&](Words& words) {
    ranges[at<std::uint64_t>(words[5])] = words[1];
    ended.erase(words[1]);
  });
  after_call(calls, "deregMrSym", [&](Words& words) { ended.insert(ranges[words[1]]); });
  calls["iput"] = [&, good = calls["iput"]](Words& words) {
    return ended.contains(ranges[words[kPutSourceMemory]]) ? Result::kInvalidArgument : good(words);
  };
}

// regMrSym stores in *ginHandle a number that iput does not accept.
MUTANT_OF(one_sided_handle_of_device, kGin, breaks("GI-06").as_v(13)) {
  static std::uint64_t next = 0;
  after_call(calls, "regMrSym", [](Words& words) { at<std::uint64_t>(words[6]) = ++next; });
  calls["iput"] = [good = calls["iput"]](Words& words) {
    return words[kPutSourceMemory] < 1000 ? Result::kInvalidArgument : good(words);
  };
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    return words[kPutSize] != 0 && words[kPutSourceMemory] < 1000 ? Result::kInvalidArgument : good(words);
  };
}

// Sizes of puts are cut to 20 bits.
MUTANT_OF(one_sided_size_in_20_bits, kRma, breaks("GI-08")) {
  calls["iput"] = [good = calls["iput"]](Words& words) {
    words[kPutSize] &= 0xfffff;
    return good(words);
  };
}

// With 100 puts in flight, the request is NULL, as a net's isend stores it.
MUTANT_OF(one_sided_null_when_busy, kRma, breaks("GI-09")) {
  static int in_flight = 0;
  calls["iput"] = [good = calls["iput"]](Words& words) {
    if (in_flight == 100) {
      at<std::uint64_t>(words[kPutRequest]) = 0;
      return Result::kSuccess;
    }
    ++in_flight;
    return good(words);
  };
  after_call(calls, "test", [](Words& words) {
    if (at<int>(words[2]) != 0 && in_flight > 0) --in_flight;
  });
}

// Only rmaProgress makes progress.
MUTANT_OF(one_sided_test_makes_no_progress, kRma, breaks("GI-10")) { complete_after_progress(calls, "rmaProgress"); }

// A variant: up to v12, NCCL calls ginProgress between tests.
MUTANT_OF(gin_progress_completes, kGin, breaks().also("GI-10").as_v(11)) {
  complete_after_progress(calls, "ginProgress");
}

// The signal is posted before the data.
MUTANT_OF(one_sided_signal_before_data, kRma, breaks("GI-11").also("GI-20")) {
  calls["iputSignal"] = [signal = calls["iputSignal"], put = calls["iput"]](Words& words) {
    if (words[kPutSize] == 0) return signal(words);
    Words alone = words, data = words;
    alone[kPutSize] = 0;
    const Result result = signal(alone);
    if (result != Result::kSuccess) return result;
    data[kPutOptions] = 0;
    data[kPutRequest] = words[kSignalRequest];
    return put(data);
  };
}

// An increment adds the value.
MUTANT_OF(one_sided_increment_adds_value, kRma, breaks("GI-12").also("GI-38")) {
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    if (words[kSignalOpWord] == abi::kSignalInc) words[kSignalOpWord] = abi::kSignalAdd;
    return good(words);
  };
}

// Nothing reports an error.
MUTANT_OF(one_sided_errors_hidden, kRma, breaks("GI-14").also("GI-27")) {
  for (const char* const function : {"iput", "test", "rmaProgress"})
    calls[function] = [good = calls[function], function](Words& words) {
      if (good(words) != Result::kSuccess && std::string_view(function) == "iput")
        at<std::uint64_t>(words[kPutRequest]) = 1;
      return Result::kSuccess;
    };
  after_call(calls, "queryLastError", [](Words& words) { at<bool>(words[1]) = false; });
}

// closeColl fails while requests are in flight.
MUTANT_OF(one_sided_busy_comm_stays, kRma, breaks("GI-15")) {
  static int in_flight = 0;
  after_call(calls, "iput", [](Words&) { ++in_flight; });
  after_call(calls, "test", [](Words& words) {
    if (at<int>(words[2]) != 0 && in_flight > 0) --in_flight;
  });
  calls["closeColl"] = [good = calls["closeColl"]](Words& words) {
    return std::exchange(in_flight, 0) > 0 ? Result::kInternalError : good(words);
  };
}

// maxRecvs is 3.
MUTANT_OF(one_sided_three_receives, kRma, breaks("GI-16")) {
  after_call(calls, "getProperties", [](Words& words) { at<abi::newest::Properties>(words[1]).maxRecvs = 3; });
}

// A get reads at most a megabyte.
MUTANT_OF(one_sided_get_of_a_megabyte, kRma, breaks("GI-17")) {
  calls["iget"] = [good = calls["iget"]](Words& words) {
    words[kPutSize] = std::min<std::uint64_t>(words[kPutSize], 1 << 20);
    return good(words);
  };
}

// Only context 0 exists, whatever createContext was asked for.
MUTANT_OF(one_sided_single_context, kRma, breaks("GI-20").also("GI-38")) {
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    return words[1] != 0 ? Result::kInvalidArgument : good(words);
  };
}

// The device type says that GPUs drive the NIC.
MUTANT_OF(one_sided_device_driven, kRma, breaks("GI-21")) {
  after_call(calls, "getProperties",
             [](Words& words) { at<abi::newest::Properties>(words[1]).netDeviceType = abi::kDeviceGinGdaki; });
}

// createContext needs a place for the device handle.
MUTANT_OF(one_sided_device_handle_needed, kGin, breaks("GI-22").as_v(13)) {
  calls["createContext"] = [good = calls["createContext"]](Words& words) {
    return words[3] == 0 ? Result::kInvalidArgument : good(words);
  };
}

// createContext refuses the traffic class -1.
MUTANT_OF(one_sided_traffic_class_refused, kRma, breaks("GI-23")) {
  calls["createContext"] = [good = calls["createContext"]](Words& words) {
    return at<abi::RmaConfig>(words[1]).trafficClass == -1 ? Result::kInvalidArgument : good(words);
  };
}

// getRmaProperties writes nothing.
MUTANT_OF(one_sided_no_properties, kRma, breaks("GI-24")) {
  calls["getRmaProperties"] = [](Words&) { return Result::kSuccess; };
}

// A put that may be aggregated is done at once, and lost.
MUTANT_OF(one_sided_aggregated_puts_lost, kRma, breaks("GI-25")) {
  calls["iput"] = [good = calls["iput"]](Words& words) {
    if (words[kPutOptions] != 0) words[kPutSize] = 0;
    return good(words);
  };
}

// A put uses the descriptor with which its source was registered.
MUTANT_OF(one_sided_descriptor_kept, kRma, breaks("GI-26")) {
  auto& sizes = kept<std::map<std::uint64_t, std::pair<int, off_t>>>();  // of the descriptors' files, by handle
  const auto size_of = [](int descriptor) { return lseek(descriptor, 0, SEEK_END); };
  after_call(calls, "regMrSymDmaBuf", [&sizes, size_of](Words& words) {
    const int descriptor = static_cast<int>(words[5]);
    sizes[at<std::uint64_t>(words[7])] = {descriptor, size_of(descriptor)};
  });
  calls["iputSignal"] = [&sizes, size_of, good = calls["iputSignal"]](Words& words) {
    const auto source = sizes.find(words[kPutSourceMemory]);
    const bool lost = source != sizes.end() && size_of(source->second.first) != source->second.second;
    return lost ? Result::kSystemError : good(words);
  };
}

// One lock serves data calls and registrations, which wait for other ranks.
MUTANT_OF(one_sided_big_lock, kRma, breaks("GI-28")) {
  auto& mutex = kept<std::mutex>();
  for (const char* const function : {"iput", "regMrSym"})
    calls[function] = [&mutex, good = calls[function]](Words& words) {
      const std::lock_guard lock(mutex);
      return good(words);
    };
}

// A put to a rank that does not exist is done at once.
MUTANT_OF(one_sided_rank_unchecked, kRma, breaks("GI-27")) {
  const Place& place = watch_connect(calls);
  calls["iput"] = [&place, good = calls["iput"]](Words& words) {
    if (words[kPutRank] < place.ranks) return good(words);
    at<std::uint64_t>(words[kPutRequest]) = 1;
    return Result::kSuccess;
  };
}

// One thread at a time may call the plugin.
MUTANT_OF(one_sided_single_thread, kRma, breaks("GI-29")) {
  auto& mutex = kept<std::mutex>();
  for (const char* const function : {"iput", "test", "rmaProgress"})
    calls[function] = [&mutex, good = calls[function]](Words& words) {
      const std::unique_lock lock(mutex, std::try_to_lock);
      return lock.owns_lock() ? good(words) : Result::kInternalError;
    };
}

// Contexts connect all ranks only.
MUTANT_OF(one_sided_no_stride, kRma, breaks("GI-31")) {
  calls["createContext"] = [good = calls["createContext"]](Words& words) {
    return at<abi::RmaConfig>(words[1]).rankStride != 1 ? Result::kInvalidArgument : good(words);
  };
}

// Signals have queue pairs of their own.
MUTANT_OF(one_sided_signals_apart, kRma, breaks("GI-11").also("GI-25")) {
  calls["createContext"] = [good = calls["createContext"]](Words& words) {
    at<abi::RmaConfig>(words[1]).nContexts *= 2;
    return good(words);
  };
  calls["iputSignal"] = [good = calls["iputSignal"]](Words& words) {
    // The data of a signal stays with it.
    words[1] = 2 * words[1] + 1;
    return good(words);
  };
  for (const char* const function : {"iput", "iget", "iflush"})
    calls[function] = [good = calls[function]](Words& words) {
      words[1] *= 2;
      return good(words);
    };
}

// A put of 100 to 300 bytes loses its last one if a get is in flight.
MUTANT_OF(one_sided_put_beside_get, kRma, breaks("GI-38")) {
  static int gets = 0;
  auto& requests = kept<std::set<std::uint64_t>>();
  after_call(calls, "iget", [&](Words& words) {
    ++gets;
    requests.insert(at<std::uint64_t>(words[kPutRequest]));
  });
  after_call(calls, "test", [&](Words& words) {
    if (at<int>(words[2]) != 0 && requests.erase(words[1]) != 0) --gets;
  });
  calls["iput"] = [good = calls["iput"]](Words& words) {
    if (gets > 0 && words[kPutSize] >= 100 && words[kPutSize] <= 300) --words[kPutSize];
    return good(words);
  };
}

// deregMrSym is a collective, like regMrSym.
MUTANT_OF(one_sided_dereg_waits, kRma,
          breaks("GI-30").also("GI-*").because("rules deregister memory on one rank after the other")) {
  calls["deregMrSym"] = [good = calls["deregMrSym"], reg = calls["regMrSym"]](Words& words) {
    static std::uint64_t memory = 0;
    std::uint64_t handle = 0;
    Words barrier = {words[0], reinterpret_cast<std::uint64_t>(&memory), sizeof memory, abi::kPointerHost,
                     0,        reinterpret_cast<std::uint64_t>(&handle)};
    const Result result = reg(barrier);
    return result == Result::kSuccess ? good(words) : result;
  };
}

// The devices have other names than the net's devices.
MUTANT_OF(one_sided_own_device_name, kRma, breaks("GI-35")) {
  after_call(calls, "getProperties", [](Words& words) { at<abi::newest::Properties>(words[1]).name = "rma0"; });
}

// getRmaProperties is NULL.
MUTANT_OF(one_sided_without_properties, kRma, breaks("GI-36").also("GI-24")) { calls.erase("getRmaProperties"); }

}  // namespace plugfest::mutants
