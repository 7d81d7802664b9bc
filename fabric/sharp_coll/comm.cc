#include "fabric/sharp_coll/comm.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/reduction/datagrams.h"
#include "fabric/sharp_coll/failure.h"
#include "fabric/system/text.h"

namespace plugfest::sharp_coll {
namespace {

constexpr Nanoseconds kAnswerTimeout = 10'000'000'000;

// Each poll of the TCP socket is a system call, and a failed group need not be noticed at once.
constexpr Nanoseconds kManagerInterval = 1'000'000;

constexpr std::uint32_t kMinPayload = 8;  // one element of each type
constexpr std::uint32_t kMaxPayload = 65000;
constexpr std::uint32_t kMaxFragmentWindow = 1 << 16;

constexpr int kSocketBufferBytes = 4 << 20;  // the kernel gives what net.core.rmem_max permits

std::string text_of(in_addr address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return text;
}

}  // namespace

// A rank's socket, for the manager.
struct Comm::Member {
  std::uint32_t address = 0;  // network byte order
  std::uint16_t port = 0;
  std::uint16_t unused = 0;
};

Comm::Comm(const CommEnvironment& environment, const OutOfBand& ranks, const Log& log)
    : environment_(environment), place_(ranks.place()), log_(log), process_(getpid()) {
  if (place_.size == 1) return;
  // Each step may fail on one rank only, and all ranks must go the same way afterwards.
  Member own;
  ranks.attempt([&] { own = open_socket(); });
  const std::vector<Member> members = ranks.gather(own);
  std::string group;
  ranks.attempt([&] {
    if (place_.rank == 0) group = create_group(members);
  });
  ranks.broadcast(group);
  ranks.attempt([&] { join(group); });
}

Comm::~Comm() {
  if (getpid() == process_) leave();
}

// Asks the manager for a group. Returns its answer, for all ranks.
std::string Comm::create_group(const std::vector<Member>& members) {
  manager_ = ManagerConnection(environment_.settings.manager);
  nlohmann::json answer = ask_for_group(members, environment_.settings.enable_sat ? "sat" : "llt");
  if (environment_.settings.enable_sat && !environment_.settings.lock_on_comm_init &&
      answer.value("code", 0) == SHARP_COLL_ELOCK_FAILED) {
    log_.write(LogLevel::kWarning,
               "the SAT lock is taken: the low-latency tree is used instead: " + answer.value("reason", std::string()));
    answer = ask_for_group(members, "llt");
  }
  return answer.dump();
}

nlohmann::json Comm::ask_for_group(const std::vector<Member>& members, const char* mode) {
  nlohmann::json ranks = nlohmann::json::array();
  for (const Member& member : members)
    ranks.push_back({{"address", text_of(in_addr{member.address})}, {"port", member.port}});
  nlohmann::json request = {{"type", "create"}, {"job", environment_.job}, {"mode", mode}, {"ranks", ranks}};
  if (const int osts = environment_.settings.quota_osts; osts != 0) request["osts"] = osts;
  manager_.send(request);
  return manager_.receive(kAnswerTimeout);
}

// Joins the group that the manager has created. `group`: its answer to rank 0.
void Comm::join(const std::string& group) {
  const nlohmann::json created = nlohmann::json::parse(group, nullptr, false);
  const auto invalid = [&] {
    return Failure(SHARP_COLL_EGROUP_ALLOC, "aggregation manager " + environment_.settings.manager +
                                                ": cannot use its answer: " + shortened(group, 200));
  };
  if (!created.is_object()) throw invalid();
  if (created.value("type", "") == "refused")
    throw Failure(static_cast<sharp_error_no>(created.value("code", static_cast<int>(SHARP_COLL_EGROUP_ALLOC))),
                  "no group for " + std::to_string(place_.size) + " ranks: " + created.value("reason", ""));
  try {
    const nlohmann::json& own = created.at("nodes").at(static_cast<std::size_t>(place_.rank));
    const auto number = own.at("port").get<std::uint16_t>();
    const auto payload = created.at("max_payload").get<std::uint32_t>();
    const auto fragment_window = created.at("window").get<std::uint32_t>();
    const auto group_number = created.at("group").get<std::uint32_t>();
    sockaddr_in node = {};
    node.sin_family = AF_INET;
    node.sin_port = htons(number);
    if (inet_pton(AF_INET, own.at("address").get_ref<const std::string&>().c_str(), &node.sin_addr) != 1 ||
        payload < kMinPayload || payload > kMaxPayload || fragment_window < 1 || fragment_window > kMaxFragmentWindow)
      throw invalid();
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&node), sizeof(node)) != 0)
      throw Failure(SHARP_COLL_ECONN_TREE, "cannot reach the aggregation node " + text_of(node.sin_addr) + ": " +
                                               std::strerror(errno) + ": check the routes of this host");
    name_ = "group " + std::to_string(group_number);
    engine_ = std::make_unique<Engine>(Engine::Settings{.group = group_number,
                                                        .child = own.at("child").get<std::uint16_t>(),
                                                        .fragment_window = fragment_window,
                                                        .max_payload = payload});
  } catch (const nlohmann::json::exception&) {
    throw invalid();
  }
  send_buffer_.resize(kBatch * engine_->packet_capacity());
  receive_buffer_.resize(kBatch * engine_->packet_capacity());
  if (!manager_) manager_ = ManagerConnection(environment_.settings.manager);
  manager_.send({{"type", "join"}, {"group", created["group"]}, {"rank", place_.rank}});
  const nlohmann::json answer = manager_.receive(kAnswerTimeout);
  if (answer.value("type", "") != "joined")
    throw Failure(SHARP_COLL_EGROUP_JOIN, name_ + ": the manager refused this rank: " + answer.value("reason", ""));
  log_.write(LogLevel::kInfo, name_ + ": rank " + std::to_string(place_.rank) + " of " + std::to_string(place_.size));
}

