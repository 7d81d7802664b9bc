#include "harness/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
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

constexpr int kWorkOfNic = abi::bit_of(abi::kProfileNetPlugin);

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
    {Key::kBytes, "bytes"},         {Key::kRefusals, "refusals"}, {Key::kTests, "tests"},
    {Key::kPluginNs, "plugin ns"},
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
  // `bars`: a bar and the bars inside it.
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

// Draws the events of one recording except transfers.
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

// Draws when the threads of a process waited for a processor.
void add_processor_waits(Lanes& lanes, const Recording& recording, std::int64_t offset) {
  for (const auto& [thread, start, stop, waited] : recording.processor_waits)
    lanes.add(fmt::format("thread {} waits for a processor", thread),
              {{.name = fmt::format("{:.1f} of {:.1f} ms", static_cast<double>(waited) / 1e6,
                                    static_cast<double>(stop - start) / 1e6),
                .result = "",
                .start_ns = start + offset,
                .end_ns = std::max(start, stop) + offset,
                .members = fmt::format(R"("thread":{},"waited ns":{})", thread, waited)}});
}

// A bar for the transfer of a number, and inside it one for each of its waits.
std::vector<Bar> bars_of(const Transfer& transfer, std::size_t number, const Operation& operation) {
  const std::string members = fmt::format(R"("transfer":{},"function":{},"sequence":{},"bytes":{})", number,
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
  explicit Messages(const CapturedJob* job) : job_(job) {}

  // `transfer`: index of the send that the event belongs to.
  void add_work(const Recording& recording, const RecordedEvent& event, std::size_t transfer) {
    numbers_[&event] = works_.size();
    works_.push_back({.host = recording.host,
                      .queue_pair = static_cast<std::uint32_t>(event.attributes.number(Key::kQueuePair)),
                      .bytes = static_cast<std::uint64_t>(event.attributes.number(Key::kBytes)),
                      .start_ns = event.start_ns + recording.realtime_offset_ns,
                      .stop_ns = event.stop_ns + recording.realtime_offset_ns});
    transfers_.push_back(transfer);
  }

  // Finds the messages of all work.
  void link() {
    if (job_ == nullptr) return;
    messages_ = messages_of(*job_);
    work_ = work_of(*job_, messages_, works_);
    last_.assign(works_.size(), kNoWork);
    for (std::size_t i = 0; i < messages_.size(); ++i)
      if (work_[i] != kNoWork) last_[work_[i]] = i;
  }

  // Adds the retransmissions of the messages to their transfers.
  void add_retransmissions(Transfers& transfers) const {
    for (std::size_t i = 0; i < messages_.size(); ++i)
      if (work_[i] != kNoWork)
        transfers.transfers[transfers_[work_[i]]].retransmissions += messages_[i].retransmissions;
  }

  // The number of an arrow from the event to the last message of its work; 0 if there is none.
  std::uint64_t flow_of(const RecordedEvent& event) const {
    const auto number = numbers_.find(&event);
    if (job_ == nullptr || number == numbers_.end() || last_[number->second] == kNoWork) return 0;
    return kFirstFlow + last_[number->second];
  }

  // `offset`: added to the times of the capture.
  void write(ChromeTrace& trace, std::int64_t offset) const {
    std::map<std::string, Lanes> hosts;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      const auto [host, interface] = interface_of(*job_, message.from);
      const auto [peer, peer_interface] = interface_of(*job_, message.to);
      const bool linked = work_[i] != kNoWork;
      hosts[host].add(
          fmt::format("{} to {} {}, queue pair 0x{:x}", interface, peer, peer_interface, message.sender_queue_pair),
          {{.name = fmt::format("{} {} bytes{}", message.what, message.bytes,
                                message.retransmissions > 0 ? ", retransmitted" : ""),
            .result = "",
            .start_ns = message.start_ns + offset,
            .end_ns = std::max(message.end_ns, message.acknowledged_ns) + offset,
            .members = fmt::format(
                R"("packets":{},"retransmissions":{},"first PSN":{},"last PSN":{},"acknowledged":{}{})",
                message.packets, message.retransmissions, message.first_psn, message.last_psn,
                message.acknowledged_ns != 0, linked ? fmt::format(R"(,"transfer":{})", transfers_[work_[i]]) : ""),
            .flow_in = linked && last_[work_[i]] == i ? kFirstFlow + i : 0}});
    }
    if (job_ != nullptr) add_faults(hosts, offset);
    for (auto& [host, lanes] : hosts) lanes.write(trace, "packets of " + host);
  }

 private:
  // Each NIC's faults last until it comments others, or until the last packet.
  void add_faults(std::map<std::string, Lanes>& hosts, std::int64_t offset) const {
    constexpr std::string_view kPrefix = "faults from here: ";
    const double length = job_->capture.packets.empty() ? 0 : job_->capture.packets.back().time;
    for (auto comment = job_->comments.begin(); comment != job_->comments.end(); ++comment) {
      if (!comment->text.starts_with(kPrefix) || comment->text.substr(kPrefix.size()) == "none") continue;
      const auto next = std::find_if(comment + 1, job_->comments.end(),
                                     [&](const PacketComment& other) { return other.from == comment->from; });
      const auto [host, interface] = interface_of(*job_, comment->from);
      hosts[host].add("faults of " + interface,
                      {{.name = comment->text.substr(kPrefix.size()),
                        .result = "",
                        .start_ns = comment->time_ns + offset,
                        .end_ns = offset + (next != job_->comments.end() ? next->time_ns
                                                                         : job_->first_ns + std::llround(length * 1e9)),
                        .members = R"("address":)" + wire::json_string(comment->from)}});
    }
  }

  static constexpr std::uint64_t kFirstFlow = std::uint64_t{1} << 40;  // above the numbers of transfers

  const CapturedJob* job_;
  std::vector<Work> works_;
  std::vector<std::size_t> transfers_;  // by work
  std::unordered_map<const RecordedEvent*, std::size_t> numbers_;
  std::vector<Message> messages_;
  std::vector<std::size_t> work_;  // by message
  std::vector<std::size_t> last_;  // by work
};

