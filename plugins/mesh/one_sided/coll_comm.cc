#include "plugins/mesh/one_sided/coll_comm.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "plugins/mesh/log.h"

namespace mesh::one_sided {

namespace {

// The next two objects are never destroyed, because threads may still call the plugin when the process ends.
std::mutex& registry_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::set<CollComm*>& registry() {
  static auto& open = *new std::set<CollComm*>;
  return open;
}

// A request: slot of the context + 1 (12 bits), index of the connection (20 bits), number of the operation (32 bits).
constexpr int kConnectionBits = 20, kNumberBits = 32;
constexpr std::size_t kMaxConnections = std::size_t{1} << kConnectionBits;

}  // namespace

CollComm::CollComm(std::unique_ptr<Team> team) : team_(std::move(team)) {
  for (std::size_t rank = 0; rank < team_->size(); ++rank) {
    for (const bool accepted : {false, true}) {
      for (const LaneStart& link : team_->links(rank, accepted))
        if (std::find(devices_.begin(), devices_.end(), link.device) == devices_.end()) devices_.push_back(link.device);
    }
  }
  const std::lock_guard lock(registry_mutex());
  registry().insert(this);
}

CollComm::~CollComm() {
  {
    const std::lock_guard lock(registry_mutex());
    registry().erase(this);
  }
  for (auto& entry : contexts_) delete entry.load();
}

CollComm& CollComm::of(void* pointer) {
  auto* const comm = static_cast<CollComm*>(pointer);
  const std::lock_guard lock(registry_mutex());
  if (!registry().contains(comm))
    throw Failure(Result::kInvalidArgument, "collComm was not returned by connect, or is closed");
  return *comm;
}

bool CollComm::has_error(const void* context) {
  const std::lock_guard lock(registry_mutex());
  return std::any_of(registry().begin(), registry().end(), [&](const CollComm* comm) {
    return std::any_of(comm->contexts_.begin(), comm->contexts_.end(), [&](const auto& entry) {
      const ContextHandle* const handle = entry.load();
      return handle != nullptr && handle == context && handle->context->broken();
    });
  });
}

void CollComm::abandon_all() {
  std::set<CollComm*> open;
  {
    const std::lock_guard lock(registry_mutex());
    open.swap(registry());
  }
  for (CollComm* comm : open) delete comm;
}

Window* CollComm::add_window(const MemoryToRegister& memory) {
  auto window = std::make_unique<Window>();
  window->begin = reinterpret_cast<std::uint64_t>(memory.data);
  window->size = memory.bytes;
  window->of_gpu = memory.of_gpu;
  const std::size_t own = team_->rank();
  const std::vector<Bytes> received = team_->exchange([&] {
    constexpr int kAccess =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    if (memory.bytes == 0) throw Failure(Result::kInvalidArgument, "regMrSym: 0 bytes");
    for (const auto& device : devices_) window->ranges.push_back(register_range(*device, memory, kAccess));
    const auto region = [&](const LaneStart& link) -> const ibv_mr& {
      const auto found = std::find(devices_.begin(), devices_.end(), link.device);
      return window->ranges[static_cast<std::size_t>(found - devices_.begin())]->region();
    };
    std::vector<Bytes> messages;
    for (std::size_t rank = 0; rank < team_->size(); ++rank) {
      const std::vector<LaneStart> links = team_->links(rank, rank < own);
      auto& local_keys = window->local_keys.emplace_back();
      for (std::size_t i = 0; i < links.size(); ++i) local_keys[i] = region(links[i]).lkey;
      ByteWriter writer;
      writer.number(window->begin);
      writer.number(window->size);
      for (const LaneStart& link : rank == own ? team_->links(rank, true) : links) writer.number(region(link).rkey);
      messages.push_back(writer.take());
    }
    return messages;
  });
  for (const Bytes& message : received) {
    ByteReader reader(message);
    Window::Remote& remote = window->remotes.emplace_back();
    remote.address = reader.number<std::uint64_t>();
    remote.size = reader.number<std::uint64_t>();
    for (std::size_t i = 0; i < kMaxLanes && reader.ok() && !reader.at_end(); ++i)
      remote.keys[i] = reader.number<std::uint32_t>();
    if (!reader.at_end()) throw Failure(Result::kRemoteError, "regMrSym: another rank sent an invalid message");
  }
  const std::lock_guard lock(mutex_);
  Window* const added = window.get();
  windows_.emplace(added, std::move(window));
  return added;
}

void CollComm::remove_window(Window* window) {
  std::unique_ptr<Window> removed;
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(window);
  if (found == windows_.end())
    throw Failure(Result::kInvalidArgument, "deregMrSym: the handle was not returned by regMrSym of this collComm");
  removed = std::move(found->second);
  windows_.erase(found);
}

ContextHandle* CollComm::open_context(const ContextConfig& config, const Transport& transport) {
  const auto slot = std::find(contexts_.begin(), contexts_.end(), nullptr);
  auto handle = std::make_unique<ContextHandle>();
  handle->comm = this;
  handle->slot = static_cast<std::size_t>(slot - contexts_.begin());
  handle->context = std::make_unique<Context>(*team_, config, transport);
  if (slot == contexts_.end())
    throw Failure(Result::kInvalidUsage, "createContext: " + std::to_string(kMaxContexts) + " are open, the maximum");
  slot->store(handle.get());
  return handle.release();
}

void CollComm::close_context(ContextHandle* handle) {
  const auto slot = std::find(contexts_.begin(), contexts_.end(), handle);
  if (handle == nullptr || slot == contexts_.end())
    throw Failure(Result::kInvalidArgument, "destroyContext: the context was not returned by createContext");
  slot->store(nullptr);
  delete handle;
}

ContextHandle& CollComm::default_context() {
  if (ContextHandle* const first = contexts_.front().load()) return *first;
  throw Failure(Result::kInvalidUsage, "the collComm has no context");
}

void* CollComm::request(const ContextHandle& handle, std::size_t connection, std::uint32_t number) {
  const std::uint64_t place = (std::uint64_t{handle.slot} + 1) << kConnectionBits | connection;
  return reinterpret_cast<void*>(place << kNumberBits | number);
}

bool CollComm::test(const void* request) {
  const auto value = reinterpret_cast<std::uint64_t>(request);
  const std::size_t slot = (value >> kNumberBits >> kConnectionBits) - 1;
  const auto number = static_cast<std::uint32_t>(value);
  ContextHandle* const handle = slot < kMaxContexts ? contexts_[slot].load() : nullptr;
  Connection* const connection =
      handle == nullptr ? nullptr : handle->context->connection(value >> kNumberBits & (kMaxConnections - 1));
  if (connection == nullptr || !connection->is_posted(number))
    throw Failure(Result::kInvalidArgument, "test: the request is not outstanding");
  if (!connection->is_done(number)) connection->poll();
  return connection->is_done(number);
}

}  // namespace mesh::one_sided
