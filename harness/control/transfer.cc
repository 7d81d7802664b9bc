// The calls of comms and requests that NCCL's progress thread makes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/system/text.h"
#include "harness/control/call.h"
#include "harness/control/connection.h"
#include "harness/control/rank_process.h"

namespace plugfest::control {

namespace {

constexpr std::size_t kPartsShown = 4;

std::uint64_t request_slot(RankProcess& process, std::uint64_t comm, Preset preset) {
  const auto last = process.ledger.last_request.find(comm);
  return slot_value(preset, last == process.ledger.last_request.end() ? kPoison : last->second);
}

std::string parts_text(const std::vector<Part>& parts) {
  if (parts.size() == 1) return fmt::format("{}, tag {}", counted(parts[0].buffer.slice.size, "byte"), parts[0].tag);
  std::string text = fmt::format("{} buffers:", parts.size());
  for (std::size_t i = 0; i < parts.size() && i < kPartsShown; ++i)
    text += fmt::format("{} {} tag {}", i == 0 ? "" : ",", counted(parts[i].buffer.slice.size, "byte"), parts[i].tag);
  if (parts.size() > kPartsShown) text += ", …";
  return text;
}

std::uint64_t mhandle_of(const Buffer& buffer, const PostOptions& options) {
  return options.mhandle.value_or(buffer.mhandle);
}

// The array arguments of a receive or a flush.
struct PartArrays {
  PartArrays(const std::vector<Part>& parts, const PostOptions& options) : phandles(options.phandles) {
    phandles.resize(parts.size(), options.phandle);
    for (const Part& part : parts) {
      addresses.push_back(part.buffer.slice.address);
      sizes.push_back(part.buffer.slice.size);
      int_sizes.push_back(static_cast<std::int32_t>(part.buffer.slice.size));
      tags.push_back(part.tag);
      mhandles.push_back(mhandle_of(part.buffer, options));
    }
  }
  std::vector<std::uint64_t> addresses, sizes, mhandles, phandles;
  std::vector<std::int32_t> int_sizes, tags;
};

// A call whose first argument is a comm, and whose last one receives a request.
Started<PointerOutcome> start_posting(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                      const wire::Call& post, std::string text) {
  return start_net<PointerOutcome>(
      process, thread, post, std::move(text),
      [comm = post.arguments.front().number, last = post.arguments.size() - 1, stored = post.arguments.back().number](
          PointerOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
        take_pointer(outcome, answer, last, stored);
        if (outcome.ok()) rank.ledger.posted(comm, outcome.value);
        return outcome.value == 0 ? "NULL" : fmt::format("request {}", pointer_text(outcome.value));
      });
}

// The result of a call that completed a request. `fill`: the content of the entries of sizes before the call.
std::string done_text(const TestOutcome& outcome, int fill) {
  if (outcome.sizes.empty()) return "done";
  std::size_t count = outcome.sizes.size();
  while (count > 0 && outcome.sizes[count - 1] == fill) --count;
  if (count == 0 && fill != 0) return "done, no size";
  const std::size_t shown = std::clamp<std::size_t>(count, 1, 8);
  return fmt::format("done, sizes {}", fmt::join(outcome.sizes.begin(),
                                                 outcome.sizes.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
}

// `wait_ns`: see wire::Call.
Started<TestOutcome> start_testing(const std::shared_ptr<RankProcess>& process, const std::string& thread,
                                   std::uint64_t request, const TestOptions& options, std::int64_t wait_ns) {
  const std::int64_t fill = static_cast<std::uint32_t>(options.size_fill);
  const wire::Call call{
      "test", {request, options.done, options.sizes ? fill : wire::kNoArray}, 0, wait_ns, options.repeats};
  return start_net<TestOutcome>(
      process, thread, call, fmt::format("test(request {})", pointer_text(request)),
      [request, options](TestOutcome& outcome, const wire::CalledAnswer& answer, RankProcess& rank) {
        outcome.done = static_cast<int>(output_of(answer, 1).number);
        outcome.done_untouched = outcome.done == options.done;
        const std::vector<std::byte>& sizes = output_of(answer, 2).bytes;
        outcome.sizes.resize(sizes.size() / sizeof(int));
        if (!outcome.sizes.empty()) std::memcpy(outcome.sizes.data(), sizes.data(), sizeof(int) * outcome.sizes.size());
        if (outcome.ok() && outcome.done == 1) rank.ledger.done(request);
        if (outcome.done == 0) return std::string("not done");
        if (outcome.done != 1) return fmt::format("done = {}", outcome.done);
        return done_text(outcome, options.size_fill);
      });
}

}  // namespace

Request Request::on(std::string_view thread) const {
  Request other = *this;
  other.thread_ = thread;
  return other;
}

bool Request::test(const TestOptions& options) {
  last_ = try_test(options);
  require_success(last_);
  if (last_.done_untouched && options.done != 0 && options.done != 1)
    throw Deviation(last_.rank, fmt::format("{} did not store *done", last_.call));
  if (last_.done != 0 && last_.done != 1)
    throw Deviation(last_.rank, fmt::format("{} stored *done = {}", last_.call, last_.done));
  return last_.done == 1;
}

Started<TestOutcome> Request::start_test(const TestOptions& options) const {
  return start_testing(rank_, thread_, value_, options, 0);
}

Started<TestOutcome> Request::start_wait(const TestOptions& options) const {
  return start_testing(rank_, thread_, value_, options, rank_->timeout_ns());
}

TestOutcome Request::wait(const TestOptions& options) const {
  TestOutcome outcome = start_wait(options).get();
  require_success(outcome);
  if (outcome.done == 0) throw Stalled(outcome.rank, fmt::format("{} was never done", outcome.call));
  return outcome;
}

int Request::size(std::size_t index) const { return last_.sizes.at(index); }

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
      {"isend",
       {value_, buffer.slice.address, buffer.slice.size, tag, mhandle_of(buffer, options), options.phandle,
        request_slot(*rank_, value_, options.request)}},
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
  const PartArrays arrays(parts, options);
  return start_posting(rank_, thread_,
                       {"irecv",
                        {value_, parts.size(), arrays.addresses, arrays.sizes, arrays.tags, arrays.mhandles,
                         options.phandle_array ? wire::Argument(arrays.phandles) : wire::Argument(wire::kNoArray),
                         request_slot(*rank_, value_, options.request)}},
                       fmt::format("irecv(comm {}, {})", pointer_text(value_), parts_text(parts)));
}

PointerOutcome RecvComm::try_iflush(const std::vector<Part>& parts, Preset preset) const {
  const PartArrays arrays(parts, {});
  return start_posting(rank_, thread_,
                       {"iflush",
                        {value_, parts.size(), arrays.addresses, arrays.int_sizes, arrays.mhandles,
                         request_slot(*rank_, value_, preset)}},
                       fmt::format("iflush(comm {}, {})", pointer_text(value_), parts_text(parts)))
      .get();
}

Outcome RecvComm::try_consumed(int n, std::uint64_t request) const {
  return start_plain(
             rank_, thread_, {"irecvConsumed", {value_, n, request}},
             fmt::format("irecvConsumed(comm {}, {}, request {})", pointer_text(value_), n, pointer_text(request)),
             [](RankProcess&) {})
      .get();
}

}  // namespace plugfest::control
