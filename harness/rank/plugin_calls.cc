// Makes plugin calls from the description of their parameters (plugin::SlotLayout).
#include "harness/rank/plugin_calls.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "harness/rank/attempt.h"
#include "harness/rank/consumption.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

using plugin::Shape;
using plugin::Slot;
using plugin::SlotLayout;

constexpr std::size_t kMaxTextBytes = 4095;

// An Argument whose content belongs to the caller.
struct Given {
  template <typename Number>
  requires std::is_integral_v<Number> Given(Number value) : number(static_cast<std::uint64_t>(value)) {}
  template <typename Item>
  Given(const std::vector<Item>& items) : bytes(std::as_bytes(std::span(items))) {}
  Given(const Argument& argument) : number(argument.number), bytes(argument.bytes) {}

  std::uint64_t number = 0;
  std::span<const std::byte> bytes = {};
};

template <std::size_t... kIndex>
abi::Result call_with(plugin::Library::AnyFunction function, const Words& words, std::index_sequence<kIndex...>) {
  return reinterpret_cast<abi::Result (*)(std::tuple_element_t<kIndex, Words>...)>(function)(words[kIndex]...);
}

// The function for each number of parameters.
using Caller = abi::Result (*)(plugin::Library::AnyFunction, const Words&);
template <std::size_t... kCounts>
constexpr std::array<Caller, sizeof...(kCounts)> callers(std::index_sequence<kCounts...>) {
  return {[](plugin::Library::AnyFunction function, const Words& words) {
    return call_with(function, words, std::make_index_sequence<kCounts>());
  }...};
}
constexpr auto kCallers = callers(std::make_index_sequence<kMaxParameters + 1>());

template <typename Parameter>
Parameter from_word(std::uint64_t word) {
  if constexpr (std::is_pointer_v<Parameter>)
    return reinterpret_cast<Parameter>(word);
  else
    return static_cast<Parameter>(word);
}

template <typename... Parameters, std::size_t... kIndex>
abi::Result call_net(plugin::Net& net, abi::Result (plugin::Net::*method)(Parameters...), const Words& words,
                     std::index_sequence<kIndex...>) {
  return (net.*method)(from_word<Parameters>(words[kIndex])...);
}
template <typename... Parameters>
constexpr std::index_sequence_for<Parameters...> indices(abi::Result (plugin::Net::*)(Parameters...)) {
  return {};
}
template <auto kMethod>
abi::Result call_net(plugin::Net& net, const Words& words) {
  return call_net(net, kMethod, words, indices(kMethod));
}

// The net's functions by Slot.
#define CALL(method) call_net<&plugin::Net::method>
constexpr abi::Result (*kNetCallers[])(plugin::Net&, const Words&) = {
    CALL(init),         CALL(devices),       CALL(get_raw_properties),
    CALL(listen),       CALL(connect),       CALL(accept),
    CALL(reg_mr),       CALL(reg_mr_dmabuf), CALL(dereg_mr),
    CALL(isend),        CALL(irecv),         CALL(iflush),
    CALL(test),         CALL(close_send),    CALL(close_recv),
    CALL(close_listen), CALL(get_device_mr), CALL(irecv_consumed),
    CALL(make_vdevice), CALL(finalize),      CALL(set_net_attr)};
#undef CALL

bool is_net() { return library().layout().kind == plugin::InterfaceKind::kNet; }

// The net has the parameters of the newest version, because plugin::Net has them.
const plugin::ApiLayout& described() {
  static const plugin::ApiLayout& newest = plugin::api_layout(plugin::kNewestApi);
  return is_net() ? newest : library().layout();
}

// False when the version lacks the function, or the plugin has not set one that may be null.
bool exists(const SlotLayout& slot) {
  return !slot.may_be_null || (is_net() ? subject().has(slot.slot) : library().function(slot.name) != nullptr);
}

