#include "conformance/net/script/flow.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

namespace {

constexpr int kHost = 1, kCuda = 2;  // NCCL_PTR_HOST, NCCL_PTR_CUDA

}  // namespace

bool has_cuda_bit(Endpoint endpoint) { return (endpoint.rank.properties(endpoint.device).ptr_support & kCuda) != 0; }

Registered allocate(Rank rank, const Comm& comm, std::size_t size, Placement placement) {
  Memory memory = rank.allocate(size, placement);
  Registration registration = placement == Placement::kGpu ? comm.reg(memory, kCuda) : register_pages(comm, memory);
  return {std::move(memory), std::move(registration)};
}

Registration register_pages(const Comm& comm, const Memory& memory) {
  return comm.registration(memory, comm.reg(memory.pages(), kHost).value());
}

Registered allocate_lockable(Rank rank, const Comm& comm, std::size_t size) {
  try {
    return allocate(rank, comm, size);
  } catch (const Deviation& refused) {
    rlimit locked{};
    if (prlimit(rank.pid(), RLIMIT_MEMLOCK, nullptr, &locked) != 0 || locked.rlim_cur >= size) throw;
    if (comm.try_reg(rank.allocate(locked.rlim_cur + 4096)).ok()) throw;
    throw Skipped(
        fmt::format("{}; the rank may lock {} (RLIMIT_MEMLOCK)", refused.what(), counted(locked.rlim_cur, "byte")));
  }
}

std::vector<RegisteredConnection> connect_registered(const Endpoint& sender, const Endpoint& receiver,
                                                     std::size_t count, std::size_t size) {
  std::vector<RegisteredConnection> streams;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [send, receive] = connect(sender, receiver);
    streams.push_back({send, receive, allocate(sender.rank, send, size), allocate(receiver.rank, receive, size)});
  }
  return streams;
}

RegisteredConnection connect_another_communicator(const Endpoint& sender, const Endpoint& receiver, std::size_t size) {
  const auto on_its_thread = [](const Endpoint& endpoint) {
    return Endpoint{endpoint.rank.on("svc2"), endpoint.device};
  };
  RegisteredConnection connected = connect_registered(on_its_thread(sender), on_its_thread(receiver), 1, size).front();
  connected.send = connected.send.on("prog2");
  connected.receive = connected.receive.on("prog2");
  return connected;
}

int transfer(Rank sender, const SendComm& send, const Buffer& from, Rank receiver, const RecvComm& receive,
             const Buffer& to, std::uint64_t seed, const std::string& what, int tag) {
  sender.fill(from.slice, seed);
  Receive receiving(receive, to, tag);
  Send sending(send, from, tag);
  finish({&receiving, &sending});
  require_content(receiver, to.slice.sub(0, from.slice.size), seed, what);
  return receiving.size();
}

int deliver(const Endpoint& sender, const SendComm& send, const Endpoint& receiver, const RecvComm& receive,
            const Message& message) {
  const std::size_t posted_size = message.posted_size.value_or(message.size);
  // NCCL never registers 0 bytes, so an empty message has a registration of 1 byte.
  Registered from = allocate(sender.rank, send, std::max<std::size_t>(message.size, 1));
  Registered to = allocate(receiver.rank, receive, std::max<std::size_t>(posted_size, 1));
  const int size = transfer(
      sender.rank, send, from.buffer(0, message.size), receiver.rank, receive, to.buffer(0, posted_size), message.seed,
      fmt::format("a message of {}, tag {}", counted(message.size, "byte"), message.tag), message.tag);
  from.release();
  to.release();
  return size;
}

void require_content(Rank rank, const Slice& slice, std::uint64_t seed, const std::string& what) {
  const Check check = rank.check(slice, seed);
  if (!check)
    throw Broken(fmt::format("rank {}: {} arrived with wrong bytes: {}", rank.name(), what, check.difference));
}

Connection connect_and_deliver(const Endpoint& from, const Endpoint& to, std::uint64_t seed, std::size_t size) {
  Connection connection = connect(from, to);
  deliver(from, to, connection, {.size = size, .seed = seed});
  return connection;
}

