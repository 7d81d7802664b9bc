// DP rules: the list of devices, repeated and invalid calls, values of properties.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/library_check.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

namespace {

// Whether NCCL would see the same device: compares all members but speed, which may change with the link.
bool same_device(const Properties& left, const Properties& right) {
  return left.name == right.name && left.pci_path == right.pci_path && left.guid == right.guid &&
         left.port == right.port && left.ptr_support == right.ptr_support && left.max_comms == right.max_comms &&
         left.max_recvs == right.max_recvs && left.v_props == right.v_props &&
         left.max_p2p_bytes == right.max_p2p_bytes;
}

}  // namespace

RULE(DP_02, Must, ApiRange::all(),  //
     .title = "at most 128 devices", .text = "devices writes at most 128 (NCCL_MAX_NETDEVS).",
     .source = "transport/net.cc: netComms and commRefCount are indexed by the device without a check",
     .why = "NCCL's arrays have 128 entries. With more devices NCCL writes beyond them.", .check = "Calls devices.") {
  Rank rank = near_rank();
  const int devices = rank.devices();
  expect(devices <= 128, fmt::format("rank {}: devices wrote {}, expected at most 128", rank.name(), devices));
}

RULE(DP_03, Must, ApiRange::all(),  //
     .title = "the number of devices is stable",
     .text = "devices gives the same number on each call and thread. Only makeVDevice adds a device.",
     .source = "graph/topo.cc asks again after it has merged devices",
     .why = "If the number changes, NCCL uses an index that belongs to no device, or leaves a device unused.",
     .check = "Calls devices on four threads, before and after a listen.") {
  Endpoint endpoint = near_endpoint();
  const int expected = endpoint.rank.devices();
  for (int round = 0; round < 3; ++round) {
    for (const char* thread : {"main", "svc", "prog", "other"}) {
      const int devices = endpoint.rank.on(thread).devices();
      expect(devices == expected,
             fmt::format("rank {}: devices wrote {} on thread {} and {} before, expected the same number",
                         endpoint.rank.name(), devices, thread, expected));
    }
    endpoint.rank.listen(endpoint.device).close();
  }
}

RULE(DP_06, Must, ApiRange::all(),  //
     .title = "getProperties gives the same values each time",
     .text =
         "Repeated calls give equal properties, except for speed. [S]: a call keeps neither a descriptor nor more than "
         "512 bytes of memory.",
     .source = "transport/net.cc and graph/topo.cc call getProperties for each connection and each topology search",
     .why =
         "If the values change, two parts of NCCL see different devices under one index. If a call keeps memory, "
         "memory grows with each connection.",
     .check = "Calls getProperties 2000 times, compares the properties, and measures descriptors and memory.",
     .faults = {{"aws/aws-ofi-nccl#1181", "each getProperties allocated strings that nothing freed"}}) {
  Endpoint endpoint = near_endpoint();
  const Properties expected = endpoint.rank.properties(endpoint.device);
  constexpr int kCalls = 2000;
  const auto call = [&](std::size_t count) {
    make_calls(
        numbers_below(count), [&](std::size_t) { return endpoint.rank.start_properties(endpoint.device); },
        [&](std::size_t, const PropertiesOutcome& outcome) {
          expect(same_device(properties_of(outcome, endpoint.device.index), expected), [&] {
            return fmt::format("rank {}: getProperties({}) gave other values than before", endpoint.rank.name(),
                               endpoint.device.index);
          });
          return true;
        });
  };
  call(200);
  const ProcessFacts before = endpoint.rank.process();
  call(kCalls);
  const ProcessFacts after = endpoint.rank.process();
  should(after.file_descriptors <= before.file_descriptors,
         fmt::format("rank {}: {} file descriptors after {} calls of getProperties, expected {}", endpoint.rank.name(),
                     after.file_descriptors, kCalls, before.file_descriptors));
  const std::uint64_t limit = before.resident_bytes + 512 * kCalls;
  should(after.resident_bytes <= limit,
         fmt::format("rank {}: {} KiB of resident memory after {} calls of getProperties, expected at most {}",
                     endpoint.rank.name(), after.resident_bytes / 1024, kCalls, limit / 1024));
}

