#include "harness/trace/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "harness/report/text.h"
#include "harness/trace/explain.h"

namespace plugfest::trace {
namespace {

constexpr std::size_t kMaxMessages = 400;
// In units of the picture.
constexpr double kColumn = 190, kTop = 40, kRow = 14, kMinHeight = 240, kMaxHeight = 3000, kBar = 5;

// How each wait is drawn at the line of its rank: -1 on the left side, 0 on the right side. No color: the arrow shows
// the wait.
struct Style {
  const char* label;
  const char* color;
  int side;
};
constexpr Style kStyles[kWaits] = {
    {"send waits for the GPU", "#b0bec5", -1},
    {"send waits for the peer", "#ffb74d", -1},
    {"network", nullptr, 0},
    {"receive waits for the plugin", "#ffb74d", 0},
    {"data", nullptr, 0},
    {"flush", "#ce93d8", 0},
    {"receive waits for the GPU", "#b0bec5", 0},
};

// One call of an operation. Times: nanoseconds since the first event.
struct Call {
  std::vector<std::size_t> sends;  // by their start
  std::int64_t start = std::numeric_limits<std::int64_t>::max(), stop = std::numeric_limits<std::int64_t>::min();
};

// The slowest call of each kind.
std::vector<std::size_t> chosen(const Transfers& transfers, const std::vector<Call>& calls) {
  std::map<OperationKind, std::size_t> slowest;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].sends.empty()) continue;
    const auto [found, is_new] = slowest.emplace(kind_of(transfers.operations[i]), i);
    const Call& other = calls[found->second];
    if (!is_new && calls[i].stop - calls[i].start > other.stop - other.start) found->second = i;
  }
  std::vector<std::size_t> indices;
  for (const auto& [kind, index] : slowest) indices.push_back(index);
  return indices;
}

class Ladder {
 public:
  Ladder(const Transfers& transfers, const std::vector<std::size_t>& others, const Operation& operation,
         const Call& call)
      : transfers_(transfers), others_(others), operation_(operation), sends_(call.sends), start_(call.start) {
    if (sends_.size() > kMaxMessages) sends_.resize(kMaxMessages);
    for (const std::size_t send : sends_) {
      stop_ = std::max({stop_, transfers.transfers[send].stop, transfers.transfers[others[send]].stop});
      for (const int rank : {transfers.transfers[send].rank, transfers.transfers[send].peer}) columns_[rank];
    }
    std::size_t column = 0;
    for (auto& [rank, place] : columns_) place = kColumn * (static_cast<double>(column++) + 0.5);
    height_ = std::clamp(kRow * static_cast<double>(sends_.size()), kMinHeight, kMaxHeight);
  }

  std::string svg(std::size_t all) const {
    std::string text = fmt::format("<h2>{}</h2>\n<p>{:.1f} us", title(), static_cast<double>(stop_ - start_) / 1e3);
    if (sends_.size() < all) text += fmt::format(", the first {} of {} messages", sends_.size(), all);
    text += fmt::format("</p>\n<svg width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\">\n",
                        kColumn * static_cast<double>(columns_.size()), kTop + height_ + 10);
    for (const auto& [rank, x] : columns_)
      text += fmt::format(
          "<text x=\"{0:.1f}\" y=\"20\">{1}</text><line class=\"rank\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{2:.1f}\" "
          "y2=\"{3:.1f}\"/>\n",
          x, report::escaped(name_of(transfers_, operation_.communicator, rank)), kTop, kTop + height_);
    for (const std::size_t send : sends_) text += bars(transfers_.transfers[send]) + bars(receive_of(send));
    for (const std::size_t send : sends_) text += arrow(transfers_.transfers[send], receive_of(send));
    return text + "</svg>\n";
  }

 private:
  const Transfer& receive_of(std::size_t send) const { return transfers_.transfers[others_[send]]; }
  double x(int rank) const { return columns_.at(rank); }
  double y(std::int64_t time) const {
    return kTop + height_ * static_cast<double>(time - start_) /
                      static_cast<double>(std::max<std::int64_t>(1, stop_ - start_));
  }

