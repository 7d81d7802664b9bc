#include "harness/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "harness/abi/profiler.h"
#include "harness/trace/chrome_trace.h"
#include "harness/trace/transfers.h"
#include "harness/wire/json.h"

namespace plugfest::trace {
namespace {

using Bar = ChromeTrace::Bar;

// Names of the events by the number of their bit, and the track of each; no track: drawn elsewhere.
struct EventName {
  const char* name;
  const char* track;
};
constexpr EventName kEvents[] = {
    {"group", "calls"},
    {"", "operations"},
    {"", "operations"},
    {"proxy operation", nullptr},
    {"step", nullptr},
    {"", nullptr},
    {"kernel", "kernels"},
    {"work of the NIC", nullptr},
    {"group", "calls"},
    {"", "calls"},
    {"", "calls"},
    {"kernel launch", "calls"},
    {"", "operations"},
    {"sync", "copy engine"},
    {"batch", "copy engine"},
};

// By Wait.
constexpr const char* kWaitNames[kWaits] = {"waits for the GPU",    "waits for the peer", "network",
                                            "waits for the plugin", "waits for data",     "flush",
                                            "waits for the GPU"};

struct KeyName {
  Key key;
  const char* name;
};
constexpr KeyName kKeys[] = {
    {Key::kSequence, "sequence"},   {Key::kFunction, "function"}, {Key::kCount, "elements"},
    {Key::kDatatype, "type"},       {Key::kRoot, "root"},         {Key::kChannels, "channels"},
    {Key::kAlgorithm, "algorithm"}, {Key::kProtocol, "protocol"}, {Key::kPeer, "peer"},
    {Key::kChannel, "channel"},     {Key::kSteps, "steps"},       {Key::kChunkBytes, "chunk bytes"},
    {Key::kPid, "process"},         {Key::kStep, "step"},         {Key::kDepth, "depth"},
    {Key::kTimer, "GPU timer"},     {Key::kPluginId, "kind"},     {Key::kDevice, "device"},
    {Key::kWorkRequest, "wr_id"},   {Key::kOpcode, "opcode"},     {Key::kQueuePair, "queue pair"},
    {Key::kBytes, "bytes"},
};

std::string members_of(const RecordedEvent& event) {
  std::string text = fmt::format(R"("thread":{})", event.thread());
  const auto add = [&](Key key, const std::string& value) {
    for (const KeyName& known : kKeys)
      if (known.key == key) text += fmt::format(R"(,"{}":{})", known.name, value);
  };
  for (const auto& [key, value] : event.attributes.texts) add(key, wire::json_string(value));
  for (const auto& [key, value] : event.attributes.numbers) add(key, fmt::to_string(static_cast<std::int64_t>(value)));
  return text;
}

// Spreads the bars of a track over as many lanes as their overlaps need. A bar stays on one lane with those that it
// contains.
class Lanes {
 public:
  // `bars`: a bar and those inside of it.
  void add(const std::string& track, std::vector<Bar> bars) { tracks_[track].push_back(std::move(bars)); }

  void write(ChromeTrace& trace, const std::string& group) {
    for (auto& [track, all] : tracks_) {
      const auto order = [](const Bar& bar) { return std::pair(bar.start_ns, -bar.end_ns); };
      std::stable_sort(all.begin(), all.end(),
                       [&](const auto& a, const auto& b) { return order(a.front()) < order(b.front()); });
      std::vector<std::vector<std::int64_t>> lanes;  // for each lane the ends of the bars that are open
      for (std::vector<Bar>& bars : all) {
        const Bar outer = bars.front();
        const auto fits = [&](std::vector<std::int64_t>& ends) {
          while (!ends.empty() && ends.back() <= outer.start_ns) ends.pop_back();
          return ends.empty() || ends.back() >= outer.end_ns;
        };
        auto lane = std::find_if(lanes.begin(), lanes.end(), fits);
        if (lane == lanes.end()) lane = lanes.insert(lane, std::vector<std::int64_t>());
        lane->push_back(outer.end_ns);
        const std::string name = lane == lanes.begin() ? track : fmt::format("{} #{}", track, lane - lanes.begin() + 1);
        for (Bar& bar : bars) trace.add_bar(group, name, std::move(bar));
      }
    }
  }

