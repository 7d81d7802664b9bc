// Streams: queues of work, each with a thread that does it in order.
#pragma once

#include <functional>

namespace plugfest::nccl::cuda {

/// Appends `work` to a stream; null is the legacy default stream. Returns a cudaError_t.
int enqueue(void* stream, std::function<void()> work);

/// Waits until all streams are idle.
void synchronize_all();

/// Waits for the streams that the default stream waits for: itself, and those created without cudaStreamNonBlocking.
void synchronize_blocking();

}  // namespace plugfest::nccl::cuda
