#include "harness/trace/messages.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "fabric/roce/wire/wire.h"
#include "harness/trace/packets.h"

namespace plugfest::trace {
namespace {

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
  job.capture = read_packets(path, std::numeric_limits<std::size_t>::max(), &job.first_ns);
  job.interfaces = std::move(interfaces);
  return job;
}

std::vector<Message> messages_of(const CapturedJob& job) {
  Collector collector(job.first_ns);
  for (const report::PacketRecord& packet : job.capture.packets) collector.add(packet);
  return collector.finish();
}

}  // namespace plugfest::trace