 private:
  std::map<std::string, std::vector<std::vector<Bar>>> tracks_;
};

// "rank 0 on a", or "process 7 on a" if it has no communicator.
std::string name_of(const Recording& recording) {
  if (recording.communicators.empty()) return fmt::format("process {} on {}", recording.pid, recording.host);
  return fmt::format("rank {} on {}", recording.communicators.begin()->second.number(Key::kRank), recording.host);
}

// Draws the events of one recording other than those of transfers.
void add_events(Lanes& lanes, const Recording& recording, std::int64_t offset) {
  // An operation is stopped when it has been launched; it ends with its last proxy operation.
  std::unordered_map<std::uint64_t, std::int64_t> ends;
  for (const RecordedEvent& event : recording.events) {
    std::int64_t& end = ends[event.parent];
    end = std::max(end, event.stop_ns);
  }
  for (const RecordedEvent& event : recording.events) {
    if (event.bit >= static_cast<int>(std::size(kEvents)) || kEvents[event.bit].track == nullptr) continue;
    const EventName& known = kEvents[event.bit];
    std::int64_t end = std::max(event.start_ns, event.stop_ns);
    if (std::string_view(known.track) == "operations")
      if (const auto last = ends.find(event.id); last != ends.end()) end = std::max(end, last->second);
    const std::string function = event.attributes.text(Key::kFunction);
    const std::string track = std::string_view(known.track) == "calls"
                                  ? fmt::format("calls of thread {}", event.thread())
                                  : std::string(known.track);
    lanes.add(track, {{.name = function.empty() ? known.name : function,
                       .result = "",
                       .start_ns = event.start_ns + offset,
                       .end_ns = end + offset,
                       .members = members_of(event)}});
  }
}

// A bar for a transfer, and inside of it one for each of its waits.
std::vector<Bar> bars_of(const Transfer& transfer, const Operation& operation) {
  const std::string members = fmt::format(R"("function":{},"sequence":{},"bytes":{})",
                                          wire::json_string(operation.function), operation.sequence, transfer.bytes);
  std::vector<Bar> bars = {{.name = fmt::format("{} {}", transfer.sends ? "send" : "receive", transfer.step),
                            .result = "",
                            .start_ns = transfer.start,
                            .end_ns = transfer.stop,
                            .members = members}};
  for (const auto& [kind, from, to] : transfer.waits())
    if (to > from)
      bars.push_back({.name = kWaitNames[kind], .result = "", .start_ns = from, .end_ns = to, .members = members});
  return bars;
}

// The messages of a capture, each linked to the work of a NIC that a net plugin reported.
class Messages {
 public:
  explicit Messages(const CapturedJob* job) : job_(job) {
    if (job == nullptr) return;
    messages_ = messages_of(*job);
    linked_.resize(messages_.size());
    for (std::size_t i = 0; i < messages_.size(); ++i)
      by_queue_pair_[{interface_of(messages_[i].from).first, messages_[i].sender_queue_pair}].push_back(i);
  }

  // The number of an arrow from the event to its message; 0 if there is none. The work of a NIC ends after the
  // acknowledgement, so the message is the first one of that size that was acknowledged meanwhile.
  std::uint64_t flow_of(const Recording& recording, const RecordedEvent& event) {
    const auto queue_pair = static_cast<std::uint32_t>(event.attributes.number(Key::kQueuePair));
    const auto found = by_queue_pair_.find({recording.host, queue_pair});
    if (found == by_queue_pair_.end()) return 0;
    const std::int64_t start = event.start_ns + recording.realtime_offset_ns;
    const std::int64_t stop = event.stop_ns + recording.realtime_offset_ns;
    auto first =
        std::lower_bound(found->second.begin(), found->second.end(), start,
                         [&](std::size_t i, std::int64_t time) { return messages_[i].start_ns < time - kLongestNs; });
    for (; first != found->second.end() && messages_[*first].start_ns <= stop; ++first) {
      const Message& message = messages_[*first];
      if (linked_[*first] || message.acknowledged_ns < start || message.acknowledged_ns > stop + kSlackNs ||
          message.bytes != static_cast<std::uint64_t>(event.attributes.number(Key::kBytes)))
        continue;
      linked_[*first] = true;
      return kFirstFlow + *first;
    }
    return 0;
  }

