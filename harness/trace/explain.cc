#include "harness/trace/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "fabric/system/number.h"

namespace plugfest::trace {
namespace {

// A link is named if it is this many times slower than the others. A few messages prove nothing.
constexpr double kSlow = 2;
constexpr std::size_t kMinMessages = 8;

using Interval = std::pair<std::int64_t, std::int64_t>;

// The time in which at least one of the intervals is open.
std::int64_t union_of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0, reached = std::numeric_limits<std::int64_t>::min();
  for (const auto& [start, end] : intervals) {
    if (end > reached) sum += end - std::max(start, reached);
    reached = std::max(reached, end);
  }
  return sum;
}

// One rank in one operation.
struct Part {
  std::int64_t start = std::numeric_limits<std::int64_t>::max(), stop = std::numeric_limits<std::int64_t>::min();
  std::array<std::vector<Interval>, kWaits> waits;

  void add(const Transfer& one) {
    start = std::min(start, one.start);
    stop = std::max(stop, one.stop);
    for (const auto& [kind, from, to] : one.waits()) waits[kind].emplace_back(from, to);
  }
};

// One rank in all operations of a kind.
struct Row {
  std::size_t calls = 0;
  double late_ns = 0, time_ns = 0, processor_ns = 0;
  std::array<double, kWaits> waits_ns = {};
};

// How long the threads of each rank waited for a processor.
class ProcessorWaits {
 public:
  explicit ProcessorWaits(const Transfers& transfers) {
    for (const Member& member : transfers.members) processes_[{member.communicator, member.rank}] = member.process;
    for (const ProcessorWait& wait : transfers.processor_waits) {
      Waits& waits = waits_[wait.process];
      waits.by_start.push_back(wait);
      waits.longest = std::max(waits.longest, wait.stop - wait.start);
    }
    for (auto& [process, waits] : waits_)
      std::sort(waits.by_start.begin(), waits.by_start.end(),
                [](const ProcessorWait& a, const ProcessorWait& b) { return a.start < b.start; });
  }

  // The sum over all threads of the rank. An interval counts by the part of it that lies between `from` and `to`.
  double between(const std::string& communicator, int rank, std::int64_t from, std::int64_t to) const {
    const auto process = processes_.find({communicator, rank});
    const auto waits = process == processes_.end() ? waits_.end() : waits_.find(process->second);
    if (waits == waits_.end()) return 0;
    const auto& [all, longest] = waits->second;
    double sum = 0;
    auto one = std::lower_bound(all.begin(), all.end(), from - longest,
                                [](const ProcessorWait& wait, std::int64_t time) { return wait.start < time; });
    for (; one != all.end() && one->start < to; ++one) {
      const std::int64_t inside = std::min(one->stop, to) - std::max(one->start, from);
      if (inside > 0)
        sum += static_cast<double>(one->waited) * static_cast<double>(inside) /
               static_cast<double>(one->stop - one->start);
    }
    return sum;
  }

 private:
  struct Waits {
    std::vector<ProcessorWait> by_start;
    std::int64_t longest = 0;
  };
  std::map<std::pair<std::string, int>, std::size_t> processes_;
  std::map<std::size_t, Waits> waits_;
};

std::map<OperationKind, std::map<int, Row>> rows_of(const Transfers& transfers) {
  std::vector<std::map<int, Part>> parts(transfers.operations.size());
  for (const Transfer& one : transfers.transfers) parts[one.operation][one.rank].add(one);
  for (const Arrival& arrival : transfers.arrivals) {
    const auto part = parts[arrival.operation].find(arrival.rank);
    if (part != parts[arrival.operation].end()) part->second.start = std::min(part->second.start, arrival.start);
  }
  const ProcessorWaits processor_waits(transfers);
  std::map<OperationKind, std::map<int, Row>> rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Operation& operation = transfers.operations[i];
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const auto& [rank, part] : parts[i]) first = std::min(first, part.start);
    for (const auto& [rank, part] : parts[i]) {
      Row& row = rows[kind_of(operation)][rank];
      ++row.calls;
      row.late_ns += static_cast<double>(part.start - first);
      row.time_ns += static_cast<double>(part.stop - part.start);
      row.processor_ns += processor_waits.between(operation.communicator, rank, part.start, part.stop);
      for (std::size_t wait = 0; wait < kWaits; ++wait)
        row.waits_ns[wait] += static_cast<double>(union_of(part.waits[wait]));
    }
  }
  return rows;
}

