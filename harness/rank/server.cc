#include "harness/rank/server.h"

#include <fcntl.h>
#include <unistd.h>

#include <exception>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "harness/plugin/library.h"
#include "harness/rank/thread.h"

// A function of ThreadSanitizer's runtime; null unless the plugin was built with it.
extern "C" __attribute__((weak)) void __tsan_acquire(void* address);
extern "C" __attribute__((weak)) void __tsan_release(void* address);

namespace plugfest::rank {

namespace {

// The controller orders calls on different threads: a call that begins after another has returned sees its effects.
// ThreadSanitizer cannot know this order, which passes through another process.
class OrderedCall {
 public:
  OrderedCall() {
    if (__tsan_acquire != nullptr) __tsan_acquire(&order_);
  }
  ~OrderedCall() {
    if (__tsan_release != nullptr) __tsan_release(&order_);
  }
  OrderedCall(const OrderedCall&) = delete;
  OrderedCall& operator=(const OrderedCall&) = delete;

 private:
  static inline char order_ = 0;
};

void answer(Channel& channel, std::uint32_t id, Answer kind, std::span<const std::byte> body) {
  channel.send(id, static_cast<std::uint32_t>(kind), body);
}

void answer_text(Channel& channel, std::uint32_t id, Answer kind, const char* text) {
  answer(channel, id, kind, encode(Text{text}));
}

// Errors: none; bytes that are not a request, or no memory for them, are like the end of the channel.
std::optional<Frame> next_request(Channel& channel, Descriptor* passed = nullptr) {
  try {
    return channel.receive(passed);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The answer of a request of many calls has no code of its own, and gets a code that no call may return.
template <typename Request>
std::vector<std::byte> execute_encoded(std::span<const std::byte> body) {
  ThreadState* const thread = this_thread_or_null();
  if (thread != nullptr) thread->undefined_code = 0;
  auto answer = execute(decode<Request>(body));
  if constexpr (std::is_base_of_v<CallAnswer, decltype(answer)>) {
    if (thread != nullptr && answer.code == 0) answer.code = thread->undefined_code;
  }
  return encode(answer);
}

constexpr std::vector<std::byte> (*kHandlers[])(std::span<const std::byte> body) = {
#define PLUGFEST_HANDLER(request, answer, thread) execute_encoded<request>,
    PLUGFEST_REQUESTS(PLUGFEST_HANDLER)
#undef PLUGFEST_HANDLER
};

}  // namespace

void serve_thread(Channel channel, const std::string& name) {
  adopt_thread(name);
  while (const auto frame = next_request(channel)) {
    const std::uint32_t id = frame->header.id;
    this_thread().report_progress = [&] { answer(channel, id, Answer::kProgress, {}); };
    try {
      answer(channel, id, Answer::kDone, [&] {
        const OrderedCall ordered;
        return execute(static_cast<Operation>(frame->header.kind), frame->body);
      }());
    } catch (const plugin::LoadError& refusal) {
      answer(channel, id, Answer::kRefused, encode(wire::Refusal{refusal.what(), refusal.missing()}));
    } catch (const std::exception& failure) {
      answer_text(channel, id, Answer::kFailed, failure.what());
    }
  }
}

void serve_control(Channel channel) {
  adopt_thread("control");
  Descriptor passed;
  while (const auto frame = next_request(channel, &passed)) {
    const std::uint32_t id = frame->header.id;
    try {
      if (frame->header.kind == static_cast<std::uint32_t>(ControlOperation::kStartThread) && passed) {
        const auto request = decode<StartThread>(frame->body);
        std::thread(serve_thread, Channel(std::move(passed)), request.name).detach();
        answer(channel, id, Answer::kDone, {});
      } else if (frame->header.kind == static_cast<std::uint32_t>(ControlOperation::kStartThread)) {
        answer_text(channel, id, Answer::kFailed, "Too many open files");  // the kernel has dropped the descriptor
      } else if (frame->header.kind == static_cast<std::uint32_t>(ControlOperation::kFunctionOn)) {
        answer(channel, id, Answer::kDone, encode(Text{call_of_thread(decode<Text>(frame->body).text)}));
      } else {
        answer_text(channel, id, Answer::kFailed, "not an operation of the control channel");
      }
    } catch (const std::exception& failure) {
      answer_text(channel, id, Answer::kFailed, failure.what());
    }
    passed.close();
  }
  // If the plugin has closed the descriptor, the controller sees that as long as this process exists, and then kills
  // it.
  while (fcntl(wire::kControlFd, F_GETFD) < 0) pause();
  // _exit runs no code of the plugin.
  _exit(0);
}

std::vector<std::byte> execute(Operation operation, std::span<const std::byte> body) {
  const auto index = static_cast<std::size_t>(operation);
  if (index >= std::size(kHandlers)) throw WireError("an unknown operation");
  return kHandlers[index](body);
}

}  // namespace plugfest::rank
