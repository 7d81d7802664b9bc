// Requests for one plugin call each, and the answers to them. `…_slot`: what an output holds before the call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/wire/fields.h"

namespace plugfest::rank {

/// Members of every answer to a plugin call. `start_ns` is 0 when the plugin has no such function.
struct CallAnswer {
  /// ncclResult_t.
  std::int32_t code = 0;
  /// CLOCK_MONOTONIC before and after the call.
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// Writes outside of the outputs.
  std::string damage;
  /// Changes in argument arrays that are only inputs.
  std::string changes;
  PLUGFEST_FIELDS(code, start_ns, end_ns, damage, changes)
};
struct PointerAnswer : CallAnswer {
  std::uint64_t value = 0;
  bool untouched = false;
  PLUGFEST_FIELDS_AFTER(CallAnswer, value, untouched)
};

/// Calls any function of any interface but the net, whose calls pass through plugin::Net. plugin::SlotLayout says what
/// each argument is.
struct Argument {
  /// A number: its value. An output: what it holds before the call, and after it in the answer.
  std::uint64_t number = 0;
  /// Texts, bytes, handles: the content. In the answer: that of handles and properties after the call.
  std::vector<std::byte> bytes;
  PLUGFEST_FIELDS(number, bytes)
};
struct Call {
  std::string function;
  /// One for each parameter.
  std::vector<Argument> arguments;
  PLUGFEST_FIELDS(function, arguments)
};
struct CalledAnswer : CallAnswer {
  /// One for each parameter; empty for those that the plugin does not write.
  std::vector<Argument> outputs;
  PLUGFEST_FIELDS_AFTER(CallAnswer, outputs)
};
/// The text at an address that the plugin has stored; a bad address does no harm.
struct TextAt {
  std::uint64_t address = 0;
  PLUGFEST_FIELDS(address)
};

struct Init {
  std::uint64_t context_slot = 0;
  std::int32_t traffic_class = -1;
  std::uint64_t comm_id = 0;
  bool profiler = true;
  PLUGFEST_FIELDS(context_slot, traffic_class, comm_id, profiler)
};
struct Finalize {
  std::uint64_t context = 0;
  PLUGFEST_FIELDS(context)
};
struct Devices {
  std::int32_t count_slot = 0;
  PLUGFEST_FIELDS(count_slot)
};
struct DevicesAnswer : CallAnswer {
  std::int32_t count = 0;
  PLUGFEST_FIELDS_AFTER(CallAnswer, count)
};
struct GetProperties {
  std::int32_t device = 0;
  /// Every byte of the structure before the call.
  std::uint8_t fill = 0;
  PLUGFEST_FIELDS(device, fill)
};
struct Field {
  std::string name;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  PLUGFEST_FIELDS(name, offset, size)
};
struct PropertiesAnswer : CallAnswer {
  std::vector<std::byte> bytes;
  std::vector<Field> fields;
  std::optional<std::string> name;
  std::optional<std::string> pci_path;
  PLUGFEST_FIELDS_AFTER(CallAnswer, bytes, fields, name, pci_path)
};
/// The answer's count is the index of the new device.
struct MakeVDevice {
  std::vector<std::int32_t> devices;
  std::int32_t index_slot = 0;
  PLUGFEST_FIELDS(devices, index_slot)
};
struct SetNetAttributes {
  std::uint64_t context = 0;
  std::array<std::int32_t, 8> comms{};
  std::array<std::uint32_t, 3> bits{};
  PLUGFEST_FIELDS(context, comms, bits)
};
struct Listen {
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::uint8_t handle_fill = 0;
  std::uint64_t comm_slot = 0;
  PLUGFEST_FIELDS(device, context, handle_fill, comm_slot)
};
struct ListenAnswer : PointerAnswer {
  std::array<std::byte, 128> handle{};
  PLUGFEST_FIELDS_AFTER(PointerAnswer, handle)
};
/// The first Connect or Accept with an `attempt` (a number that the controller chooses) makes the buffers of the
/// attempt. Later ones pass the same addresses, with the contents that the plugin left.
struct Connect {
  std::uint64_t attempt = 0;
  std::int32_t device = 0;
  std::uint64_t context = 0;
  std::array<std::byte, 128> handle{};
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  PLUGFEST_FIELDS(attempt, device, context, handle, comm_slot, device_handle)
};
struct Accept {
  std::uint64_t attempt = 0;
  std::uint64_t listener = 0;
  std::uint64_t comm_slot = 0;
  bool device_handle = true;
  PLUGFEST_FIELDS(attempt, listener, comm_slot, device_handle)
};
/// Frees the buffers of attempts.
struct EndAttempts {
  std::vector<std::uint64_t> attempts;
  /// Makes the buffers inaccessible instead, so that nothing else gets their addresses.
  bool forbid = false;
  PLUGFEST_FIELDS(attempts, forbid)
};
struct RegMr {
  std::uint64_t comm = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t type = 0;
  std::uint64_t mhandle_slot = 0;
  PLUGFEST_FIELDS(comm, address, size, type, mhandle_slot)
};
struct DeregMr {
  std::uint64_t comm = 0;
  std::uint64_t mhandle = 0;
  PLUGFEST_FIELDS(comm, mhandle)
};
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint64_t mhandle = 0;
  std::uint64_t phandle = 0;
  PLUGFEST_FIELDS(address, size, tag, mhandle, phandle)
};
struct Post {
  std::uint64_t comm = 0;
  std::vector<Piece> pieces;
  std::uint64_t request_slot = 0;
  PLUGFEST_FIELDS(comm, pieces, request_slot)
};
/// Takes one piece.
struct Isend : Post {};
struct Irecv : Post {};
struct Iflush : Post {};
/// Entries of the array that test gets.
inline constexpr std::size_t kSizes = 64;
struct Test {
  std::uint64_t request = 0;
  std::int32_t done_slot = 0;
  /// False: sizes is NULL.
  bool sizes = true;
  std::int32_t size_fill = 0;
  PLUGFEST_FIELDS(request, done_slot, sizes, size_fill)
};
struct TestAnswer : CallAnswer {
  std::int32_t done = 0;
  /// kSizes entries, or none when sizes was NULL.
  std::vector<std::int32_t> sizes;
  PLUGFEST_FIELDS_AFTER(CallAnswer, done, sizes)
};
/// Tests until done, for `timeout_ns` at most.
struct Wait : Test {
  std::int64_t timeout_ns = 0;
  PLUGFEST_FIELDS_AFTER(Test, timeout_ns)
};
struct IrecvConsumed {
  std::uint64_t comm = 0;
  std::int32_t n = 0;
  std::uint64_t request = 0;
  PLUGFEST_FIELDS(comm, n, request)
};

}  // namespace plugfest::rank
