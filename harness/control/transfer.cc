// The calls of comms and requests that NCCL's progress thread makes.
#include <fmt/format.h>

#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/connection.h"
#include "harness/control/process/rank_process.h"

namespace plugfest::control {

namespace {

constexpr std::size_t kPartsShown = 4;

rank::Piece piece_of(const Part& part, const PostOptions& options) {
  return {part.buffer.slice.address, part.buffer.slice.size, part.tag, options.mhandle.value_or(part.buffer.mhandle),
          options.phandle};
}

std::uint64_t request_slot(RankProcess& process, std::uint64_t comm, Preset preset) {
  const auto last = process.ledger.last_request.find(comm);
  return slot_value(preset, last == process.ledger.last_request.end() ? kPoison : last->second);
}

std::string parts_text(const std::vector<Part>& parts) {
  if (parts.size() == 1) return fmt::format("{}, tag {}", counted(parts[0].buffer.slice.size, "byte"), parts[0].tag);
  std::string text = fmt::format("{} buffers:", parts.size());
  for (std::size_t i = 0; i < parts.size() && i < kPartsShown; ++i) {
    text += fmt::format("{} {} tag {}", i == 0 ? "" : ",", counted(parts[i].buffer.slice.size, "byte"), parts[i].tag);
  }
  if (parts.size() > kPartsShown) text += ", …";
  return text;
}

/// `Request`: rank::Isend, rank::Irecv or rank::Iflush.
template <class Request>
Started<PointerOutcome> start_posting(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                      const Request& post, std::string text) {
  return start<PointerOutcome>(
      process, thread, post, std::move(text),
      [comm = post.comm](PointerOutcome& outcome, const rank::PointerAnswer& answer, RankProcess& rank) {
        outcome.value = answer.value;
        outcome.untouched = answer.untouched;
        if (outcome.ok()) rank.ledger.posted(comm, outcome.value);
        return outcome.value == 0 ? "NULL" : fmt::format("request {}", pointer_text(outcome.value));
      });
}

std::string sizes_text(const TestOutcome& outcome) {
  std::string text;
  std::size_t count = outcome.sizes.size();
  while (count > 1 && outcome.sizes[count - 1] == 0) --count;
  for (std::size_t i = 0; i < count && i < 8; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", outcome.sizes[i]);
  return text;
}

rank::Test test_of(std::uint64_t request, const TestOptions& options) {
  return {request, options.done, options.sizes, options.size_fill};
}

/// `Request`: rank::Test or rank::Wait.
template <class Request>
Started<TestOutcome> start_testing(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                   const Request& test) {
  return start<TestOutcome>(process, thread, test, fmt::format("test(request {})", pointer_text(test.request)),
                            [request = test.request, preset = test.done_slot](
                                TestOutcome& outcome, const rank::TestAnswer& answer, RankProcess& rank) {
                              outcome.done = answer.done;
                              outcome.done_untouched = answer.done == preset;
                              outcome.sizes = answer.sizes;
                              outcome.sizes.resize(outcome.sizes.empty() ? 0 : rank::kSizes);
                              if (outcome.ok() && outcome.done == 1) rank.ledger.done(request);
                              if (outcome.done == 0) return std::string("not done");
                              if (outcome.done != 1) return fmt::format("done = {}", outcome.done);
                              return outcome.sizes.empty() ? std::string("done")
                                                           : fmt::format("done, sizes {}", sizes_text(outcome));
                            });
}

}  // namespace

// ------------------------------------------------------------------------------------------------------- requests

Request Request::on(std::string_view thread) const {
  Request other = *this;
  other.thread_ = thread;
  return other;
}

bool Request::test(const TestOptions& options) {
  last_ = try_test(options);
  require_success(last_);
  if (last_.done_untouched && options.done != 0 && options.done != 1) {
    throw Deviation(last_.rank, fmt::format("{} did not store *done", last_.call));
  }
  if (last_.done != 0 && last_.done != 1) {
    throw Deviation(last_.rank, fmt::format("{} stored *done = {}", last_.call, last_.done));
  }
  return last_.done == 1;
}

Started<TestOutcome> Request::start_test(const TestOptions& options) const {
  return start_testing(rank_, thread_, test_of(value_, options));
}

Started<TestOutcome> Request::start_wait(const TestOptions& options) const {
  return start_testing(rank_, thread_, rank::Wait{test_of(value_, options), rank_->timeout_ns()});
}

TestOutcome Request::wait(const TestOptions& options) const {
  TestOutcome outcome = start_wait(options).get();
  require_success(outcome);
  if (outcome.done == 0) {
    throw Stalled(outcome.rank, fmt::format("{} was never done", outcome.call));
  }
  return outcome;
}

int Request::size(std::size_t index) const { return last_.sizes.at(index); }

// ---------------------------------------------------------------------------------------------------------- comms

SendComm::SendComm(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value)
    : Comm(std::move(rank), std::move(thread), value) {
  sends_ = true;
}

SendComm SendComm::on(std::string_view thread) const { return SendComm(rank_, std::string(thread), value_); }

Request SendComm::isend(const Buffer& buffer, int tag, const PostOptions& options) const {
  const PointerOutcome outcome = try_isend(buffer, tag, options);
  require_success(outcome);
  return request(outcome.value);
}

Started<PointerOutcome> SendComm::start_isend(const Buffer& buffer, int tag, const PostOptions& options) const {
  return start_posting(
      rank_, thread_,
      rank::Isend{{value_, {piece_of({buffer, tag}, options)}, request_slot(*rank_, value_, options.request)}},
      fmt::format("isend(comm {}, {}, tag {})", pointer_text(value_), counted(buffer.slice.size, "byte"), tag));
}

RecvComm::RecvComm(std::shared_ptr<RankProcess> rank, std::string thread, std::uint64_t value)
    : Comm(std::move(rank), std::move(thread), value) {}

RecvComm RecvComm::on(std::string_view thread) const { return RecvComm(rank_, std::string(thread), value_); }

Request RecvComm::irecv(const std::vector<Part>& parts, const PostOptions& options) const {
  const PointerOutcome outcome = try_irecv(parts, options);
  require_success(outcome);
  return request(outcome.value);
}

Started<PointerOutcome> RecvComm::start_irecv(const std::vector<Part>& parts, const PostOptions& options) const {
  rank::Irecv post{{value_, {}, request_slot(*rank_, value_, options.request)}};
  for (const Part& part : parts) post.pieces.push_back(piece_of(part, options));
  return start_posting(rank_, thread_, post,
                       fmt::format("irecv(comm {}, {})", pointer_text(value_), parts_text(parts)));
}

PointerOutcome RecvComm::try_iflush(const std::vector<Part>& parts, Preset preset) const {
  rank::Iflush post{{value_, {}, request_slot(*rank_, value_, preset)}};
  for (const Part& part : parts) post.pieces.push_back(piece_of(part, {}));
  return start_posting(rank_, thread_, post,
                       fmt::format("iflush(comm {}, {})", pointer_text(value_), parts_text(parts)))
      .get();
}

Outcome RecvComm::try_consumed(int n, std::uint64_t request) const {
  return start<Outcome>(
             rank_, thread_, rank::IrecvConsumed{value_, n, request},
             fmt::format("irecvConsumed(comm {}, {}, request {})", pointer_text(value_), n, pointer_text(request)),
             [](Outcome&, const rank::CallAnswer&, RankProcess&) { return "Success"; })
      .get();
}

}  // namespace plugfest::control
