// The plugin calls of NCCL's main and service threads, except connect and accept.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "harness/rank/attempt.h"
#include "harness/rank/memory.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

/// Stores in `answer` what `slot` holds after the call.
void take_slot(PointerAnswer& answer, void* const* slot, std::uint64_t before) {
  answer.value = number(*slot);
  answer.untouched = answer.value == before;
}

/// The text at a pointer that the plugin stored in `member`. nullopt: the pointer is NULL or still holds `fill` bytes.
std::optional<std::string> text_at(const std::byte* member, std::uint8_t fill) {
  std::uint64_t address = 0;
  std::memcpy(&address, member, sizeof address);
  std::uint64_t untouched = 0;
  std::memset(&untouched, fill, sizeof untouched);
  if (address == 0 || address == untouched) return std::nullopt;
  return execute(TextAt{address}).text;
}

PointerAnswer finish(PointerAnswer answer, void* const* request, std::uint64_t before) {
  this_thread().arguments.finish(answer);
  overwrite_dead_stack();
  answer.value = number(*request);
  answer.untouched = answer.value == before;
  return answer;
}

/// The array arguments of irecv and iflush.
struct Arrays {
  explicit Arrays(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      data.push_back(pointer(piece.address));
      sizes.push_back(piece.size);
      int_sizes.push_back(static_cast<int>(piece.size));
      tags.push_back(piece.tag);
      mhandles.push_back(pointer(piece.mhandle));
      phandles.push_back(pointer(piece.phandle));
    }
  }
  std::vector<void*> data;
  std::vector<std::size_t> sizes;
  std::vector<int> int_sizes;
  std::vector<int> tags;
  std::vector<void*> mhandles;
  std::vector<void*> phandles;
};

template <class T>
T* place(const char* name, const std::vector<T>& items) {
  return this_thread().arguments.input(name, std::span<const T>(items));
}

}  // namespace

PointerAnswer execute(const Init& request) {
  PointerAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** context = area.output("*ctx", pointer(request.context_slot));
  const abi::newest::CommConfig config{request.traffic_class};
  auto* passed = area.input("config", std::span<const abi::newest::CommConfig>(&config, 1));
  enter_plugin("init", answer, [&] {
    return subject().init(context, request.comm_id, passed, logger(), request.profiler ? profiler_callback() : nullptr);
  });
  area.finish(answer);
  overwrite_dead_stack();
  take_slot(answer, context, request.context_slot);
  return answer;
}

CallAnswer execute(const Finalize& request) {
  CallAnswer answer;
  enter_plugin("finalize", answer, [&] { return subject().finalize(pointer(request.context)); });
  return answer;
}

DevicesAnswer execute(const Devices& request) {
  DevicesAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  int* count = area.output("*ndev", static_cast<int>(request.count_slot));
  enter_plugin("devices", answer, [&] { return subject().devices(count); });
  area.finish(answer);
  answer.count = *count;
  return answer;
}

PropertiesAnswer execute(const GetProperties& request) {
  PropertiesAnswer answer;
  const plugin::ApiLayout& layout = subject().layout();
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  const std::vector<std::byte> filled(layout.properties_size, std::byte{request.fill});
  std::byte* storage = area.output("*props", std::span<const std::byte>(filled));
  enter_plugin("getProperties", answer, [&] { return subject().get_raw_properties(request.device, storage); });
  area.finish(answer);
  answer.bytes.assign(storage, storage + layout.properties_size);
  if (answer.code == 0) note_device_type(request.device, subject().complete_properties(request.device, storage));
  for (const plugin::FieldLayout& field : layout.properties) {
    answer.fields.push_back(
        {std::string(field.name), static_cast<std::uint32_t>(field.offset), static_cast<std::uint32_t>(field.size)});
    if (field.name == "name") answer.name = text_at(storage + field.offset, request.fill);
    if (field.name == "pciPath") answer.pci_path = text_at(storage + field.offset, request.fill);
  }
  return answer;
}

DevicesAnswer execute(const MakeVDevice& request) {
  DevicesAnswer answer;
  if (!subject().has(plugin::Slot::kMakeVDevice)) return answer;
  abi::newest::VDevice members{};
  members.ndevs = static_cast<int>(request.devices.size());
  std::copy_n(request.devices.begin(), std::min(request.devices.size(), std::size(members.devs)), members.devs);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  int* index = area.output("*d", static_cast<int>(request.index_slot));
  auto* passed = area.input("props", std::span<const abi::newest::VDevice>(&members, 1));
  enter_plugin("makeVDevice", answer, [&] { return subject().make_vdevice(index, passed); });
  area.finish(answer);
  answer.count = *index;
  return answer;
}