Comm::Member Comm::open_socket() {
  socket_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr = environment_.address;
  socklen_t size = sizeof(name);
  if (!socket_ || bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0)
    throw Failure(SHARP_COLL_EDEV, "cannot open a UDP socket at " + text_of(environment_.address) + ": " +
                                       std::strerror(errno) + ": check the address of the device");
  for (const int option : {SO_RCVBUF, SO_SNDBUF})
    setsockopt(socket_.get(), SOL_SOCKET, option, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  return {name.sin_addr.s_addr, ntohs(name.sin_port), 0};
}

std::shared_ptr<Operation> Comm::post(const Transfer& transfer) {
  if (place_.size == 1) return finished_alone(transfer);
  const std::shared_ptr<Operation> operation = engine_->post(transfer, now_ns());
  if (operation->finished() && operation->status != SHARP_COLL_SUCCESS)
    throw Failure(static_cast<sharp_error_no>(operation->status), "the communicator has failed: " + failure_);
  transmit(now_ns());
  return operation;
}

bool Comm::progress() {
  if (engine_ == nullptr || engine_->status() != SHARP_COLL_SUCCESS) return false;
  const Nanoseconds now = now_ns();
  const bool received = receive(now);
  transmit(now);
  watch_manager(now);
  if (const Nanoseconds since = engine_->waiting_since();
      environment_.result_timeout != kNever && since != kNever && now - since > environment_.result_timeout)
    fail("no result for " + std::to_string(environment_.result_timeout / 1'000'000) +
         " ms (coll_timeout): a rank does not take part, or the network is down");
  return received;
}

bool Comm::receive(Nanoseconds now) {
  const std::size_t capacity = engine_->packet_capacity();
  for (bool received = false;; received = true) {
    std::array<iovec, kBatch> buffers;
    std::array<mmsghdr, kBatch> messages = {};
    for (std::size_t i = 0; i < kBatch; ++i) {
      buffers[i] = {receive_buffer_.data() + i * capacity, capacity};
      messages[i].msg_hdr.msg_iov = &buffers[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int count = recvmmsg(socket_.get(), messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    // ECONNREFUSED: the node's port is closed. The manager says whether the group has failed.
    if (count <= 0) return received;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      engine_->on_packet({receive_buffer_.data() + i * capacity, messages[i].msg_len}, now);
    if (count < static_cast<int>(kBatch)) return true;
  }
}

void Comm::transmit(Nanoseconds now) {
  const std::size_t capacity = engine_->packet_capacity();
  while (flush()) {
    while (batch_end_ < kBatch) {
      const std::size_t size = engine_->next_packet(now, {send_buffer_.data() + batch_end_ * capacity, capacity});
      if (size == 0) break;
      batch_sizes_[batch_end_++] = size;
    }
    if (batch_end_ == 0) return;
  }
}

// Sends the packets of the batch. Returns false if the socket takes no more now.
bool Comm::flush() {
  const std::size_t capacity = engine_->packet_capacity();
  if (batch_begin_ < batch_end_) {
    std::array<reduction::Datagram, kBatch> datagrams;
    const std::size_t count = batch_end_ - batch_begin_;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = batch_begin_ + i;
      datagrams[i].bytes = {send_buffer_.data() + at * capacity, batch_sizes_[at]};
    }
    // A packet that fails counts as lost and is sent again later.
    batch_begin_ += reduction::send_datagrams(socket_.get(), std::span(datagrams).first(count));
    if (batch_begin_ < batch_end_) return false;
  }
  batch_begin_ = batch_end_ = 0;
  return true;
}

// Notices that the group has failed, or that the manager has ended.
void Comm::watch_manager(Nanoseconds now) {
  if (now < manager_watched_ + kManagerInterval) return;
  manager_watched_ = now;
  if (!failure_.empty()) return;  // the first cause stays
  try {
    while (const std::optional<nlohmann::json> message = manager_.poll())
      if (message->value("type", "") == "failed") fail(message->value("reason", "the group has failed"));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

Comm::Waiting Comm::waiting() const {
  if (engine_ == nullptr) return {};
  return {socket_.get(), manager_.descriptor(), batch_begin_ < batch_end_, engine_->next_deadline()};
}

void Comm::leave() {
  if (engine_ == nullptr) return;
  if (engine_->status() == SHARP_COLL_SUCCESS) {
    const bool is_unfinished = engine_->waiting_since() != kNever;
    failure_ = "it was destroyed";
    engine_->fail(SHARP_COLL_ERROR);
    try {
      manager_.send({{"type", "leave"}, {"unfinished", is_unfinished}});
      while (manager_.receive(kAnswerTimeout).value("type", "") != "left") {
        // The message says that the group has failed.
      }
    } catch (const std::exception&) {
      // The manager has ended.
    }
  }
  manager_.close();
  socket_.close();
}

// With one rank the result is the own contribution.
std::shared_ptr<Operation> Comm::finished_alone(const Transfer& transfer) {
  auto operation = std::make_shared<Operation>(transfer);
  const Part<const std::byte>& source = transfer.source;
  const Part<std::byte>& destination = transfer.destination;
  const std::size_t begin = std::max(source.begin, destination.begin);
  const std::size_t end = std::min(source.end, destination.end);
  if (begin < end)
    std::memmove(destination.data + (begin - destination.begin), source.data + (begin - source.begin), end - begin);
  operation->status = SHARP_COLL_SUCCESS;
  return operation;
}

std::string Comm::statistics() const {
  if (engine_ == nullptr) return "1 rank";
  const Counters& counters = engine_->counters();
  return name_ + ": " + std::to_string(counters.operations) + " operations, " + std::to_string(counters.fragments) +
         " fragments, " + std::to_string(counters.contributions) + " contributions, " +
         std::to_string(counters.repeats) + " repeats, " + std::to_string(counters.results) + " results, " +
         std::to_string(counters.repeated_results) + " repeated results, " + std::to_string(counters.invalid_packets) +
         " invalid packets;";
}

void Comm::fail(const std::string& reason) {
  failure_ = reason;
  log_.write(LogLevel::kError, name_ + ": " + reason);
  engine_->fail(SHARP_COLL_ERROR);
}

}  // namespace plugfest::sharp_coll