RULE(DP_07, Should, ApiRange::all(),  //
     .title = "an invalid device index gives an error",
     .text =
         "getProperties and listen with an index of -1, or of the number of devices, return an error and do not crash.",
     .source = "robustness: NCCL passes valid indexes",
     .why = "If an invalid index crashes the plugin, it ends the application instead of the communicator.",
     .check = "Calls both functions with two invalid indexes, each in a new process.") {
  for (const int invalid : {-1, near_rank().devices()}) {
    const auto require_error = [&](const Outcome& outcome) {
      expect(!outcome.ok(),
             fmt::format("{} returned Success, expected an error: there is no such device", outcome.call));
    };
    probe([&] { require_error(near_rank().try_properties(Device{invalid})); });
    probe([&] { require_error(near_rank().try_listen(Device{invalid})); });
  }
}

RULE(DP_26, Must, ApiRange::all(),  //
     .title = "getProperties works on several threads at once",
     .text = "Calls of getProperties on different threads do not disturb each other.",
     .source = "the threads of several GPUs of one process call it during init",
     .why =
         "The threads of several GPUs call getProperties at the same time. If the calls disturb each other, NCCL gets "
         "a struct with properties of two devices.",
     .check = "Calls getProperties on six threads at the same time, 50 times, and compares the properties.") {
  Rank rank = near_rank();
  std::vector<PropertiesOutcome> expected;
  for_each_device(
      rank, [&](int, const PropertiesOutcome& properties, const std::string&) { expected.push_back(properties); });
  if (expected.empty()) skip(fmt::format("rank {} has no device", rank.name()));
  for (int round = 0; round < 50; ++round) {
    std::vector<Started<PropertiesOutcome>> calls;
    const auto device_of = [&](std::size_t call) { return (call + static_cast<std::size_t>(round)) % expected.size(); };
    for (std::size_t i = 0; i < 6; ++i)
      calls.push_back(rank.on(fmt::format("t{}", i)).start_properties(Device{static_cast<int>(device_of(i))}));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const PropertiesOutcome properties = calls[i].get();
      require_success(properties);
      const PropertiesOutcome& wanted = expected[device_of(i)];
      expect(properties.name == wanted.name && properties.integer("guid") == wanted.integer("guid") &&
                 properties.integer("maxRecvs") == wanted.integer("maxRecvs"),
             [&] {
               return fmt::format("{} on one of six threads gave the properties of \"{}\", expected \"{}\"",
                                  properties.call, properties.name.value_or("NULL"), wanted.name.value_or("NULL"));
             });
    }
  }
}

namespace {

constexpr int kHost = 0, kUnpack = 1, kUnpackVersion = 7;

}  // namespace

RULE(
    DP_12, Should, ApiRange::all(),  //
    .title = "speed is in Mbit/s", .text = "speed is greater than 0, and 1000 to 3200000 for today's networks.",
    .source = "graph/topo.cc: takes 10000 if speed is 0 or less",
    .why =
        "NCCL's search for rings and trees compares the speeds of NICs, PCI and NVLink. In another unit the NIC looks "
        "too slow or too fast, and the rings are slow.",
    .check =
        "Reads speed of each device. The message says whether the bytes have the layout of another version's struct.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t speed = properties.integer("speed");
    expect(1000 <= speed && speed <= 3'200'000, [&] {
      return fmt::format("{}: speed is {}, expected 1000 to 3200000 Mbit/s{}", call, speed,
                         version_hint(properties, api()));
    });
  });
}

RULE(DP_13, Must, ApiRange::all(),  //
     .title = "latency is a number of microseconds", .text = "latency is finite, 0 or more, and less than a second.",
     .source = "graph/topo.cc: ncclTopoPopulateNics converts it to an int",
     .why =
         "NCCL converts latency to an int. For other values the result is undefined, and the choice of algorithms "
         "depends on it.",
     .check = "Reads latency of each device.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const float latency = properties.real("latency");
    expect(std::isfinite(latency) && latency >= 0 && latency <= 1e6F, [&] {
      return fmt::format("{}: latency is {}, expected 0 to 1000000 µs{}", call, latency,
                         version_hint(properties, api()));
    });
  });
}

RULE(DP_14, Info, ApiRange::all(),  //
     .title = "the number of comms that a device supports",
     .text = "maxComms is the number of comms that a device supports. NCCL records it and enforces nothing.",
     .source = "graph/topo.cc: maxconn",
     .why = "A user who sees more connections fail than the device supports finds the limit in the report.",
     .check = "Reads maxComms of each device.") {
  for_each_device(near_rank(), [&](int index, const PropertiesOutcome& properties, const std::string&) {
    observe(fmt::format("device {}: maxComms {}", index, properties.integer("maxComms")));
  });
}

