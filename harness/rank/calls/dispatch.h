// From a request's bytes to its answer's.
#pragma once

#include <functional>

#include "harness/rank/protocol/channel.h"
#include "harness/rank/protocol/protocol.h"
#include "harness/rank/protocol/wire.h"

namespace plugfest::rank {

/// Lets a program that runs for long tell the controller that it moves on.
using Progress = std::function<void()>;

/// Executes a request on the calling thread. Errors: WireError, std::system_error and the like for the harness's part;
/// plugin::LoadError.
std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body, const Progress& progress);

// The operations, by file. Each answer is what protocol.h gives for the operation.

// memory_calls.cc
Mapping map(const Map& request);
void unmap(const Range& request);
void map_again(const Range& request);
void free_mapping(const Range& pages);
void protect(const Protect& request);

// process_calls.cc
ProcessAnswer process_facts();
void set_environment(const Environment& request);
/// A timer that sends SIGALRM to the calling thread; 0 ends it.
void interrupt_every(std::uint64_t microseconds);

// plugin_calls.cc
PointerAnswer init(const Init& request);
CallAnswer finalize(const Number& request);
IntAnswer devices(const IntAnswer& request);
PropertiesAnswer properties(const Properties& request);
CallAnswer set_net_attributes(const SetNetAttributes& request);
ListenAnswer listen(const Listen& request);
PointerAnswer reg_mr(const RegMr& request);
CallAnswer dereg_mr(const DeregMr& request);
CallAnswer close(const Close& request);

// attempt.cc
PointerAnswer connect(const Connect& request);
PointerAnswer accept(const Accept& request);
void end_attempt(const Number& request);

// transfer_calls.cc
PointerAnswer isend(const Post& request);
PointerAnswer irecv(const Post& request);
PointerAnswer iflush(const Post& request);
TestAnswer test(const Test& request);
TestAnswer wait(const Test& request, const Progress& progress);
CallAnswer consumed(const Consumed& request);

// program_stream.cc, program_connect.cc
StreamAnswer stream(const Stream& request, const Progress& progress);
ConnectManyAnswer connect_many(const ConnectMany& request, const Progress& progress);

}  // namespace plugfest::rank