std::vector<Request> post_ahead(const RecvComm& comm, const Registered& to, std::size_t size, std::size_t count) {
  constexpr int kAttempts = 100;
  std::vector<Request> requests;
  for (int attempt = 0; attempt < kAttempts && requests.size() < count; ++attempt) {
    const Request request = comm.irecv(to.buffer(requests.size() * size, size));
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
  if (reported == kUnwrittenSize)
    throw WrongSize(rank, fmt::format("rank {}: test did not write the size of {}, expected {}", rank, what, sent));
  throw WrongSize(rank, fmt::format("rank {}: test reported size {} for {}, expected {}", rank, reported, what, sent));
}

void during_streams(const Connection& connection, std::mt19937_64& random, int count,
                    const std::function<void()>& step) {
  for (int steps = 0; steps < count;) {
    const StreamPlan plan{.count = 1500, .seed = random(), .sizes = {64, 4096, 20000}};
    std::vector<Started<StreamOutcome>> streams;
    streams.push_back(start_sending(connection.send, plan));
    streams.push_back(start_receiving(connection.receive, plan));
    do {
      step();
      ++steps;
    } while (!streams[0].ready() || !streams[1].ready());
    require_all_clean(std::move(streams));
  }
}

Trial::Trial(std::function<PointerOutcome()> post, std::function<Request(std::uint64_t)> request)
    : post_(std::move(post)), to_request_(std::move(request)), request_(to_request_(0)) {}

Trial Trial::send(const SendComm& comm, const Buffer& buffer, int tag) {
  return {[=] { return comm.try_isend(buffer, tag); }, [=](std::uint64_t value) { return comm.request(value); }};
}

Trial Trial::receive(const RecvComm& comm, const std::vector<Part>& parts) {
  return {[=] { return comm.try_irecv(parts); }, [=](std::uint64_t value) { return comm.request(value); }};
}

bool Trial::turn() {
  if (over_) return true;
  if (!request_) {
    const PointerOutcome outcome = post_();
    last_ = outcome;
    if (outcome.ok() && outcome.value != 0) request_ = to_request_(outcome.value);
  } else {
    const TestOutcome outcome = request_.try_test();
    last_ = outcome;
    over_ = outcome.ok() && outcome.done == 1;
    if (over_) size_ = outcome.sizes.at(0);
  }
  code_ = last_.code;
  over_ = over_ || !last_.ok();
  return over_;
}

std::string Trial::describe() const {
  if (done()) return fmt::format("reported {}", counted(static_cast<std::size_t>(size_), "byte"));
  if (!over_) return "did not complete";
  return fmt::format("{} with {}", accepted() ? "failed" : "was refused", result_name(code_));
}

bool drive(std::initializer_list<Trial*> trials, int turns) {
  for (int i = 0; i < turns; ++i) {
    bool over = true;
    for (Trial* trial : trials) over = trial->turn() && over;
    if (over) return true;
  }
  return false;
}

Flow::Flow(Traffic& traffic, std::mt19937_64& random, Endpoint sender, Endpoint receiver, Connection connection,
           std::size_t slots, std::size_t slot_size, Placement placement)
    : traffic_(&traffic),
      random_(&random),
      sender_(std::move(sender)),
      receiver_(std::move(receiver)),
      connection_(std::move(connection)),
      slot_size_(slot_size),
      from_(allocate(sender_.rank, connection_.send, slots * slot_size, placement)),
      to_(allocate(receiver_.rank, connection_.receive, slots * slot_size, placement)) {}

Buffer Flow::source(std::size_t slot, std::size_t size) const { return from_.buffer(slot * slot_size_, bytes(size)); }

Buffer Flow::target(std::size_t slot, std::size_t size) const { return to_.buffer(slot * slot_size_, bytes(size)); }

Buffer Flow::fill(std::size_t slot, std::size_t size, int tag) {
  const Buffer buffer = source(slot, size);
  const std::uint64_t seed = (*random_)();
  sender_.rank.fill(buffer.slice, seed);
  unchecked_.insert_or_assign(slot, Message{seed, buffer.slice.size, tag});
  return buffer;
}

Flow::Ticket Flow::send(std::size_t slot, std::size_t size, int tag) {
  return traffic_->send(connection_.send, fill(slot, size, tag), tag);
}

Flow::Ticket Flow::send_filled(std::size_t slot) {
  const Message& message = unchecked_.at(slot);
  return traffic_->send(connection_.send, source(slot, message.size), message.tag);
}

Flow::Ticket Flow::receive(std::size_t slot, std::size_t size, int tag, const PostOptions& options) {
  return traffic_->receive(connection_.receive, target(slot, size), tag, options);
}

std::vector<Part> Flow::parts(std::size_t first, const std::vector<int>& tags) const {
  std::vector<Part> parts;
  for (const int tag : tags) parts.push_back({target(first++), tag});
  return parts;
}

Flow::Ticket Flow::receive_group(std::size_t first, const std::vector<int>& tags) {
  return traffic_->receive(connection_.receive, parts(first, tags));
}

Started<WatchOutcome> Flow::watch(std::size_t slot, bool words, bool lines) {
  const Message& message = unchecked_.at(slot);
  return start_watching(receiver_.rank, target(slot, message.size).slice, message.seed, words, lines);
}

void Flow::check(std::size_t slot) {
  const Message message = unchecked_.at(slot);
  unchecked_.erase(slot);
  require_content(receiver_.rank, target(slot, message.size).slice, message.seed,
                  fmt::format("message {} ({}, tag {})", slot, counted(message.size, "byte"), message.tag));
}

void Flow::check() {
  while (!unchecked_.empty()) check(unchecked_.begin()->first);
}

void Flow::finish() {
  traffic_->finish();
  check();
}

int Flow::exchange(std::size_t slot, std::size_t size, int tag) {
  const Ticket received = receive(slot, size, tag);
  send(slot, size, tag);
  finish();
  return traffic_->size(received);
}

Traffic& MessageRule::traffic() {
  if (!traffic_) traffic_.emplace(stall_limit());
  return *traffic_;
}

Flow MessageRule::make_flow(std::size_t slots, std::size_t slot_size) {
  return make_flow(sender(), receiver(), slots, slot_size);
}

Flow MessageRule::make_flow(const Endpoint& from, const Endpoint& to, std::size_t slots, std::size_t slot_size) {
  return {traffic(), random(), from, to, connect(from, to), slots, slot_size};
}

Flow MessageRule::make_flow(const Connection& connection, std::size_t slots, std::size_t slot_size) {
  return {traffic(), random(), sender(), receiver(), connection, slots, slot_size};
}

bool MessageRule::may_transfer_gpu_memory() { return !context().gpu || has_cuda_bit(receiver()); }

bool MessageRule::registers_during_transfers() { return may_transfer_gpu_memory() || max_recvs() > 1; }

void MessageRule::judge_sizes(const std::function<void()>& part) {
  try {
    part();
  } catch (const WrongSize& wrong) {
    if (may_transfer_gpu_memory()) throw;
    should(std::exchange(warned_of_size_, true), wrong.what());
  }
}

void MessageRule::judge_sent_size(int reported, std::size_t sent, const std::string& what) {
  if (api() > 8) return;
  try {
    require_size(sender().rank.name(), reported, sent, what);
  } catch (const WrongSize& wrong) {
    if (reported != 0 && has_cuda_bit(sender())) throw;
    should(false, wrong.what());
  }
}

std::size_t MessageRule::usual_size(std::size_t size) {
  return may_transfer_gpu_memory() ? size : std::min(size, std::size_t{4} << 20);
}

std::size_t MessageRule::max_recvs() {
  Endpoint endpoint = receiver();
  return static_cast<std::size_t>(std::clamp(endpoint.rank.properties(endpoint.device).max_recvs, 1, 64));
}

std::size_t MessageRule::widest_group() {
  const std::size_t widest = max_recvs();
  if (widest < 2) not_applicable("maxRecvs is 1: no grouped receives");
  return widest;
}

std::vector<std::size_t> MessageRule::shuffled(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random_between(0, i)]);
  return order;
}

std::vector<int> tags_from(int first, std::size_t count) {
  std::vector<int> tags(count);
  std::iota(tags.begin(), tags.end(), first);
  return tags;
}

}  // namespace plugfest::conformance