std::string table_of(const Transfers& transfers, const OperationKind& kind, const std::map<int, Row>& rows) {
  std::string text = title_of(kind);
  std::size_t calls = 0;
  for (const auto& [rank, row] : rows) calls = std::max(calls, row.calls);
  text += fmt::format(", {} call{}; milliseconds for each call\n", calls, calls == 1 ? "" : "s");
  text += fmt::format("{:49} sends wait for          receives wait for\n", "");
  text += fmt::format("{:<20} {:>8} {:>9} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6} {:>7}\n", "rank", "late", "time",
                      "processor", "GPU", "peer", "network", "plugin", "data", "flush", "GPU");
  for (const auto& [rank, row] : rows) {
    const auto ms = [divisor = 1e6 * static_cast<double>(row.calls)](double ns) { return ns / divisor; };
    text += fmt::format("{:<20} {:8.2f} {:9.2f} {:9.2f} {:7.2f} {:7.2f} {:8.2f} {:7.2f} {:7.2f} {:6.2f} {:7.2f}\n",
                        name_of(transfers, std::get<0>(kind), rank), ms(row.late_ns), ms(row.time_ns),
                        ms(row.processor_ns), ms(row.waits_ns[kSendGpu]), ms(row.waits_ns[kSendPeer]),
                        ms(row.waits_ns[kSendNetwork]), ms(row.waits_ns[kReceivePlugin]),
                        ms(row.waits_ns[kReceiveData]), ms(row.waits_ns[kReceiveFlush]), ms(row.waits_ns[kReceiveGpu]));
  }
  return text + "\n";
}

// The rank whose links are all slow, compared with the links of the others, and far slower than the links of any other
// rank; "" if there is no such rank.
std::string slow_rank(const std::vector<Link>& links) {
  std::set<std::string> ranks;
  for (const Link& link : links) ranks.insert({link.from, link.to});
  std::string found;
  double slowest = 0, second = 0;  // the fastest links of two ranks
  for (const std::string& rank : ranks) {
    std::vector<double> own, others;
    for (const Link& link : links)
      if (link.messages >= kMinMessages)
        (link.from == rank || link.to == rank ? own : others).push_back(link.median_ns);
    if (own.size() < 2 || others.size() < 2) continue;
    const double fastest = *std::min_element(own.begin(), own.end());
    second = std::max(second, std::min(slowest, fastest));
    if (fastest <= slowest) continue;
    slowest = fastest;
    found = fastest < kSlow * std::max(1.0, median(others)) ? "" : rank;
  }
  return slowest < kSlow * second ? "" : found;
}

std::string links_text(const std::vector<Link>& links) {
  const bool lost = std::any_of(links.begin(), links.end(), [](const Link& link) { return link.retransmissions > 0; });
  std::string text = fmt::format("{:<42} {:>9} {:>10} {:>15}{}\n", "link", "messages", "bytes", "us per message",
                                 lost ? " retransmissions" : "");
  for (const Link& link : links)
    text += fmt::format("{:<42} {:>9} {:>10} {:>15.1f}{}\n", link.from + " to " + link.to, link.messages, link.bytes,
                        link.median_ns / 1e3, lost ? fmt::format(" {:>15}", link.retransmissions) : "");
  const Link* slowest = nullptr;
  std::vector<double> others;
  for (const Link& link : links) {
    if (link.messages < kMinMessages) continue;
    if (slowest == nullptr)
      slowest = &link;
    else
      others.push_back(link.median_ns);
  }
  if (others.empty()) return text + "\ntoo few messages to compare links\n";
  const double usual = std::max(1.0, median(others));
  const double ratio = slowest->median_ns / usual;
  if (ratio < kSlow) return text + "\nno link is much slower than the others\n";
  text += fmt::format("\nslowest link: {} to {}: a message takes {:.1f} times as long as on the others\n",
                      slowest->from, slowest->to, ratio);
  const std::string rank = slow_rank(links);
  return rank.empty() ? text : text + fmt::format("all links of {} are slow: examine its cable and its NIC\n", rank);
}

