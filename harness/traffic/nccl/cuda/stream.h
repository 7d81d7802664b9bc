// Streams: queues of work, each with a thread that does it in order.
#pragma once

#include <chrono>
#include <functional>

namespace plugfest::nccl::cuda {

/// Appends `work` to a stream; null is the legacy default stream. Returns a cudaError_t.
int enqueue(void* stream, std::function<void()> work);

/// Waits until a stream has done what it had to do at the call, at most for `limit`; false if it has not.
bool wait_for_stream(void* stream, std::chrono::milliseconds limit);

/// Waits until all streams are idle.
void synchronize_all();

/// Waits for the streams that the default stream waits for: itself, and those created without cudaStreamNonBlocking.
void synchronize_blocking();

}  // namespace plugfest::nccl::cuda
