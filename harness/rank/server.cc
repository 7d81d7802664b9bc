#include "harness/rank/server.h"

#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "harness/plugin/library.h"
#include "harness/rank/calls/dispatch.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

void answer(Channel& channel, std::uint32_t id, Answer kind, std::span<const std::byte> body) {
  channel.send(id, static_cast<std::uint32_t>(kind), body);
}

void answer_text(Channel& channel, std::uint32_t id, Answer kind, const char* text) {
  answer(channel, id, kind, encode(Text{text}));
}

}  // namespace

void serve_thread(Channel channel, const std::string& name) {
  adopt_thread(name);
  while (const auto frame = channel.receive()) {
    const std::uint32_t id = frame->header.id;
    this_thread().report_progress = [&] { answer(channel, id, Answer::kProgress, {}); };
    try {
      answer(channel, id, Answer::kDone, execute(static_cast<Operation>(frame->header.kind), frame->body));
    } catch (const plugin::LoadError& refusal) {
      answer_text(channel, id, Answer::kRefused, refusal.what());
    } catch (const std::exception& failure) {
      answer_text(channel, id, Answer::kFailed, failure.what());
    }
  }
}

void serve_control(Channel channel) {
  adopt_thread("control");
  int passed_fd = -1;
  while (const auto frame = channel.receive(&passed_fd)) {
    const std::uint32_t id = frame->header.id;
    try {
      if (frame->header.kind == static_cast<std::uint32_t>(ControlOperation::kStartThread) && passed_fd >= 0) {
        const auto request = decode<StartThread>(frame->body);
        std::thread(serve_thread, Channel(Descriptor(std::exchange(passed_fd, -1))), request.name).detach();
        answer(channel, id, Answer::kDone, {});
      } else if (frame->header.kind == static_cast<std::uint32_t>(ControlOperation::kFunctionOn)) {
        answer(channel, id, Answer::kDone, encode(Text{call_of_thread(decode<Text>(frame->body).text)}));
      } else {
        answer_text(channel, id, Answer::kFailed, "not an operation of the control channel");
      }
    } catch (const std::exception& failure) {
      answer_text(channel, id, Answer::kFailed, failure.what());
    }
    if (passed_fd >= 0) ::close(std::exchange(passed_fd, -1));
  }
  // _exit runs no code of the plugin.
  _exit(0);
}

}  // namespace plugfest::rank
