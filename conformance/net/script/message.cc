// Transfers and checks of content and size.
#include "conformance/net/script/message.h"

#include <fmt/format.h>

#include "conformance/rules/body_result.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

Registered allocate(control::Rank rank, const control::Comm& comm, std::size_t size, control::Placement placement) {
  control::Memory memory = rank.allocate(size, placement);
  control::Registration registration = comm.reg(memory);
  return {std::move(memory), std::move(registration)};
}

std::vector<Stream> connect_streams(const control::Endpoint& sender, const control::Endpoint& receiver,
                                    std::size_t count, std::size_t size) {
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [send, receive] = control::connect(sender, receiver);
    streams.push_back({send, receive, allocate(sender.rank, send, size), allocate(receiver.rank, receive, size)});
  }
  return streams;
}

int transfer(control::Rank sender, const control::SendComm& send, const control::Buffer& from, control::Rank receiver,
             const control::RecvComm& receive, const control::Buffer& to, std::uint64_t seed, const std::string& what,
             int tag) {
  sender.fill(from.slice, seed);
  control::Receive receiving(receive, to, tag);
  control::Send sending(send, from, tag);
  control::finish({&receiving, &sending});
  require_content(receiver, to.slice.sub(0, from.slice.size), seed, what);
  return receiving.size();
}

int deliver(const control::Endpoint& sender, const control::SendComm& send, const control::Endpoint& receiver,
            const control::RecvComm& receive, const Message& message) {
  const std::size_t posted_size = message.posted_size.value_or(message.size);
  // NCCL never registers 0 bytes, so an empty message has a registration of 1 byte.
  Registered from = allocate(sender.rank, send, std::max<std::size_t>(message.size, 1));
  Registered to = allocate(receiver.rank, receive, std::max<std::size_t>(posted_size, 1));
  const int size = transfer(
      sender.rank, send, from.buffer(0, message.size), receiver.rank, receive, to.buffer(0, posted_size), message.seed,
      fmt::format("a message of {}, tag {}", counted(message.size, "byte"), message.tag), message.tag);
  for (Registered* memory : {&from, &to}) {
    memory->registration.dereg();
    memory->memory.free();
  }
  return size;
}

void require_content(control::Rank rank, const control::Slice& slice, std::uint64_t seed, const std::string& what) {
  const control::Check check = rank.check(slice, seed);
  if (!check)
    throw Broken(fmt::format("rank {}: {} arrived with wrong bytes: {}", rank.name(), what, check.difference));
}

control::Connection connect_and_deliver(const control::Endpoint& from, const control::Endpoint& to,
                                        std::uint64_t seed) {
  control::Connection connection = control::connect(from, to);
  deliver(from, to, connection, {.size = 1000, .seed = seed});
  return connection;
}

std::vector<control::Request> post_ahead(const control::RecvComm& comm, const Registered& to, std::size_t size,
                                         std::size_t count) {
  constexpr int kAttempts = 100;
  std::vector<control::Request> requests;
  for (int attempt = 0; attempt < kAttempts && requests.size() < count; ++attempt) {
    const control::Request request = comm.irecv(to.buffer(requests.size() * size, size));
    if (!request) continue;
    requests.push_back(request);
    attempt = 0;
  }
  if (requests.empty()) {
    throw NotApplicable(
        fmt::format("rank {}: irecv returns no request before the sender calls isend", comm.rank_name()));
  }
  return requests;
}

void require_size(const std::string& rank, int reported, std::size_t sent, const std::string& what) {
  if (static_cast<std::int64_t>(reported) == static_cast<std::int64_t>(sent)) return;
  throw Broken(fmt::format("rank {}: test reported size {} for {}, expected {}", rank, reported, what, sent));
}

void during_streams(const control::Connection& connection, std::mt19937_64& random, int count,
                    const std::function<void()>& step) {
  for (int steps = 0; steps < count;) {
    const control::StreamPlan plan{.count = 1500, .seed = random(), .sizes = {64, 4096, 20000}};
    std::vector<control::Started<control::StreamOutcome>> streams;
    streams.push_back(control::start_sending(connection.send, plan));
    streams.push_back(control::start_receiving(connection.receive, plan));
    do {
      step();
      ++steps;
    } while (!streams[0].ready() || !streams[1].ready());
    control::require_all_clean(std::move(streams));
  }
}

}  // namespace plugfest::conformance