  std::string title() const {
    std::string text = title_of(kind_of(operation_));
    if (operation_.bytes != 0) text += fmt::format(", call {}", operation_.sequence);
    return report::escaped(text);
  }

  std::string bars(const Transfer& transfer) const {
    std::string text;
    for (const auto& [kind, from, to] : transfer.waits()) {
      const Style& style = kStyles[kind];
      // A receive may be posted long before.
      const double top = y(std::max(from, start_)), bottom = y(to);
      if (style.color == nullptr || to <= from || bottom <= top) continue;
      text += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"{}\"><title>{}, step {}: {:.1f} "
          "us</title></rect>\n",
          x(transfer.rank) + style.side * kBar, top, kBar, bottom - top, style.color, style.label, transfer.step,
          static_cast<double>(to - from) / 1e3);
    }
    return text;
  }

  std::string arrow(const Transfer& send, const Transfer& receive) const {
    return fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
        "marker-end=\"url(#end)\"><title>rank "
        "{} to rank {}, channel {}, step {}: {} bytes, {:.1f} us{}</title></line>\n",
        send.retransmissions > 0 ? "lossy message" : "message", x(send.rank), y(send.accepted), x(receive.rank),
        y(receive.arrived), send.rank, receive.rank, send.channel, send.step, send.bytes,
        static_cast<double>(receive.arrived - send.accepted) / 1e3,
        send.retransmissions > 0 ? fmt::format(", {} retransmissions", send.retransmissions) : "");
  }

  const Transfers& transfers_;
  const std::vector<std::size_t>& others_;
  const Operation& operation_;
  std::vector<std::size_t> sends_;
  std::int64_t start_, stop_ = std::numeric_limits<std::int64_t>::min();
  std::map<int, double> columns_;  // by rank
  double height_ = 0;
};

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>plugfest trace</title><style>
body{font:14px sans-serif;margin:2em;color:#222;background:#fff} pre{overflow-x:auto} text{text-anchor:middle}
svg{font-size:13px} .rank{stroke:#777} .message{stroke:#1e88e5;stroke-width:1.2} .lossy{stroke:#d81b60}
i{display:inline-block;width:10px;height:10px;margin:0 4px 0 14px}
</style></head><body><svg width="0" height="0"><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"
markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="context-stroke"/></marker></svg>
)";

}  // namespace

std::string ladder_page(const Transfers& transfers) {
  const std::vector<std::size_t> others = matched(transfers);
  std::vector<Call> calls(transfers.operations.size());
  for (std::size_t i = 0; i < transfers.transfers.size(); ++i) {
    const Transfer& one = transfers.transfers[i];
    if (!one.sends || others[i] == kUnmatched) continue;
    Call& call = calls[one.operation];
    call.sends.push_back(i);
    call.start = std::min(call.start, one.start);
    call.stop = std::max({call.stop, one.stop, transfers.transfers[others[i]].stop});
  }
  std::string page(kHead);
  page += fmt::format("<h1>Where the time went</h1>\n<pre>{}</pre>\n", report::escaped(explain(transfers)));
  page += "<p>Time runs downwards. An arrow is a message, red if packets were sent again.";
  for (const Style& style : kStyles)
    if (style.color != nullptr) page += fmt::format(" <i style=\"background:{}\"></i>{}", style.color, style.label);
  page += "</p>\n";
  for (const std::size_t i : chosen(transfers, calls)) {
    Call& call = calls[i];
    std::stable_sort(call.sends.begin(), call.sends.end(), [&](std::size_t a, std::size_t b) {
      return transfers.transfers[a].start < transfers.transfers[b].start;
    });
    page += Ladder(transfers, others, transfers.operations[i], call).svg(call.sends.size());
  }
  return page + "</body></html>\n";
}

}  // namespace plugfest::trace