// Places one argument and returns its word.
std::uint64_t place(ArgumentArea& area, const plugin::Parameter& parameter, const Given& given) {
  switch (parameter.shape) {
    case Shape::kNumber:
    case Shape::kAttempt:
      return given.number;
    case Shape::kLogger:
      return reinterpret_cast<std::uint64_t>(logger());
    case Shape::kProfiler:
      return given.number == 0 ? 0 : reinterpret_cast<std::uint64_t>(profiler_callback(given.number));
    case Shape::kText:
    case Shape::kBytes:
      return given.bytes.empty() ? 0 : number(area.input(parameter.name, given.bytes, 1));
    case Shape::kInts:
      return number(area.input(parameter.name, given.bytes, sizeof(int)));
    case Shape::kWords:
      if (given.number == static_cast<std::uint64_t>(kNoArray)) return 0;
      return number(area.input(parameter.name, given.bytes, sizeof(std::uint64_t)));
    case Shape::kHandles: {
      std::vector<const void*> handles;
      for (std::size_t at = 0; at + abi::kHandleBytes <= given.bytes.size(); at += abi::kHandleBytes)
        handles.push_back(area.input(parameter.name, given.bytes.subspan(at, abi::kHandleBytes), 1));
      return number(area.input(parameter.name, std::as_bytes(std::span(handles)), sizeof(void*)));
    }
    case Shape::kHandle: {
      std::array<std::byte, abi::kHandleBytes> handle{};
      handle.fill(std::byte(given.number));
      return number(area.handle(handle));
    }
    case Shape::kOutPointer:
      if (given.number == static_cast<std::uint64_t>(kNoArray)) return 0;
      return number(area.output(parameter.name, pointer(given.number)));
    case Shape::kOutBool:
      return number(area.output(parameter.name, static_cast<std::uint8_t>(given.number)));
    case Shape::kOutInt:
      if (given.number == static_cast<std::uint64_t>(kNoArray)) return 0;
      if (parameter.lasting) return number(area.lasting_output(parameter.name, static_cast<int>(given.number)));
      return number(area.output(parameter.name, static_cast<int>(given.number)));
    case Shape::kOutSizes: {
      if (given.number == static_cast<std::uint64_t>(kNoArray)) return 0;
      std::array<int, kSizes> filled;
      filled.fill(static_cast<int>(given.number));
      return number(area.output(parameter.name, std::span<const int>(filled)));
    }
    case Shape::kProperties: {
      const std::vector<std::byte> filled(library().layout().properties_size, std::byte(given.number));
      return number(area.output(parameter.name, std::span<const std::byte>(filled)));
    }
    case Shape::kInOut:
      return given.bytes.empty() ? 0 : number(area.output(parameter.name, given.bytes));
  }
  return 0;
}

// Size of an output in bytes. `given`: its content before the call.
std::size_t size_of(Shape shape, const Given& given) {
  switch (shape) {
    case Shape::kInOut:
      return given.bytes.size();
    case Shape::kOutPointer:
      return sizeof(void*);
    case Shape::kOutInt:
      return sizeof(int);
    case Shape::kOutBool:
      return sizeof(bool);
    case Shape::kOutSizes:
      return kSizes * sizeof(int);
    case Shape::kHandle:
      return abi::kHandleBytes;
    case Shape::kProperties:
      return library().layout().properties_size;
    default:
      return 0;
  }
}

// The text at an address that the plugin has stored. "" if the address is invalid.
std::string text_at(std::uint64_t address) {
  std::string text;
  while (text.size() < kMaxTextBytes) {
    // Reads in pieces that cross no page: unmapped memory may follow the text.
    char bytes[512];
    const std::size_t size = std::min(sizeof bytes, 4096 - (address + text.size()) % 4096);
    iovec local{bytes, size};
    iovec remote{pointer(address + text.size()), size};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got <= 0) break;
    const auto length = static_cast<std::size_t>(std::find(bytes, bytes + got, '\0') - bytes);
    text.append(bytes, length);
    if (length < static_cast<std::size_t>(got)) break;
  }
  return text;
}

// The texts to which properties point, in the order of the members.
std::vector<std::string> texts_of(std::span<const std::byte> properties) {
  std::vector<std::string> texts;
  for (const plugin::FieldLayout& field : library().layout().properties) {
    if (field.kind != plugin::FieldKind::kString) continue;
    std::uint64_t address = 0;
    std::memcpy(&address, properties.data() + field.offset, sizeof address);
    texts.push_back(text_at(address));
  }
  return texts;
}

// The value of an output after the call. Its memory is overwritten, so that a plugin that keeps the pointer reads
// wrong values (CN-04), unless NCCL keeps that memory.
Argument take(const plugin::Parameter& parameter, const Given& given, std::uint64_t word) {
  Argument taken;
  const Shape shape = parameter.shape;
  const std::size_t size = word == 0 ? 0 : size_of(shape, given);
  if (size == 0) return taken;
  void* const place = pointer(word);
  if (size <= sizeof taken.number && shape != Shape::kInOut)
    std::memcpy(&taken.number, place, size);
  else
    taken.bytes.assign(static_cast<std::byte*>(place), static_cast<std::byte*>(place) + size);
  if (!parameter.lasting) std::memset(place, kOverwritten, size);
  return taken;
}