  // `offset`: added to the times of the capture.
  void write(ChromeTrace& trace, std::int64_t offset) {
    std::map<std::string, Lanes> hosts;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      const auto [host, interface] = interface_of(message.from);
      const auto [peer, peer_interface] = interface_of(message.to);
      hosts[host].add(
          fmt::format("{} to {} {}, queue pair 0x{:x}", interface, peer, peer_interface, message.sender_queue_pair),
          {{.name = fmt::format("{} {} bytes{}", message.what, message.bytes,
                                message.retransmissions > 0 ? ", retransmitted" : ""),
            .result = "",
            .start_ns = message.start_ns + offset,
            .end_ns = std::max(message.end_ns, message.acknowledged_ns) + offset,
            .members = fmt::format(
                R"("packets":{},"retransmissions":{},"first PSN":{},"last PSN":{},"acknowledged":{})", message.packets,
                message.retransmissions, message.first_psn, message.last_psn, message.acknowledged_ns != 0),
            .flow_in = linked_[i] ? kFirstFlow + i : 0}});
    }
    for (auto& [host, lanes] : hosts) lanes.write(trace, "packets of " + host);
  }

 private:
  static constexpr std::uint64_t kFirstFlow = std::uint64_t{1} << 40;  // above the numbers of transfers
  static constexpr std::int64_t kLongestNs = 1'000'000'000, kSlackNs = 1'000'000;

  // The host and the interface of an address; the address itself if it is unknown.
  std::pair<std::string, std::string> interface_of(const std::string& address) const {
    const auto found = job_->interfaces.find(address);
    if (found == job_->interfaces.end()) return {address, ""};
    const std::size_t dot = found->second.rfind('.');
    return {found->second.substr(0, dot), found->second.substr(dot + 1)};
  }

  const CapturedJob* job_;
  std::vector<Message> messages_;
  std::vector<bool> linked_;
  std::map<std::pair<std::string, std::uint32_t>, std::vector<std::size_t>> by_queue_pair_;
};

Bar* bar_named(std::vector<Bar>& bars, std::string_view name) {
  const auto found = std::find_if(bars.begin(), bars.end(), [&](const Bar& bar) { return bar.name == name; });
  return found == bars.end() ? nullptr : &*found;
}

}  // namespace

std::string merge(const std::vector<Recording>& recordings, const CapturedJob* job) {
  std::vector<TransferSource> sources;
  const Transfers transfers = transfers_of(recordings, &sources);
  const std::vector<std::size_t> others = matched(transfers);
  const std::int64_t origin = first_event_ns(recordings);
  std::vector<Lanes> lanes(recordings.size());
  std::vector<std::unordered_map<std::uint64_t, std::vector<const RecordedEvent*>>> net_events(recordings.size());
  Messages messages(job);
  const auto offset_of = [&](std::size_t i) { return clock_offset_ns(recordings.front(), recordings[i]) - origin; };
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    add_events(lanes[i], recordings[i], offset_of(i));
    for (const RecordedEvent& event : recordings[i].events)
      if (event.bit == abi::bit_of(abi::kProfileNetPlugin) && event.stop_ns != 0)
        net_events[i][event.parent].push_back(&event);
  }
  for (std::size_t i = 0; i < transfers.transfers.size(); ++i) {
    const Transfer& transfer = transfers.transfers[i];
    std::vector<Bar> bars = bars_of(transfer, transfers.operations[transfer.operation]);
    if (others[i] != kUnmatched) {
      Bar* const bar = bar_named(bars, kWaitNames[transfer.sends ? kSendNetwork : kReceiveData]);
      const std::uint64_t flow = std::min(i, others[i]) + 1;
      if (bar != nullptr) (transfer.sends ? bar->flow_out : bar->flow_in) = flow;
    }
    const std::string track =
        fmt::format("channel {:02} {} rank {}", transfer.channel, transfer.sends ? "to" : "from", transfer.peer);
    const std::size_t number = sources[i].recording;
    const std::uint64_t step = recordings[number].events[sources[i].event].id;
    lanes[number].add(track, std::move(bars));
    if (const auto found = net_events[number].find(step); found != net_events[number].end())
      for (const RecordedEvent* event : found->second) {
        const std::uint64_t flow = transfer.sends ? messages.flow_of(recordings[number], *event) : 0;
        lanes[number].add(track + ", NIC", {{.name = "work of the NIC",
                                             .result = "",
                                             .start_ns = event->start_ns + offset_of(number),
                                             .end_ns = event->stop_ns + offset_of(number),
                                             .members = members_of(*event),
                                             .flow_out = flow}});
      }
  }
  ChromeTrace trace;
  for (std::size_t i = 0; i < recordings.size(); ++i) lanes[i].write(trace, name_of(recordings[i]));
  if (!recordings.empty()) messages.write(trace, -recordings.front().realtime_offset_ns - origin);
  return trace.json(fmt::format(",\n\"{}\":{}\n", kTransfersKey, json_line(transfers)));
}

}  // namespace plugfest::trace
