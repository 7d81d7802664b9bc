// Calls that are made from the description of their parameters (plugin::SlotLayout), of any interface but the net.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "harness/rank/memory.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

using plugin::Shape;

constexpr std::size_t kMostParameters = 11;
constexpr std::size_t kTextLimit = 4095;

using Words = std::array<std::uint64_t, kMostParameters>;

template <std::size_t... kIndex>
abi::Result call_with(plugin::Library::AnyFunction function, const Words& words, std::index_sequence<kIndex...>) {
  // All parameters are integers and pointers, each of which LP64 ABIs pass as one word, with unused high bits.
  return reinterpret_cast<abi::Result (*)(std::tuple_element_t<kIndex, Words>...)>(function)(words[kIndex]...);
}

/// By the number of parameters.
using Caller = abi::Result (*)(plugin::Library::AnyFunction, const Words&);
template <std::size_t... kCounts>
constexpr std::array<Caller, sizeof...(kCounts)> callers(std::index_sequence<kCounts...>) {
  return {[](plugin::Library::AnyFunction function, const Words& words) {
    return call_with(function, words, std::make_index_sequence<kCounts>());
  }...};
}
constexpr auto kCallers = callers(std::make_index_sequence<kMostParameters + 1>());

/// Places one argument and returns its word.
std::uint64_t place(ArgumentArea& area, const plugin::Parameter& parameter, const Argument& argument) {
  switch (parameter.shape) {
    case Shape::kNumber:
      return argument.number;
    case Shape::kLogger:
      return reinterpret_cast<std::uint64_t>(logger());
    case Shape::kText:
    case Shape::kBytes:
      if (argument.bytes.empty()) return 0;
      return number(area.input(parameter.name, std::span<const std::byte>(argument.bytes)));
    case Shape::kHandles: {
      std::vector<void*> handles;
      for (std::size_t at = 0; at + abi::kHandleBytes <= argument.bytes.size(); at += abi::kHandleBytes) {
        handles.push_back(
            area.input(parameter.name, std::span<const std::byte>(&argument.bytes[at], abi::kHandleBytes)));
      }
      return number(area.input(parameter.name, std::span<void* const>(handles)));
    }
    case Shape::kHandle: {
      std::array<std::byte, abi::kHandleBytes> handle{};
      handle.fill(std::byte(argument.number));
      return number(area.handle(handle));
    }
    case Shape::kOutPointer:
      return number(area.output(parameter.name, pointer(argument.number)));
    case Shape::kOutInt:
      return number(area.output(parameter.name, static_cast<int>(argument.number)));
    case Shape::kProperties: {
      const std::vector<std::byte> filled(library().layout().properties_size, std::byte(argument.number));
      return number(area.output(parameter.name, std::span<const std::byte>(filled)));
    }
  }
  return 0;
}

/// What an output holds after the call. Its place is overwritten, so that a plugin that keeps the pointer reads wrong
/// values.
Argument take(Shape shape, std::uint64_t word) {
  Argument taken;
  void* const place = pointer(word);
  std::size_t size = 0;
  switch (shape) {
    case Shape::kOutPointer:
      size = sizeof(void*);
      break;
    case Shape::kOutInt:
      size = sizeof(int);
      break;
    case Shape::kHandle:
      size = abi::kHandleBytes;
      break;
    case Shape::kProperties:
      size = library().layout().properties_size;
      break;
    default:
      return taken;
  }
  if (size <= sizeof taken.number) {
    std::memcpy(&taken.number, place, size);
  } else {
    taken.bytes.assign(static_cast<std::byte*>(place), static_cast<std::byte*>(place) + size);
  }
  std::memset(place, kOverwritten, size);
  return taken;
}

}  // namespace

CalledAnswer execute(const Call& request) {
  CalledAnswer answer;
  const plugin::SlotLayout* const slot = library().layout().find(request.function);
  const auto function = library().function(request.function);
  if (slot == nullptr || slot->parameters.size() != request.arguments.size()) {
    throw WireError("a call that the interface does not have");
  }
  if (slot->may_be_null && function == nullptr) return answer;
  ArgumentArea& area = this_thread().arguments;
  area.begin();
  Words words{};
  for (std::size_t i = 0; i < request.arguments.size(); ++i) {
    words[i] = place(area, slot->parameters[i], request.arguments[i]);
  }
  enter_plugin(slot->name.data(), answer, [&] { return kCallers[request.arguments.size()](function, words); });
  area.finish(answer);
  overwrite_dead_stack();
  for (std::size_t i = 0; i < request.arguments.size(); ++i) {
    answer.outputs.push_back(take(slot->parameters[i].shape, words[i]));
  }
  return answer;
}

Text execute(const TextAt& request) {
  std::string text;
  while (text.size() < kTextLimit) {
    // In pieces that cross no page: memory that is not mapped may follow the text.
    char bytes[512];
    const std::size_t size = std::min(sizeof bytes, 4096 - (request.address + text.size()) % 4096);
    iovec local{bytes, size};
    iovec remote{pointer(request.address + text.size()), size};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got <= 0) break;
    const auto length = static_cast<std::size_t>(std::find(bytes, bytes + got, '\0') - bytes);
    text.append(bytes, length);
    if (length < static_cast<std::size_t>(got)) break;
  }
  return {text};
}

}  // namespace plugfest::rank