// Makes one call, without those of irecvConsumed that NCCL makes before. See make_call().
Words make_only_call(const SlotLayout& slot, std::span<const Given> given, CallAnswer& answer, const char** text) {
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  Words words{};
  for (std::size_t i = 0; i < given.size(); ++i) words[i] = place(area, slot.parameters[i], given[i]);
  const bool net = is_net();
  const auto function = net ? nullptr : library().function(slot.name);
  enter_plugin(slot.name.data(), answer, [&] {
    if (slot.returns_text) {
      *text = reinterpret_cast<const char* (*)(std::uint64_t)>(function)(words[0]);
      return abi::Result::kSuccess;
    }
    return net ? kNetCallers[static_cast<std::size_t>(slot.slot)](subject(), words)
               : call_words(function, words, given.size());
  });
  area.finish(answer);
  return words;
}

// Never destroyed: threads may run while the process exits.
UnconsumedReceives& unconsumed() {
  static UnconsumedReceives& receives = *new UnconsumedReceives;
  return receives;
}

// The calls of irecvConsumed that are due before a call.
std::vector<UnconsumedReceives::Call> due_before(Slot slot, std::span<const Given> given) {
  if (slot == Slot::kIrecv) return unconsumed().before_receive(given[0].number, static_cast<int>(given[1].number));
  if (slot == Slot::kIrecvConsumed) return unconsumed().before_consumed(given[0].number, given[2].number);
  return {};
}

// Makes these calls. Returns the problem; "" if there is none.
std::string consume(const std::vector<UnconsumedReceives::Call>& due) {
  for (const UnconsumedReceives::Call& call : due) {
    CallAnswer answer;
    const Given given[] = {call.comm, call.count, call.request};
    make_only_call(described().slots[static_cast<std::size_t>(Slot::kIrecvConsumed)], given, answer, nullptr);
    if (answer.code != 0 || !answer.damage.empty()) {
      return fmt::format("came after irecvConsumed of a completed receive (count {}), which {}", call.count,
                         answer.code != 0 ? "returned " + wire::code_text(answer.code) : answer.damage);
    }
  }
  return "";
}

// Records a receive and what became of it.
void note_receive(Slot slot, const Words& words, const CallAnswer& answer) {
  const auto stored = [](std::uint64_t word, auto value) {
    if (word != 0) std::memcpy(&value, pointer(word), sizeof value);
    return value;
  };
  if (slot == Slot::kCloseRecv) unconsumed().closed(words[0]);
  if (answer.code != 0) return;
  if (slot == Slot::kTest && stored(words[1], 0) == 1) unconsumed().completed(words[0]);
  if (slot != Slot::kIrecv) return;
  if (const auto request = stored(words[7], std::uint64_t{0}); request != 0)
    unconsumed().posted(words[0], static_cast<int>(words[1]), request);
}

// Makes one call. The memory of outputs is valid until the thread's next call.
// `text`: what a function returns that returns a text.
Words make_call(const SlotLayout& slot, std::span<const Given> given, CallAnswer& answer, const char** text = nullptr) {
  const bool consumes = is_net() && subject().has(Slot::kIrecvConsumed);
  const std::string problem = consumes ? consume(due_before(slot.slot, given)) : "";
  const Words words = make_only_call(slot, given, answer, text);
  if (consumes) note_receive(slot.slot, words, answer);
  if (!problem.empty()) answer.damage = problem;
  return words;
}

// Calls a function of the net.
Words make_call(Slot slot, std::initializer_list<Given> given, CallAnswer& answer) {
  return make_call(described().slots[static_cast<std::size_t>(slot)], {given.begin(), given.size()}, answer);
}

CallAnswer plain_call(Slot slot, std::initializer_list<Given> given) {
  CallAnswer answer;
  if (exists(described().slots[static_cast<std::size_t>(slot)])) make_call(slot, given, answer);
  return answer;
}

// Makes a call whose last parameter receives a pointer.
PointerAnswer pointer_call(Slot slot, std::initializer_list<Given> given) {
  PointerAnswer answer;
  const Words words = make_call(slot, given, answer);
  overwrite_dead_stack();
  std::memcpy(&answer.value, pointer(words[given.size() - 1]), sizeof answer.value);
  answer.untouched = answer.value == (given.end() - 1)->number;
  return answer;
}

// Records facts that later accepts of this plugin need, and undoes what init did to this process's handlers.
void note(Slot slot, const std::vector<Argument>& arguments, const CalledAnswer& answer) {
  if (slot == Slot::kInit) keep_reporting_crashes();
  if (answer.code != 0) return;
  if (slot == Slot::kGetProperties) {
    const int device = static_cast<int>(arguments[0].number);
    note_device_type(device, subject().complete_properties(device, answer.outputs[1].bytes.data()));
  }
  if (slot == Slot::kListen)
    note_listener(pointer(answer.outputs.back().number), static_cast<int>(arguments[1].number));
}

}  // namespace

abi::Result call_words(plugin::Library::AnyFunction function, const Words& words, std::size_t count) {
  return kCallers.at(count)(function, words);
}