// The rank that begins later than the others, on average over all operations.
std::string latest_rank_text(const Transfers& transfers, const std::map<OperationKind, std::map<int, Row>>& all) {
  std::map<std::string, Row> ranks;
  for (const auto& [kind, rows] : all) {
    for (const auto& [rank, row] : rows) {
      Row& sum = ranks[name_of(transfers, std::get<0>(kind), rank)];
      sum.calls += row.calls;
      sum.late_ns += row.late_ns;
      sum.time_ns += row.time_ns;
    }
  }
  const auto latest = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.second.late_ns / static_cast<double>(a.second.calls) <
           b.second.late_ns / static_cast<double>(b.second.calls);
  });
  constexpr double kMuch = 0.1;
  if (latest == ranks.end() || latest->second.late_ns < kMuch * latest->second.time_ns)
    return "no rank begins much later than the others\n";
  return fmt::format("latest rank: {} begins on average {:.2f} ms after the first\n", latest->first,
                     latest->second.late_ns / 1e6 / static_cast<double>(latest->second.calls));
}

}  // namespace

std::vector<Link> links_of(const Transfers& transfers) {
  const std::vector<std::size_t> others = matched(transfers);
  std::uint64_t largest = 0;
  for (const Transfer& one : transfers.transfers) largest = std::max(largest, one.bytes);
  std::map<std::tuple<std::string, int, int>, std::vector<double>> times;
  std::map<std::tuple<std::string, int, int>, std::uint64_t> bytes, retransmissions;
  for (std::size_t i = 0; i < transfers.transfers.size(); ++i) {
    const Transfer& send = transfers.transfers[i];
    if (!send.sends || others[i] == kUnmatched) continue;
    const Transfer& receive = transfers.transfers[others[i]];
    const std::uint64_t size = std::max(send.bytes, receive.bytes);
    const std::tuple key(transfers.operations[send.operation].communicator, send.rank, send.peer);
    retransmissions[key] += send.retransmissions;
    if (size < largest / 2) continue;
    bytes[key] = std::max(bytes[key], size);
    const std::int64_t time = std::max(send.stop, receive.arrived) - std::max(send.accepted, receive.accepted);
    times[key].push_back(static_cast<double>(std::max<std::int64_t>(0, time)));
  }
  std::vector<Link> links;
  for (const auto& [key, list] : times) {
    const auto& [communicator, from, to] = key;
    links.push_back({name_of(transfers, communicator, from), name_of(transfers, communicator, to), list.size(),
                     bytes[key], retransmissions[key], median(list)});
  }
  std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.median_ns > b.median_ns; });
  return links;
}

std::string explain(const Transfers& transfers) {
  if (transfers.transfers.empty())
    return "no transfer through a network: all ranks are on one host, or the recordings lack the proxies' events\n";
  const std::map<OperationKind, std::map<int, Row>> rows = rows_of(transfers);
  std::string text;
  for (const auto& [kind, of_kind] : rows) text += table_of(transfers, kind, of_kind);
  const std::vector<Link> links = links_of(transfers);
  text += links.empty()
              ? "no message was recorded by both its sender and its receiver: name the recordings of all ranks\n"
              : links_text(links);
  return text + latest_rank_text(transfers, rows);
}

}  // namespace plugfest::trace
