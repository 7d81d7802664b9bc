#include "plugins/mesh/one_sided/context.h"

#include <algorithm>
#include <string>
#include <utility>

#include "harness/abi/one_sided.h"
#include "plugins/mesh/clock.h"

namespace mesh::one_sided {

namespace {

constexpr std::uint32_t kInlineBytes = 64;
// The requested limit of READs and atomic operations in flight.
constexpr std::uint8_t kReads = 16;
constexpr int kRemoteAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// A put with a signal takes two work requests.
constexpr std::uint32_t kMaxWork = 2;

[[noreturn]] void outside(const char* what, std::uint64_t offset, std::size_t size, std::uint64_t window) {
  throw Failure(Result::kInvalidArgument, std::string(what) + ": bytes " + std::to_string(offset) + " to " +
                                              std::to_string(offset + size) + " of a registration of " +
                                              std::to_string(window) + " bytes");
}

}  // namespace

Connection::Connection(Team& team, const LaneStart& start, std::size_t rank, std::size_t link)
    : team_(team),
      rank_(rank),
      link_(link),
      discarded_(start.device, sizeof(std::uint64_t)),
      queue_pair_(start.device, start.local,
                  {.send = kMaxWork * kMaxRequests, .receive = 1, .inline_bytes = kInlineBytes, .reads = kReads},
                  kRemoteAccess) {}

void Connection::connect(const Endpoint& remote, std::uint8_t reads, const Transport& transport) {
  queue_pair_.limit_reads(reads);
  queue_pair_.connect(remote, transport);
}

Connection::Range Connection::local(const Place& place, std::size_t size) const {
  const Window& window = *place.window;
  if (place.offset > window.size || size > window.size - place.offset)
    outside("local memory", place.offset, size, window.size);
  return {window.begin + place.offset, window.local_keys[rank_][link_]};
}

Connection::Range Connection::remote(const Place& place, std::size_t size) const {
  const Window::Remote& window = place.window->remotes[rank_];
  if (place.offset > window.size || size > window.size - place.offset)
    outside(("memory of rank " + std::to_string(rank_)).c_str(), place.offset, size, window.size);
  return {window.address + place.offset, window.keys[link_]};
}

void Connection::require_room() {
  if (error_) throw *error_;
  if (posted_ - done_ < kMaxRequests) return;
  poll();
  if (posted_ - done_ < kMaxRequests) return;
  throw Failure(Result::kInternalError, std::to_string(kMaxRequests) + " requests to rank " + std::to_string(rank_) +
                                            " are in flight, the maximum: 32 x maxRecvs");
}

std::uint32_t Connection::post(ibv_send_wr* first, ibv_send_wr* last) {
  last->wr_id = posted_ + 1;
  last->send_flags |= IBV_SEND_SIGNALED;
  last->next = nullptr;
  if (const int error = queue_pair_.post_send(first))
    throw system_failure("post to " + queue_pair_.device().name(), error);
  return ++posted_;
}

void Connection::require_size(std::size_t size) const {
  const std::size_t most = queue_pair_.endpoint().max_message_bytes;
  if (size > most)
    throw Failure(Result::kInvalidArgument, std::to_string(size) + " bytes: " + queue_pair_.device().name() +
                                                " transfers at most " + std::to_string(most) + " at once");
}

std::uint32_t Connection::put(const Place& from, const Place& to, std::size_t size, const Signal* signal) {
  require_room();
  ibv_sge data = {}, result = {};
  ibv_send_wr write = {}, add = {};
  if (size > 0) {
    require_size(size);
    const Range source = local(from, size), target = remote(to, size);
    data = {.addr = source.address, .length = static_cast<std::uint32_t>(size), .lkey = source.key};
    write.sg_list = &data;
    write.num_sge = 1;
    write.opcode = IBV_WR_RDMA_WRITE;
    if (size <= queue_pair_.inline_bytes() && !from.window->of_gpu) write.send_flags = IBV_SEND_INLINE;
    write.wr.rdma.remote_addr = target.address;
    write.wr.rdma.rkey = target.key;
  }
  if (signal == nullptr) return size == 0 ? posted_ : post(&write, &write);

  const Range word = remote(signal->place, sizeof(std::uint64_t));
  if (word.address % sizeof(std::uint64_t) != 0)
    throw Failure(Result::kInvalidArgument,
                  "a signal at offset " + std::to_string(signal->place.offset) + ", not a multiple of 8");
  if (signal->op != abi::kSignalInc && signal->op != abi::kSignalAdd)
    throw Failure(Result::kInvalidArgument, "signal operation " + std::to_string(signal->op) + " does not exist");
  result = {.addr = reinterpret_cast<std::uintptr_t>(discarded_.data()),
            .length = sizeof(std::uint64_t),
            .lkey = discarded_.local_key()};
  add.sg_list = &result;
  add.num_sge = 1;
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  add.wr.atomic.remote_addr = word.address;
  add.wr.atomic.rkey = word.key;
  add.wr.atomic.compare_add = signal->op == abi::kSignalInc ? 1 : signal->value;
  write.next = &add;
  return post(size == 0 ? &add : &write, &add);
}

std::uint32_t Connection::get(const Place& from, const Place& to, std::size_t size) {
  require_room();
  if (size == 0) return posted_;
  require_size(size);
  const Range source = remote(from, size), target = local(to, size);
  ibv_sge data = {.addr = target.address, .length = static_cast<std::uint32_t>(size), .lkey = target.key};
  ibv_send_wr read = {};
  read.sg_list = &data;
  read.num_sge = 1;
  read.opcode = IBV_WR_RDMA_READ;
  read.wr.rdma.remote_addr = source.address;
  read.wr.rdma.rkey = source.key;
  return post(&read, &read);
}

void Connection::poll() {
  if (error_) throw *error_;
  std::array<ibv_wc, 16> completions;
  const int count = queue_pair_.poll(completions);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status == IBV_WC_SUCCESS) {
      done_ = static_cast<std::uint32_t>(completion.wr_id);
      continue;
    }
    fail(ibv_wc_status_str(completion.status));
  }
  if (count < 0) throw Failure(Result::kSystemError, "cannot poll " + queue_pair_.device().name());
  if (count > 0) return;
  // The TCP connection of the net's comm reports the end of the peer's process earlier than retransmissions do.
  const std::int64_t now_ms = coarse_now_ms();
  if (std::exchange(checked_ms_, now_ms) != now_ms && team_.has_lost(rank_)) fail("the rank has ended");
}

