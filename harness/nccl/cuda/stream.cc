// Streams and events: each stream is a thread that does its work in order.
#include "harness/nccl/cuda/runtime.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace plugfest::nccl::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// The end of the work that a stream had when the event was recorded, and its time.
using Marker = std::shared_future<Clock::time_point>;

bool reached(const Marker& marker) { return marker.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

class Stream {
 public:
  explicit Stream(bool blocking) : blocking_(blocking) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool blocking() const { return blocking_; }
  bool is_this_thread() const { return thread_.get_id() == std::this_thread::get_id(); }

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }

  Marker record() {
    const auto end = std::make_shared<std::promise<Clock::time_point>>();
    Marker marker = end->get_future().share();
    if (idle())
      end->set_value(Clock::now());
    else
      push([end] { end->set_value(Clock::now()); });
    return marker;
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      lock.lock();
      busy_ = false;
    }
  }

  const bool blocking_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// All streams of the process. Never destroyed, because threads may outlive main().
class Streams {
 public:
  static Streams& instance() {
    static auto* const streams = new Streams;
    return *streams;
  }

  void* create(bool blocking) {
    auto stream = std::make_shared<Stream>(blocking);
    void* const handle = stream.get();
    const std::lock_guard lock(mutex_);
    streams_.insert(std::move(stream));
    return handle;
  }

  // Null for a handle that is not a stream. Handles below 3 are the default streams.
  std::shared_ptr<Stream> find(void* handle) {
    const std::lock_guard lock(mutex_);
    if (reinterpret_cast<std::uintptr_t>(handle) < 3) return default_;
    for (const auto& stream : streams_)
      if (stream.get() == handle) return stream;
    return nullptr;
  }

  bool destroy(void* handle) {
    std::shared_ptr<Stream> stream = find(handle);
    // CUDA allows no call of its API in a host function. This one would wait for itself.
    if (stream == nullptr || stream == default_ || stream->is_this_thread()) return false;
    stream->record().wait();
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
    return true;
  }

  const std::shared_ptr<Stream>& default_stream() const { return default_; }

  std::vector<std::shared_ptr<Stream>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Stream>> list(streams_.begin(), streams_.end());
    list.push_back(default_);
    return list;
  }

 private:
  std::mutex mutex_;
  std::set<std::shared_ptr<Stream>> streams_;
  const std::shared_ptr<Stream> default_ = std::make_shared<Stream>(true);
};

// Makes `stream` wait for the others that the rules of the default stream name.
void order_with_default(const std::shared_ptr<Stream>& stream) {
  Streams& streams = Streams::instance();
  std::vector<std::shared_ptr<Stream>> earlier;
  if (stream == streams.default_stream())
    earlier = streams.all();
  else if (stream->blocking())
    earlier.push_back(streams.default_stream());
  for (const auto& other : earlier) {
    if (other == stream || !other->blocking() || other->idle()) continue;
    stream->push([marker = other->record()] { marker.wait(); });
  }
}

struct Event {
  std::mutex mutex;
  Marker marker;  ///< not valid: the event was not recorded

  Marker get() {
    const std::lock_guard lock(mutex);
    return marker;
  }
};

void wait_for(bool blocking_only) {
  for (const auto& stream : Streams::instance().all())
    if (!blocking_only || stream->blocking()) stream->record().wait();
}

}  // namespace

int enqueue(void* handle, std::function<void()> work) {
  const std::shared_ptr<Stream> stream = Streams::instance().find(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  order_with_default(stream);
  stream->push(std::move(work));
  return kSuccess;
}

bool wait_for_stream(void* handle, std::chrono::milliseconds limit) {
  const std::shared_ptr<Stream> stream = Streams::instance().find(handle);
  return stream == nullptr || stream->record().wait_for(limit) == std::future_status::ready;
}

void synchronize_all() { wait_for(false); }
void synchronize_blocking() { wait_for(true); }

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl::cuda;

extern "C" {

int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  constexpr unsigned kNonBlocking = 1;
  *stream = Streams::instance().create((flags & kNonBlocking) == 0);
  return kSuccess;
}

int cudaStreamCreate(void** stream) { return cudaStreamCreateWithFlags(stream, 0); }

int cudaStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

int cudaStreamDestroy(void* stream) { return Streams::instance().destroy(stream) ? kSuccess : kInvalidResourceHandle; }

int cudaStreamSynchronize(void* handle) {
  const auto stream = Streams::instance().find(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  stream->record().wait();
  return kSuccess;
}

int cudaStreamQuery(void* handle) {
  const auto stream = Streams::instance().find(handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  return stream->idle() ? kSuccess : kNotReady;
}

int cudaDeviceSynchronize() {
  synchronize_all();
  return kSuccess;
}

int cudaStreamIsCapturing(void*, int* status) { return give(status, 0); }

int cudaStreamGetCaptureInfo(void*, int* status, unsigned long long*, void**, const void**, const void**,
                             std::size_t*) {
  return give(status, 0);
}

int cudaEventCreateWithFlags(void** event, unsigned) { return give(event, new Event); }
int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }

int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}

int cudaEventRecord(void* handle, void* stream_handle) {
  const auto stream = Streams::instance().find(stream_handle);
  if (stream == nullptr) return kInvalidResourceHandle;
  order_with_default(stream);
  auto marker = stream->record();
  auto* const event = static_cast<Event*>(handle);
  const std::lock_guard lock(event->mutex);
  event->marker = std::move(marker);
  return kSuccess;
}

int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  const Marker marker = static_cast<Event*>(event)->get();
  if (!marker.valid() || reached(marker)) return kSuccess;
  return enqueue(stream, [marker] { marker.wait(); });
}

int cudaEventQuery(void* event) {
  const Marker marker = static_cast<Event*>(event)->get();
  return !marker.valid() || reached(marker) ? kSuccess : kNotReady;
}

int cudaEventSynchronize(void* event) {
  if (const Marker marker = static_cast<Event*>(event)->get(); marker.valid()) marker.wait();
  return kSuccess;
}

int cudaEventElapsedTime(float* milliseconds, void* from, void* to) {
  const Marker begin = static_cast<Event*>(from)->get(), end = static_cast<Event*>(to)->get();
  if (!begin.valid() || !end.valid()) return kInvalidResourceHandle;
  if (!reached(begin) || !reached(end)) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end.get() - begin.get()).count();
  return kSuccess;
}

int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned) {
  return enqueue(stream, [=] { function(stream, kSuccess, data); });
}

int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return enqueue(stream, [=] { function(data); });
}
}
