#include "harness/trace/messages.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "fabric/roce/wire/wire.h"

namespace plugfest::trace {
namespace {

// CLOCK_REALTIME may run faster or slower than CLOCK_MONOTONIC while it is adjusted.
constexpr std::int64_t kSlackNs = 1'000'000;

// Whether `psn` is not after `last`.
bool covers(std::uint32_t last, std::uint32_t psn) { return roce::Psn(psn).after(roce::Psn(last)) <= 0; }

// The requests of a queue pair to another one.
struct Stream {
  std::optional<Message> open;  // its last packet has not come yet
  std::deque<Message> unacknowledged;
  std::uint32_t sender_queue_pair = 0;
};

class Collector {
 public:
  explicit Collector(std::int64_t first_ns) : first_ns_(first_ns) {}

  void add(const report::PacketRecord& packet) {
    const std::int64_t now = first_ns_ + std::llround(packet.time * 1e9);
    if (packet.what == "ACK" && packet.mark.empty()) acknowledge(packet, now);
    const std::string kind = packet.what.substr(0, packet.what.find(' '));
    if (kind != "WRITE" && kind != "SEND") return;
    Stream& stream = streams_[{packet.from, packet.to, packet.queue_pair}];
    if (packet.mark == "retransmission") {
      for (Message& message : stream.unacknowledged)
        if (covers(packet.psn, message.first_psn) && covers(message.last_psn, packet.psn)) ++message.retransmissions;
      return;
    }
    const auto is = [&](const char* place) { return packet.what.find(place) != std::string::npos; };
    if (is(" first") || is(" only"))
      stream.open = Message{.from = packet.from,
                            .to = packet.to,
                            .what = kind,
                            .queue_pair = packet.queue_pair,
                            .first_psn = packet.psn,
                            .start_ns = now};
    if (!stream.open) return;
    Message& message = *stream.open;
    message.last_psn = packet.psn;
    message.bytes += packet.bytes;
    ++message.packets;
    message.end_ns = now;
    if (!is(" last") && !is(" only")) return;
    stream.unacknowledged.push_back(std::move(message));
    stream.open.reset();
  }

  std::vector<Message> finish() {
    for (auto& [key, stream] : streams_)
      for (Message& message : stream.unacknowledged) take(stream, std::move(message));
    std::stable_sort(done_.begin(), done_.end(),
                     [](const Message& a, const Message& b) { return a.start_ns < b.start_ns; });
    return std::move(done_);
  }

 private:
  // An acknowledgement names the queue pair of the requester only. Its number tells which stream it is for: queue pairs
  // begin with random numbers.
  void acknowledge(const report::PacketRecord& packet, std::int64_t now) {
    for (auto& [key, stream] : streams_) {
      const auto& [from, to, queue_pair] = key;
      if (from != packet.to || to != packet.from || stream.unacknowledged.empty()) continue;
      if (stream.sender_queue_pair != 0 && stream.sender_queue_pair != packet.queue_pair) continue;
      std::deque<Message>& waiting = stream.unacknowledged;
      if (stream.sender_queue_pair == 0 &&
          std::none_of(waiting.begin(), waiting.end(), [&](const Message& m) { return m.last_psn == packet.psn; }))
        continue;
      stream.sender_queue_pair = packet.queue_pair;
      for (; !waiting.empty() && covers(packet.psn, waiting.front().last_psn); waiting.pop_front()) {
        waiting.front().acknowledged_ns = now;
        take(stream, std::move(waiting.front()));
      }
      return;
    }
  }

  void take(const Stream& stream, Message message) {
    message.sender_queue_pair = stream.sender_queue_pair;
    done_.push_back(std::move(message));
  }

  const std::int64_t first_ns_;
  std::map<std::tuple<std::string, std::string, std::uint32_t>, Stream> streams_;
  std::vector<Message> done_;
};

}  // namespace

CapturedJob read_job_packets(const std::string& path, std::map<std::string, std::string> interfaces) {
  CapturedJob job;
  CaptureDetails details;
  job.capture = read_packets(path, std::numeric_limits<std::size_t>::max(), &details);
  job.first_ns = details.first_ns;
  job.comments = std::move(details.comments);
  job.interfaces = std::move(interfaces);
  return job;
}

std::vector<Message> messages_of(const CapturedJob& job) {
  Collector collector(job.first_ns);
  for (const report::PacketRecord& packet : job.capture.packets) collector.add(packet);
  return collector.finish();
}

std::pair<std::string, std::string> interface_of(const CapturedJob& job, const std::string& address) {
  const auto found = job.interfaces.find(address);
  if (found == job.interfaces.end()) return {address, ""};
  const std::size_t dot = found->second.rfind('.');
  return {found->second.substr(0, dot), found->second.substr(dot + 1)};
}

std::vector<std::size_t> work_of(const CapturedJob& job, const std::vector<Message>& messages,
                                 const std::vector<Work>& works) {
  using QueuePair = std::pair<std::string, std::uint32_t>;
  std::map<QueuePair, std::vector<std::size_t>> sent, posted;
  for (std::size_t i = 0; i < messages.size(); ++i)
    sent[{interface_of(job, messages[i].from).first, messages[i].sender_queue_pair}].push_back(i);
  for (std::size_t i = 0; i < works.size(); ++i) posted[{works[i].host, works[i].queue_pair}].push_back(i);
  std::vector<std::size_t> result(messages.size(), kNoWork);
  for (auto& [queue_pair, indices] : posted) {
    std::stable_sort(indices.begin(), indices.end(),
                     [&](std::size_t a, std::size_t b) { return works[a].start_ns < works[b].start_ns; });
    const std::vector<std::size_t>& own = sent[queue_pair];
    std::size_t next = 0;  // messages before it belong to earlier work, or to none
    for (const std::size_t index : indices) {
      const Work& work = works[index];
      while (next < own.size() && messages[own[next]].start_ns < work.start_ns - kSlackNs) ++next;
      for (std::size_t first = next; first < own.size() && messages[own[first]].start_ns <= work.stop_ns + kSlackNs;
           ++first) {
        std::size_t end = first;
        std::uint64_t bytes = 0;
        do {
          bytes += messages[own[end++]].bytes;
        } while (bytes < work.bytes && end < own.size() && messages[own[end]].what == messages[own[first]].what);
        if (bytes != work.bytes) continue;
        for (next = first; next < end; ++next) result[own[next]] = index;
        break;
      }
    }
  }
  return result;
}

}  // namespace plugfest::trace
