// DP rules: values of single properties.
#include <fmt/format.h>

#include <cmath>

#include "conformance/net/plugin/each_device.h"
#include "conformance/net/plugin/struct_version.h"
#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::Endpoint;
using control::PropertiesOutcome;

namespace {

constexpr int kHost = 0, kUnpack = 1, kUnpackVersion = 7;

}  // namespace

RULE(DP_12, Should, ApiRange::all(),  //
     .title = "speed is in Mbit/s", .text = "speed is greater than 0, and 1000 to 3200000 for today's networks.",
     .source = "graph/topo.cc: takes 10000 if speed is 0 or less",
     .why = "NCCL's search for rings and trees compares the speeds of NICs, PCI and NVLink.",
     .check = "Reads speed of each device. Says so when the bytes are those of another version's structure.") {
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
     .why = "The conversion of other values is undefined, and the choice of algorithms depends on the result.",
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
     .title = "maxComms", .text = "maxComms is the number of comms that a device supports. NCCL only records it.",
     .source = "graph/topo.cc: maxconn",
     .why = "The number tells a reader of the report how many connections a device admits to.",
     .check = "Reads maxComms of each device.") {
  for_each_device(near_rank(), [&](int index, const PropertiesOutcome& properties, const std::string&) {
    observe(fmt::format("device {}: maxComms {}", index, properties.integer("maxComms")));
  });
}

RULE(DP_16, Must, ApiRange::from(7),  //
     .title = "netDeviceType is HOST or UNPACK",
     .text = "netDeviceType is 0 (HOST), or 1 (UNPACK) with netDeviceVersion 7.",
     .source = "plugin/net.cc: ncclNetCheckDeviceVersion", .why = "NCCL rejects the plugin.",
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
         "and "
         "that the end of one registration leaves the other valid.",
     .source = "ext-net README: getProperties; core 2.20 to 2.23 registers user buffers on a loopback comm",
     .why = "NCCL 2.20 to 2.23 register parts of a user buffer again for each operation.",
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
  const Connection first = control::connect(sender, receiver), second = control::connect(sender, receiver);
  constexpr std::size_t kSize = 100000;
  const Registered from = allocate(sender.rank, first.send, kSize);
  const Registered to = allocate(receiver.rank, first.receive, kSize);
  second.send.reg(from.slice(4096, 8192)).dereg();
  second.receive.reg(to.slice(4096, 8192)).dereg();
  const std::uint64_t seed = random()();
  sender.rank.fill(from.memory, seed);
  control::Receive receive(first.receive, to.buffer());
  control::Send send(first.send, from.buffer());
  control::finish({&receive, &send});
  require_content(receiver.rank, to.memory, seed, "a message after the end of another registration");
}

RULE(DP_21, Should, ApiRange::from(9),  //
     .title = "forceFlush is 0 or 1", .text = "forceFlush is 0 or 1.", .source = "graph/paths.cc: ncclTopoNeedFlush",
     .why = "Any other value makes NCCL flush after each receive into GPU memory.", .check = "Reads forceFlush.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t value = properties.integer("forceFlush");
    expect(value == 0 || value == 1, [&] {
      return fmt::format("{}: forceFlush is {}, expected 0 or 1{}", call, value, version_hint(properties, api()));
    });
  });
}

RULE(DP_22, Should, ApiRange::from(11),  //
     .title = "maxMultiRequestSize is at least 1", .text = "maxMultiRequestSize is at least 1.",
     .source = "nccl_net.h v11; no release reads it from a net table", .why = "A later release may divide by it.",
     .check = "Reads maxMultiRequestSize.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t value = properties.integer("maxMultiRequestSize");
    expect(value >= 1, [&] { return fmt::format("{}: maxMultiRequestSize is {}, expected 1 or more", call, value); });
  });
}

RULE(DP_23, Should, ApiRange::from(12),  //
     .title = "railId and planeId are undefined or valid",
     .text = "railId and planeId are -1 (undefined), or 0 and more.", .source = "nccl_net.h v12",
     .why = "NCCL groups NICs by these numbers.", .check = "Reads both members.") {
  for_each_device(near_rank(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    for (const char* field : {"railId", "planeId"}) {
      const std::int64_t value = properties.integer(field);
      expect(value >= -1, [&] { return fmt::format("{}: {} is {}, expected -1 or more", call, field, value); });
    }
  });
}

}  // namespace plugfest::conformance