void Connection::fail(const std::string& why) {
  throw error_.emplace(Result::kRemoteError, "the connection to rank " + std::to_string(rank_) + " through " +
                                                 queue_pair_.device().name() + " failed: " + why);
}

Context::Context(Team& team, const ContextConfig& config, const Transport& transport) : ranks_(team.size()) {
  const auto contexts = static_cast<std::size_t>(std::max(config.contexts, 0));
  const int stride = config.rank_stride;
  constexpr std::size_t kMaxContexts = (Team::kMaxMessage - 1) / (kEndpointBytes + 1);
  const auto write = [](ByteWriter& writer, const Connection& connection) {
    put(writer, connection.endpoint());
    writer.number(connection.reads());
  };
  const auto is_connected = [&](std::size_t rank) {
    const auto step = static_cast<std::size_t>(stride);
    return rank % step == team.rank() % step;
  };
  const std::vector<Bytes> received = team.exchange([&] {
    if (config.contexts < 1 || contexts > kMaxContexts)
      throw Failure(Result::kInvalidArgument, "createContext: " + std::to_string(config.contexts) +
                                                  " contexts, expected 1 to " + std::to_string(kMaxContexts));
    if (stride < 1 || ranks_ % static_cast<std::size_t>(stride) != 0)
      throw Failure(Result::kInvalidArgument, "createContext: the rank stride is " + std::to_string(stride) +
                                                  ", expected a divisor of " + std::to_string(ranks_));
    own_.resize(contexts * ranks_);
    std::vector<Bytes> messages;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      ByteWriter writer;
      writer.number(std::uint8_t{1});
      // Both ranks use the connection that the lower one has made.
      const std::vector<LaneStart> links = team.links(rank, rank < team.rank());
      for (std::size_t i = 0; i < contexts && is_connected(rank); ++i) {
        const std::size_t link = i % links.size();
        auto& connection = own_[i * ranks_ + rank];
        connection = std::make_unique<Connection>(team, links[link], rank, link);
        if (rank == team.rank()) {
          loopback_.push_back(std::make_unique<Connection>(team, team.links(rank, true)[link], rank, link));
          write(writer, *loopback_.back());
        } else {
          write(writer, *connection);
        }
      }
      messages.push_back(writer.take());
    }
    return messages;
  });
  team.exchange([&] {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      ByteReader reader(received[rank]);
      reader.number<std::uint8_t>();
      for (std::size_t i = 0; i < contexts && is_connected(rank); ++i) {
        const Endpoint endpoint = get_endpoint(reader);
        own_[i * ranks_ + rank]->connect(endpoint, reader.number<std::uint8_t>(), transport);
      }
      if (!reader.at_end())
        throw Failure(Result::kRemoteError, "createContext: rank " + std::to_string(rank) +
                                                " has another number of contexts or another rank stride");
    }
    for (std::size_t i = 0; i < loopback_.size(); ++i) {
      const Connection& other = *own_[i * ranks_ + team.rank()];
      loopback_[i]->connect(other.endpoint(), other.reads(), transport);
    }
    return std::vector<Bytes>(ranks_, Bytes(1));
  });
}

Connection& Context::connection(int context, std::uint32_t rank) {
  const std::size_t contexts = own_.size() / ranks_;
  if (context < 0 || static_cast<std::size_t>(context) >= contexts || rank >= ranks_)
    throw Failure(Result::kInvalidArgument, "context " + std::to_string(context) + ", rank " + std::to_string(rank) +
                                                ": there are " + std::to_string(contexts) + " contexts and " +
                                                std::to_string(ranks_) + " ranks");
  Connection* const found = own_[index(context, rank)].get();
  if (found == nullptr)
    throw Failure(Result::kInvalidUsage, "rank " + std::to_string(rank) + " is not connected: see the rank stride");
  return *found;
}

void Context::poll() {
  std::optional<Failure> first;
  const auto poll = [&](Connection& connection) {
    try {
      connection.poll();
    } catch (const Failure& failure) {
      if (!first) first = failure;
    }
  };
  bool idle = true;
  for (const auto& connection : own_) {
    if (!connection || (connection->idle() && !connection->broken())) continue;
    idle = false;
    poll(*connection);
  }
  if (idle) {
    // A peer may write. A user-space NIC receives for all queue pairs of a device when one of them is polled, which
    // takes less time than waking its service thread.
    const auto& connection = own_[next_idle_++ % own_.size()];
    if (connection) poll(*connection);
  }
  if (first) throw *first;
}

bool Context::broken() const {
  return std::any_of(own_.begin(), own_.end(),
                     [](const auto& connection) { return connection && connection->broken(); });
}

}  // namespace mesh::one_sided