CallAnswer execute(const SetNetAttributes& request) {
  CallAnswer answer;
  if (!subject().has(plugin::Slot::kSetNetAttr)) return answer;
  abi::newest::NetAttr attributes{};
  static_assert(sizeof attributes == sizeof request.comms + sizeof request.bits);
  std::memcpy(&attributes, request.comms.data(), sizeof request.comms);
  std::memcpy(reinterpret_cast<std::byte*>(&attributes) + sizeof request.comms, request.bits.data(),
              sizeof request.bits);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  auto* passed = area.input("netAttr", std::span<const abi::newest::NetAttr>(&attributes, 1));
  enter_plugin("setNetAttr", answer, [&] { return subject().set_net_attr(pointer(request.context), passed); });
  area.finish(answer);
  return answer;
}

ListenAnswer execute(const Listen& request) {
  ListenAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  answer.handle.fill(std::byte{request.handle_fill});
  std::byte* handle = area.handle(answer.handle);
  void** comm = area.output("*listenComm", pointer(request.comm_slot));
  enter_plugin("listen", answer,
               [&] { return subject().listen(pointer(request.context), request.device, handle, comm); });
  area.finish(answer);
  take_slot(answer, comm, request.comm_slot);
  if (answer.code == 0) note_listener(*comm, request.device);
  std::memcpy(answer.handle.data(), handle, answer.handle.size());
  // CN-04: only the copy may be used from here on.
  std::memset(handle, kOverwritten, answer.handle.size());
  return answer;
}

PointerAnswer execute(const RegMr& request) {
  PointerAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** mhandle = area.output("*mhandle", pointer(request.mhandle_slot));
  enter_plugin("regMr", answer, [&] {
    return subject().reg_mr(pointer(request.comm), pointer(request.address), request.size, request.type, mhandle);
  });
  area.finish(answer);
  take_slot(answer, mhandle, request.mhandle_slot);
  return answer;
}

CallAnswer execute(const DeregMr& request) {
  CallAnswer answer;
  enter_plugin("deregMr", answer, [&] { return subject().dereg_mr(pointer(request.comm), pointer(request.mhandle)); });
  return answer;
}

CallAnswer execute(const Close& request) {
  CallAnswer answer;
  void* comm = pointer(request.comm);
  switch (request.kind) {
    case CommKind::kSend:
      enter_plugin("closeSend", answer, [&] { return subject().close_send(comm); });
      break;
    case CommKind::kRecv:
      enter_plugin("closeRecv", answer, [&] { return subject().close_recv(comm); });
      break;
    case CommKind::kListen:
      enter_plugin("closeListen", answer, [&] { return subject().close_listen(comm); });
      break;
  }
  return answer;
}

PointerAnswer execute(const Isend& request) {
  PointerAnswer answer;
  if (request.pieces.size() != 1) throw WireError("isend takes one buffer");
  const Piece& piece = request.pieces.front();
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("isend", answer, [&] {
    return subject().isend(pointer(request.comm), pointer(piece.address), piece.size, piece.tag, pointer(piece.mhandle),
                           pointer(piece.phandle), slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer execute(const Irecv& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** data = place("data", arrays.data);
  std::size_t* sizes = place("sizes", arrays.sizes);
  int* tags = place("tags", arrays.tags);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** phandles = place("phandles", arrays.phandles);
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("irecv", answer, [&] {
    return subject().irecv(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, tags, mhandles,
                           phandles, slot);
  });
  return finish(answer, slot, request.request_slot);
}

PointerAnswer execute(const Iflush& request) {
  PointerAnswer answer;
  const Arrays arrays(request.pieces);
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  void** data = place("data", arrays.data);
  int* sizes = place("sizes", arrays.int_sizes);
  void** mhandles = place("mhandles", arrays.mhandles);
  void** slot = area.output("*request", pointer(request.request_slot));
  enter_plugin("iflush", answer, [&] {
    return subject().iflush(pointer(request.comm), static_cast<int>(request.pieces.size()), data, sizes, mhandles,
                            slot);
  });
  return finish(answer, slot, request.request_slot);
}

TestAnswer execute(const Test& request) {
  TestAnswer answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  int* done = area.output("*done", static_cast<int>(request.done_slot));
  std::array<int, kSizes> filled;
  filled.fill(request.size_fill);
  int* sizes = request.sizes ? area.output("sizes", std::span<const int>(filled)) : nullptr;
  enter_plugin("test", answer, [&] { return subject().test(pointer(request.request), done, sizes); });
  area.finish(answer);
  answer.done = *done;
  if (sizes != nullptr) answer.sizes.assign(sizes, sizes + kSizes);
  return answer;
}

TestAnswer execute(const Wait& request) {
  StallTimer stall(request.timeout_ns);
  for (;;) {
    TestAnswer answer = execute(static_cast<const Test&>(request));
    if (answer.code != 0 || answer.done != 0 || !answer.damage.empty() || stall.expired()) return answer;
  }
}

CallAnswer execute(const IrecvConsumed& request) {
  CallAnswer answer;
  if (!subject().has(plugin::Slot::kIrecvConsumed)) return answer;
  enter_plugin("irecvConsumed", answer,
               [&] { return subject().irecv_consumed(pointer(request.comm), request.n, pointer(request.request)); });
  return answer;
}

}  // namespace plugfest::rank