Bar* bar_named(std::vector<Bar>& bars, std::string_view name) {
  const auto found = std::find_if(bars.begin(), bars.end(), [&](const Bar& bar) { return bar.name == name; });
  return found == bars.end() ? nullptr : &*found;
}

}  // namespace

std::string merge(const std::vector<Recording>& recordings, const CapturedJob* job) {
  std::vector<TransferSource> sources;
  Transfers transfers = transfers_of(recordings, &sources);
  const std::vector<std::size_t> others = matched(transfers);
  const std::int64_t origin = first_event_ns(recordings);
  std::vector<Lanes> lanes(recordings.size());
  std::vector<std::unordered_map<std::uint64_t, std::vector<const RecordedEvent*>>> children(recordings.size());
  const auto children_of = [&](std::size_t i) -> const std::vector<const RecordedEvent*>& {
    return children[sources[i].recording][recordings[sources[i].recording].events[sources[i].event].id];
  };
  const auto offset_of = [&](std::size_t i) { return clock_offset_ns(recordings.front(), recordings[i]) - origin; };
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    add_events(lanes[i], recordings[i], offset_of(i));
    add_processor_waits(lanes[i], recordings[i], offset_of(i));
    for (const RecordedEvent& event : recordings[i].events)
      if ((event.bit == kWorkOfNic || event.bit == kPluginCall) && event.stop_ns != 0)
        children[i][event.parent].push_back(&event);
  }
  Messages messages(job);
  for (std::size_t i = 0; i < transfers.transfers.size(); ++i)
    if (transfers.transfers[i].sends)
      for (const RecordedEvent* event : children_of(i))
        if (event->bit == kWorkOfNic) messages.add_work(recordings[sources[i].recording], *event, i);
  messages.link();
  messages.add_retransmissions(transfers);
  for (std::size_t i = 0; i < transfers.transfers.size(); ++i) {
    const Transfer& transfer = transfers.transfers[i];
    std::vector<Bar> bars = bars_of(transfer, i, transfers.operations[transfer.operation]);
    if (others[i] != kUnmatched) {
      Bar* const bar = bar_named(bars, kWaitNames[transfer.sends ? kSendNetwork : kReceiveData]);
      const std::uint64_t flow = std::min(i, others[i]) + 1;
      if (bar != nullptr) (transfer.sends ? bar->flow_out : bar->flow_in) = flow;
    }
    const std::string track =
        fmt::format("channel {:02} {} rank {}", transfer.channel, transfer.sends ? "to" : "from", transfer.peer);
    const std::size_t number = sources[i].recording;
    lanes[number].add(track, std::move(bars));
    for (const RecordedEvent* event : children_of(i)) {
      const bool is_call = event->bit == kPluginCall;
      lanes[number].add(track + (is_call ? ", plugin" : ", NIC"),
                        {{.name = is_call ? event->attributes.text(Key::kFunction) : kEvents[kWorkOfNic].name,
                          .result = "",
                          .start_ns = event->start_ns + offset_of(number),
                          .end_ns = event->stop_ns + offset_of(number),
                          .members = fmt::format(R"("transfer":{},{})", i, members_of(*event)),
                          .flow_out = messages.flow_of(*event)}});
    }
  }
  ChromeTrace trace;
  for (std::size_t i = 0; i < recordings.size(); ++i) lanes[i].write(trace, name_of(recordings[i]));
  if (!recordings.empty()) messages.write(trace, -recordings.front().realtime_offset_ns - origin);
  return trace.json(fmt::format(",\n\"{}\":{}\n", kTransfersKey, json_line(transfers)));
}

}  // namespace plugfest::trace
