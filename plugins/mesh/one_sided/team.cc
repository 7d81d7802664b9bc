#include "plugins/mesh/one_sided/team.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh::one_sided {

namespace {

// A pause between attempts of a call that waits for other ranks.
void pause_briefly() {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000};
  nanosleep(&kPause, nullptr);
}

void require_alive(Comm& comm) {
  if (comm.check() != Result::kSuccess)
    throw Failure(Result::kRemoteError, "a rank of the collComm has ended before all ranks were connected");
}

}  // namespace

// A comm with one rank, and memory for one message.
template <typename End>
class Team::Direction {
 public:
  explicit Direction(std::unique_ptr<End> comm) : comm_(std::move(comm)), buffer_(kMaxMessage) {
    memory_ = comm_->add_memory({.data = buffer_.data(), .bytes = buffer_.size()});
  }
  Direction(Direction&&) = default;
  Direction& operator=(Direction&&) = default;
  ~Direction() {
    if (comm_) comm_->close();
  }

  Comm& comm() { return *comm_; }
  const Comm& comm() const { return *comm_; }

  void begin(const Bytes& message = {}) {
    std::copy(message.begin(), message.end(), buffer_.begin());
    bytes_ = static_cast<int>(message.size());
    done_ = false;
  }
  // Continues the transfer. Returns whether it is done. Errors: Failure.
  bool advance() {
    if (done_) return true;
    if (request_ == nullptr) post();
    if (request_ == nullptr) return false;
    int done = 0;
    require(comm_->test(*RequestId::from(request_), &done, &bytes_));
    if (done != 0) request_ = nullptr;
    return done_ = done != 0;
  }
  // The message that has arrived.
  Bytes message() const { return {buffer_.begin(), buffer_.begin() + bytes_}; }

 private:
  static void require(Result result) {
    if (result != Result::kSuccess) throw Failure(result, "a connection of the collComm failed");
  }
  void post() {
    constexpr int kTag = 0;
    void* data = buffer_.data();
    if constexpr (std::is_same_v<End, SendComm>) {
      require(comm_->send(data, static_cast<std::size_t>(bytes_), kTag, memory_, nullptr, &request_));
    } else {
      void* memory = memory_;
      const std::size_t size = buffer_.size();
      require(comm_->receive(1, &data, &size, &kTag, &memory, nullptr, &request_));
    }
  }

  std::unique_ptr<End> comm_;
  Bytes buffer_;
  Registration* memory_ = nullptr;
  int bytes_ = 0;
  bool done_ = false;
  void* request_ = nullptr;
};

Team::Team(State& state, const std::vector<Handle>& handles, std::size_t rank, void* listener,
           const Transport& transport, std::int64_t limit_ms)
    : rank_(rank), size_(handles.size()) {
  connect(state, handles, listener, transport, limit_ms);

  // A listener does not know which rank has connected.
  const std::uint32_t own = static_cast<std::uint32_t>(rank);
  ByteWriter writer;
  writer.number(own);
  const std::vector<Bytes> names = transfer(std::vector(size(), writer.take()));
  std::vector<std::optional<Direction<RecvComm>>> sorted(size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    ByteReader reader(names[i]);
    const std::size_t name = reader.number<std::uint32_t>();
    if (!reader.at_end() || name >= sorted.size() || sorted[name])
      throw Failure(Result::kRemoteError,
                    "a rank of the collComm gave an invalid name: use the same plugin on all ranks");
    sorted[name].emplace(std::move(incoming_[i]));
  }
  incoming_.clear();
  for (auto& direction : sorted) incoming_.push_back(*std::move(direction));
}

Team::~Team() = default;

void Team::connect(State& state, const std::vector<Handle>& handles, void* listener, const Transport& transport,
                   std::int64_t limit_ms) {
  const DeviceList devices = state.devices();
  const std::vector<std::size_t> requested = state.listeners().nics_of(listener);
  std::vector<std::unique_ptr<Connector>> connectors;
  for (const Handle& handle : handles)
    connectors.push_back(std::make_unique<Connector>(devices, requested, handle, transport, nullptr));
  std::vector<std::unique_ptr<SendComm>> connected(handles.size());
  std::int64_t progress_ms = coarse_now_ms();
  for (std::size_t missing = 2 * handles.size(); missing > 0;) {
    const std::size_t before = missing;
    for (std::size_t i = 0; i < connectors.size(); ++i) {
      if (connected[i]) continue;
      connected[i] = connectors[i]->step();
      if (connected[i]) --missing;
    }
    while (incoming_.size() < handles.size()) {
      std::unique_ptr<RecvComm> accepted = state.listeners().accept(listener);
      if (!accepted) break;
      incoming_.emplace_back(std::move(accepted));
      --missing;
    }
    const std::int64_t now = coarse_now_ms();
    if (missing != before) {
      progress_ms = now;
      continue;
    }
    for (const auto& comm : connected)
      if (comm) require_alive(*comm);
    for (auto& direction : incoming_) require_alive(direction.comm());
    if (now - progress_ms >= limit_ms) {
      const auto silent = std::find(connected.begin(), connected.end(), nullptr);
      const std::string which =
          silent == connected.end() ? "a rank" : "rank " + std::to_string(silent - connected.begin());
      throw Failure(Result::kRemoteError, "connect: no answer from " + which + " of " + std::to_string(size()) +
                                              " after " + std::to_string(limit_ms / 1000) +
                                              " s: it did not call connect, or is blocked: see its log");
    }
    pause_briefly();
  }
  for (auto& comm : connected) outgoing_.emplace_back(std::move(comm));
}

std::vector<LaneStart> Team::links(std::size_t rank, bool accepted) const {
  return accepted ? incoming_[rank].comm().links() : outgoing_[rank].comm().links();
}

std::vector<Bytes> Team::transfer(const std::vector<Bytes>& messages) {
  for (std::size_t i = 0; i < size(); ++i) {
    outgoing_[i].begin(messages[i]);
    incoming_[i].begin();
  }
  for (bool done = false; !done;) {
    done = true;
    for (std::size_t i = 0; i < size(); ++i) {
      const bool sent = outgoing_[i].advance(), received = incoming_[i].advance();
      done = done && sent && received;
    }
    if (!done) pause_briefly();
  }
  std::vector<Bytes> received;
  for (const auto& direction : incoming_) received.push_back(direction.message());
  return received;
}

std::vector<Bytes> Team::exchange(const std::function<std::vector<Bytes>()>& make) {
  std::vector<Bytes> messages(size());  // empty: this rank has failed
  std::optional<Failure> failure;
  try {
    messages = make();
  } catch (const Failure& own) {
    failure = own;
  } catch (const std::exception& own) {  // no memory; the other ranks must not wait for this one
    failure = Failure(Result::kSystemError, own.what());
  }
  const std::lock_guard lock(mutex_);
  std::vector<Bytes> received = transfer(messages);
  if (failure) throw *failure;
  for (std::size_t i = 0; i < received.size(); ++i)
    if (received[i].empty())
      throw Failure(Result::kRemoteError, "rank " + std::to_string(i) + " of the collComm failed; see its log");
  return received;
}

bool Team::has_lost(std::size_t rank) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && outgoing_[rank].comm().check() != Result::kSuccess;
}

}  // namespace mesh::one_sided