RULE(DP_16, Must, ApiRange::from(7),  //
     .title = "netDeviceType is HOST or UNPACK",
     .text = "netDeviceType is 0 (HOST), or 1 (UNPACK) with netDeviceVersion 7.",
     .source = "plugin/net.cc: ncclNetCheckDeviceVersion",
     .why = "NCCL rejects a plugin with another type and uses its own transport.",
     .check = "Reads both members of each device.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t type = properties.integer("netDeviceType"), version = properties.integer("netDeviceVersion");
    expect(type == kHost || (type == kUnpack && version == kUnpackVersion), [&] {
      return fmt::format("{}: netDeviceType is {} with version {}, expected 0, or 1 with version {}{}", call, type,
                         version, kUnpackVersion, version_hint(properties, api()));
    });
  });
}

RULE(DP_20, Should, ApiRange::from(8),  //
     .title = "regIsGlobal is 0 or 1",
     .text =
         "regIsGlobal is 0 or 1. 1 means that memory which is registered on one comm can be registered on another one, "
         "and that the end of one registration leaves the other valid.",
     .source = "ext-net README: getProperties; NCCL 2.20 to 2.23 registers user buffers on a loopback comm",
     .why =
         "If regIsGlobal is 1, NCCL 2.20 to 2.23 register parts of a user buffer again for each operation. If the end "
         "of such a registration removes the first one, transfers fail.",
     .check = "Reads regIsGlobal. If it is 1, registers on two comms, ends one registration and sends with the other.",
     .blind = "The cost of the second registration.") {
  bool global = false;
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t value = properties.integer("regIsGlobal");
    if (value == 0x5a5a5a5a) return;  // not written: DP-04
    global = global || value == 1;
    expect(value == 0 || value == 1, [&] {
      return fmt::format("{}: regIsGlobal is {}, expected 0 or 1{}", call, value, version_hint(properties, api()));
    });
  });
  if (!global) return;
  Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const Connection first = connect(sender, receiver), second = connect(sender, receiver);
  constexpr std::size_t kSize = 25 * 4096;
  const Registered from = allocate(sender.rank, first.send, kSize);
  const Registered to = allocate(receiver.rank, first.receive, kSize);
  second.send.reg(from.slice(4096, 8192)).dereg();
  second.receive.reg(to.slice(4096, 8192)).dereg();
  transfer(sender.rank, first.send, from.buffer(), receiver.rank, first.receive, to.buffer(), random()(),
           "a message after the end of another registration");
}

RULE(DP_21, Should, ApiRange::from(9),  //
     .title = "forceFlush is 0 or 1",
     .text = "forceFlush is 1 if each receive into GPU memory needs a flush, and otherwise 0.",
     .source = "graph/paths.cc: ncclTopoNeedFlush",
     .why = "NCCL takes any other value for 1 and flushes after each receive into GPU memory.",
     .check = "Reads forceFlush.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t value = properties.integer("forceFlush");
    expect(value == 0 || value == 1, [&] {
      return fmt::format("{}: forceFlush is {}, expected 0 or 1{}", call, value, version_hint(properties, api()));
    });
  });
}

RULE(DP_22, Should, ApiRange::from(11),  //
     .title = "maxMultiRequestSize is at least 1",
     .text = "maxMultiRequestSize, the number of requests in a multi-request, is at least 1.",
     .source = "nccl_net.h v11; no release reads it from a net table",
     .why = "A later release of NCCL may divide by it.", .check = "Reads maxMultiRequestSize.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t value = properties.integer("maxMultiRequestSize");
    expect(value >= 1, [&] { return fmt::format("{}: maxMultiRequestSize is {}, expected 1 or more", call, value); });
  });
}

RULE(DP_23, Should, ApiRange::from(12),  //
     .title = "railId and planeId are undefined or valid",
     .text = "railId and planeId are -1 (undefined), or 0 and more.", .source = "nccl_net.h v12",
     .why = "NCCL groups NICs by these numbers. Other values put NICs into groups that do not exist.",
     .check = "Reads both members.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    for (const char* field : {"railId", "planeId"}) {
      const std::int64_t value = properties.integer(field);
      expect(value >= -1, [&] { return fmt::format("{}: {} is {}, expected -1 or more", call, field, value); });
    }
  });
}

}  // namespace plugfest::conformance
