#include "harness/rank/workloads/replay/calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/system/text.h"
#include "harness/abi/net.h"
#include "harness/wire/channel.h"
#include "harness/wire/protocol.h"

namespace plugfest::rank {

namespace {

// Calls that the report of an error shows.
constexpr std::size_t kLastCalls = 24;
// Size of the calls of a trace in the answer; the rest of the answer needs less than the other quarter.
constexpr std::size_t kMaxTraceBytes = kMaxBody / 4 * 3;
// The value of *done before test. NCCL leaves it uninitialized.
constexpr std::int32_t kUninitialized = 0x5a5a5a5a;

std::string pointer_name(std::uint64_t value) { return value == 0 ? "NULL" : fmt::format("0x{:x}", value); }

}  // namespace

std::string ReplayCalls::Line::text() const {
  if (function == Function::kSetAttributes) return "setNetAttr";
  if (function == Function::kTest) return fmt::format("test(request {})", pointer_name(request));
  const std::string comm = fmt::format("comm 0x{:x}", end->plan().comm);
  if (function == Function::kConsumed)
    return fmt::format("irecvConsumed({}, {}, request {})", comm, count, pointer_name(request));
  std::string pieces;
  for (std::size_t i = 0; i < count && i < kPiecesShown; ++i)
    pieces += fmt::format(", {} tag {}", counted(sizes[i], "byte"), tags[i]);
  const bool sends = function == Function::kIsend;
  return fmt::format("{}({}{}{}, *request {}) {} {}", sends ? "isend" : "irecv", comm, pieces,
                     count > kPiecesShown ? ", …" : "", pointer_name(request), sends ? "to" : "from", end->plan().peer);
}

std::string ReplayCalls::Line::result_text() const {
  if (code != 0) return code_text(code);
  if (function == Function::kTest) return result == 0 ? "not done" : "done";
  if (function == Function::kIsend || function == Function::kIrecv) return "request " + pointer_name(result);
  return "ok";
}

ReplayCalls::Line ReplayCalls::line(Function function, const ReplayEnd* end, const std::vector<Piece>& pieces,
                                    std::uint64_t request) {
  Line line;
  line.function = function;
  line.end = end;
  line.count = static_cast<std::uint32_t>(pieces.size());
  for (std::size_t i = 0; i < pieces.size() && i < kPiecesShown; ++i) {
    line.sizes[i] = pieces[i].size;
    line.tags[i] = pieces[i].tag;
  }
  line.request = request;
  return line;
}

void ReplayCalls::note(Line line, const CallAnswer& answer, std::uint64_t result) {
  line.code = answer.code;
  line.result = result;
  if (!last_.empty() && last_.back().line == line) {
    ++last_.back().times;
  } else {
    last_.push_back({line});
    if (last_.size() > kLastCalls) last_.pop_front();
  }
  // NCCL ignores the result of setNetAttr.
  if (answer.code != 0 && line.function != Function::kSetAttributes)
    throw ReplayFailed{fmt::format("{} returned {}", line.text(), line.result_text())};
  if (!answer.damage.empty()) throw ReplayFailed{fmt::format("{} {}", line.text(), answer.damage)};
}

void ReplayCalls::trace(ReplayCall::Kind kind, const ReplayEnd& end, const CallAnswer& answer,
                        const std::vector<Piece>& pieces, std::vector<std::uint64_t> sizes, std::uint64_t request) {
  if (!request_.trace) return;
  ReplayCall call;
  call.kind = kind;
  call.connection = static_cast<std::uint32_t>(&end.plan() - request_.connections.data());
  call.start_ns = answer.start_ns;
  call.sizes = std::move(sizes);
  for (const Piece& piece : pieces) {
    call.sizes.push_back(piece.size);
    call.tags.push_back(piece.tag);
  }
  call.request = request;
  trace_bytes_ += encode(call).size();
  if (trace_bytes_ > kMaxTraceBytes)
    ++report_.calls_left_out;
  else
    report_.calls.push_back(std::move(call));
}

std::uint64_t ReplayCalls::isend(const ReplayEnd& end, const Piece& piece, std::uint64_t preset) {
  const PointerAnswer answer = calls::isend(end.plan().comm, piece, preset);
  note(line(Function::kIsend, &end, {piece}, preset), answer, answer.value);
  if (answer.value == 0) {
    ++report_.deferrals;
  } else {
    ++report_.message_count;
    report_.bytes += piece.size;
    trace(ReplayCall::Kind::kIsend, end, answer, {piece}, {}, answer.value);
  }
  return answer.value;
}

std::uint64_t ReplayCalls::irecv(const std::vector<const ReplayEnd*>& ends, const std::vector<Piece>& pieces,
                                 std::uint64_t preset) {
  const ReplayEnd& first = *ends.front();
  const PointerAnswer answer = calls::irecv(first.plan().comm, pieces, preset);
  note(line(Function::kIrecv, &first, pieces, preset), answer, answer.value);
  if (answer.value == 0) {
    ++report_.deferrals;
  } else {
    report_.message_count += pieces.size();
    trace(ReplayCall::Kind::kIrecv, first, answer, pieces, {}, answer.value);
  }
  return answer.value;
}

bool ReplayCalls::test(const ReplayEnd& end, std::uint64_t request) {
  ++report_.tests;
  const TestAnswer answer = calls::test(request, kUninitialized, 0);
  const Line call = line(Function::kTest, &end, {}, request);
  note(call, answer, answer.done == 0 ? 0 : 1);
  if (answer.done == kUninitialized) throw ReplayFailed{call.text() + " did not store *done"};
  if (answer.done == 0) return false;
  const auto last =
      std::find_if(answer.sizes.rbegin(), answer.sizes.rend(), [](std::int32_t size) { return size != 0; });
  std::vector<std::uint64_t> sizes;
  for (auto size = answer.sizes.begin(); size != last.base(); ++size)
    sizes.push_back(static_cast<std::uint32_t>(*size));
  if (!end.plan().sends)
    for (const std::uint64_t size : sizes) report_.bytes += size;
  trace(ReplayCall::Kind::kTest, end, answer, {}, std::move(sizes), request);
  return true;
}

void ReplayCalls::consumed(const ReplayEnd& end, int count, std::uint64_t request) {
  const CallAnswer answer = calls::irecv_consumed(end.plan().comm, count, request);
  if (answer.start_ns == 0) return;
  Line call = line(Function::kConsumed, &end, {}, request);
  call.count = static_cast<std::uint32_t>(count);
  note(call, answer, 0);
}

void ReplayCalls::set_attributes(bool sends, ProxyProtocol protocol) {
  if (attributes_ == std::pair(sends, protocol)) return;
  attributes_ = std::pair(sends, protocol);
  std::vector<std::int32_t> attributes(sizeof(abi::newest::NetAttr) / sizeof(std::int32_t), abi::kAttrUndefined);
  attributes.back() = 1 << static_cast<unsigned>(protocol);
  const CallAnswer answer = calls::set_net_attributes(request_.context, attributes);
  if (answer.start_ns != 0) note(line(Function::kSetAttributes, nullptr, {}, 0), answer, 0);
}

void ReplayCalls::finish(ReplayReport& report) {
  const std::string broken = std::move(report.broken);
  report = std::move(report_);
  report.broken = broken;
  if (broken.empty()) return;
  for (const auto& [line, times] : last_) {
    report.last_calls.push_back(fmt::format("{} → {}{}", line.text(), line.result_text(),
                                            times == 1 ? "" : fmt::format("  ({} times)", times)));
  }
}

}  // namespace plugfest::rank
