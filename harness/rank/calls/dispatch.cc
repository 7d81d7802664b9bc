#include "harness/rank/calls/dispatch.h"

#include <stdexcept>

#include "harness/rank/subject.h"
#include "harness/rank/workloads/pattern.h"

namespace plugfest::rank {

namespace {

void* memory(std::uint64_t address) { return reinterpret_cast<void*>(address); }

std::uint64_t has_function(const Text& name) {
  for (const plugin::SlotLayout& slot : subject().layout().slots) {
    if (slot.name == name.text) return subject().has(slot.slot) ? 1 : 0;
  }
  return 0;
}

Bytes read(const Range& range) {
  const auto* bytes = static_cast<const std::byte*>(memory(range.address));
  if (range.size > kLargestBody / 2) throw std::length_error("that much memory does not fit into one answer");
  return {{bytes, bytes + range.size}};
}

}  // namespace

std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body, const Progress& progress) {
  switch (operation) {
    case Operation::kProcessFacts:
      return encode(process_facts());
    case Operation::kEnvironment:
      set_environment(decode<Environment>(body));
      return {};
    case Operation::kInterrupt:
      interrupt_every(decode<Number>(body).value);
      return {};
    case Operation::kMap:
      return encode(map(decode<Map>(body)));
    case Operation::kUnmap:
      unmap(decode<Range>(body));
      return {};
    case Operation::kMapAgain:
      map_again(decode<Range>(body));
      return {};
    case Operation::kFree:
      free_mapping(decode<Range>(body));
      return {};
    case Operation::kProtect:
      protect(decode<Protect>(body));
      return {};
    case Operation::kFill: {
      const auto request = decode<Pattern>(body);
      fill_pattern(memory(request.address), request.size, request.seed);
      return {};
    }
    case Operation::kCheck: {
      const auto request = decode<Pattern>(body);
      return encode(compare_pattern(memory(request.address), request.size, request.seed));
    }
    case Operation::kSet: {
      const auto request = decode<ByteValue>(body);
      std::memset(memory(request.address), request.value, request.size);
      return {};
    }
    case Operation::kCheckSet: {
      const auto request = decode<ByteValue>(body);
      return encode(compare_byte(memory(request.address), request.size, request.value));
    }
    case Operation::kRead:
      return encode(read(decode<Range>(body)));
    case Operation::kWrite: {
      const auto request = decode<Write>(body);
      std::memcpy(memory(request.address), request.bytes.data(), request.bytes.size());
      return {};
    }
    case Operation::kEndAttempt:
      end_attempt(decode<Number>(body));
      return {};
    case Operation::kLoad:
      return encode(load_subject(decode<Load>(body)));
    case Operation::kUnload:
      unload_subject();
      return {};
    case Operation::kHasFunction:
      return encode(Number{has_function(decode<Text>(body))});
    case Operation::kInit:
      return encode(init(decode<Init>(body)));
    case Operation::kFinalize:
      return encode(finalize(decode<Number>(body)));
    case Operation::kDevices:
      return encode(devices(decode<IntAnswer>(body)));
    case Operation::kProperties:
      return encode(properties(decode<Properties>(body)));
    case Operation::kSetNetAttributes:
      return encode(set_net_attributes(decode<SetNetAttributes>(body)));
    case Operation::kListen:
      return encode(listen(decode<Listen>(body)));
    case Operation::kConnect:
      return encode(connect(decode<Connect>(body)));
    case Operation::kAccept:
      return encode(accept(decode<Accept>(body)));
    case Operation::kRegMr:
      return encode(reg_mr(decode<RegMr>(body)));
    case Operation::kDeregMr:
      return encode(dereg_mr(decode<DeregMr>(body)));
    case Operation::kIsend:
      return encode(isend(decode<Post>(body)));
    case Operation::kIrecv:
      return encode(irecv(decode<Post>(body)));
    case Operation::kIflush:
      return encode(iflush(decode<Post>(body)));
    case Operation::kTest:
      return encode(test(decode<Test>(body)));
    case Operation::kWait:
      return encode(wait(decode<Test>(body), progress));
    case Operation::kConsumed:
      return encode(consumed(decode<Consumed>(body)));
    case Operation::kClose:
      return encode(close(decode<Close>(body)));
    case Operation::kStream:
      return encode(stream(decode<Stream>(body), progress));
    case Operation::kConnectMany:
      return encode(connect_many(decode<ConnectMany>(body), progress));
  }
  throw WireError("an operation that ranks do not know");
}

}  // namespace plugfest::rank