namespace calls {

CallAnswer init() {
  return plain_call(Slot::kInit, {0, 1, std::vector<std::int32_t>{abi::kTrafficClassUndefined}, 0, 1});
}
CallAnswer devices() { return plain_call(Slot::kDevices, {0}); }

PointerAnswer reg_mr(std::uint64_t comm, std::uint64_t address, std::uint64_t size, std::uint64_t mhandle_slot) {
  const std::uint64_t page = page_size(), start = address / page * page;
  const std::uint64_t pages = (address + size - start + page - 1) / page * page;
  return pointer_call(Slot::kRegMr, {comm, start, pages, int{abi::kPointerHost}, mhandle_slot});
}
CallAnswer dereg_mr(std::uint64_t comm, std::uint64_t mhandle) { return plain_call(Slot::kDeregMr, {comm, mhandle}); }

PointerAnswer isend(std::uint64_t comm, const Piece& piece, std::uint64_t request_slot) {
  return pointer_call(Slot::kIsend,
                      {comm, piece.address, piece.size, piece.tag, piece.mhandle, piece.phandle, request_slot});
}

PointerAnswer irecv(std::uint64_t comm, const std::vector<Piece>& pieces, std::uint64_t request_slot) {
  std::vector<std::uint64_t> data, sizes, mhandles, phandles;
  std::vector<std::int32_t> tags;
  for (const Piece& piece : pieces) {
    data.push_back(piece.address);
    sizes.push_back(piece.size);
    tags.push_back(piece.tag);
    mhandles.push_back(piece.mhandle);
    phandles.push_back(piece.phandle);
  }
  return pointer_call(Slot::kIrecv, {comm, pieces.size(), data, sizes, tags, mhandles, phandles, request_slot});
}

TestAnswer test(std::uint64_t request, std::int32_t done_slot, std::int32_t size_fill) {
  TestAnswer answer;
  const Words words = make_call(Slot::kTest, {request, done_slot, static_cast<std::uint32_t>(size_fill)}, answer);
  std::memcpy(&answer.done, pointer(words[1]), sizeof answer.done);
  std::memcpy(answer.sizes.data(), pointer(words[2]), sizeof answer.sizes);
  return answer;
}

CallAnswer irecv_consumed(std::uint64_t comm, std::int32_t n, std::uint64_t request) {
  return plain_call(Slot::kIrecvConsumed, {comm, n, request});
}

std::string leave_consumption_to_caller(std::uint64_t comm) {
  return subject().has(Slot::kIrecvConsumed) ? consume(unconsumed().leave_to_caller(comm)) : "";
}

CallAnswer set_net_attributes(std::uint64_t context, const std::vector<std::int32_t>& attributes) {
  return plain_call(Slot::kSetNetAttr, {context, attributes});
}

CallAnswer close(CommKind kind, std::uint64_t comm) {
  constexpr Slot kSlots[] = {Slot::kCloseSend, Slot::kCloseRecv, Slot::kCloseListen};
  return plain_call(kSlots[static_cast<std::size_t>(kind)], {comm});
}

}  // namespace calls

CalledAnswer execute(const Call& request) {
  CalledAnswer answer;
  const SlotLayout* const slot = described().find(request.function);
  if (slot == nullptr || slot->parameters.size() != request.arguments.size())
    throw WireError("a call that the interface does not have");
  if (!exists(*slot)) return answer;
  if (request.attempt != 0) return execute_attempt(request);
  const std::vector<Given> given(request.arguments.begin(), request.arguments.end());
  std::optional<StallTimer> stall;
  if (request.wait_ns != 0) stall.emplace(request.wait_ns);
  Words words{};
  const char* text = nullptr;
  std::int32_t done = 1;
  std::uint32_t repeats = 0;
  do {
    static_cast<CallAnswer&>(answer) = {};
    words = make_call(*slot, given, answer, &text);
    if (stall || request.repeats != 0) std::memcpy(&done, pointer(words[1]), sizeof done);
  } while (answer.code == 0 && done == 0 && answer.damage.empty() &&
           (stall ? !stall->expired() : repeats++ < request.repeats));
  overwrite_dead_stack();
  for (std::size_t i = 0; i < given.size(); ++i) {
    answer.outputs.push_back(take(slot->parameters[i], given[i], words[i]));
    if (slot->parameters[i].shape == Shape::kProperties && !answer.outputs[i].bytes.empty())
      answer.texts = texts_of(answer.outputs[i].bytes);
  }
  if (slot->returns_text) answer.outputs.push_back({number(text), {}});
  if (is_net()) note(slot->slot, request.arguments, answer);
  return answer;
}

Text execute(const TextAt& request) { return {text_at(request.address)}; }

}  // namespace plugfest::rank
