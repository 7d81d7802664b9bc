#include "plugins/mesh/state.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "plugins/mesh/log.h"
#include "plugins/mesh/one_sided/coll_comm.h"

namespace mesh {
namespace {

constexpr std::size_t kMaxNameBytes = 255;  // NCCL cuts longer names
constexpr int kUnknownSpeedMbps = 10000;    // NCCL divides by the speed

int speed_of(const Device& nic) { return nic.speed_mbps() > 0 ? nic.speed_mbps() : kUnknownSpeedMbps; }

}  // namespace

State& State::get() {
  alignas(State) static unsigned char memory[sizeof(State)];
  static State& state = *new (memory) State;
  return state;
}

void State::find() {
  process_ = getpid();
  if (!contexts_.empty() || for_good_) return;
  // Must be the first call of verbs. Errors are ignored, because only fork needs this call.
  ibv_fork_init();
  settings_ = read_settings([](const char* name) -> const char* { return std::getenv(name); });
  devices_ = find_devices(settings_);
  for (std::size_t i = 0; i < devices_.size(); ++i)
    net_devices_.push_back({devices_[i]->name(), {i}, devices_[i], speed_of(*devices_[i])});
  gpu_ = Gpu(devices_, settings_, cuda_driver());
  start_relay();
}

void State::start_relay() {
  if (settings_.relay_secret.empty() || devices_.empty() || relay_) return;
  try {
    relay_ = std::make_shared<Relay>(local_addresses(devices_),
                                     Relay::Options{.secret = settings_.relay_secret,
                                                    .port = static_cast<std::uint16_t>(settings_.relay_port),
                                                    .wait_s = settings_.relay_wait_s});
    MESH_INFO("serves neighbors as relay (NCCL_MESH_RELAY_SECRET), queries to UDP port %d", settings_.relay_port);
  } catch (const Failure& failure) {
    MESH_WARN("%s; only hosts on common subnets are reached", failure.what());
  }
}

std::shared_ptr<Relay> State::relay() {
  const std::lock_guard lock(mutex_);
  return relay_;
}

Context* State::open(int traffic_class, plugfest::abi::ProfilerCallback profiler) {
  auto context = std::make_unique<Context>();
  context->traffic_class = traffic_class;
  context->profiler = profiler;
  const std::lock_guard lock(mutex_);
  find();
  contexts_.insert(context.get());
  return context.release();
}

void State::open_for_good(plugfest::abi::ProfilerCallback profiler) {
  const std::lock_guard lock(mutex_);
  find();
  for_good_ = profiler;
}

void State::close(const void* context) {
  if (context == nullptr) return;
  attempts_.drop(context);
  const std::lock_guard lock(mutex_);
  auto* known = const_cast<Context*>(static_cast<const Context*>(context));
  if (contexts_.erase(known) == 0)
    throw Failure(Result::kInvalidArgument, "finalize: ctx was not returned by init, or is finalized already");
  delete known;
  // Open listeners and comms hold references to their devices.
  if (!contexts_.empty() || for_good_) return;
  net_devices_.clear();
  devices_.clear();
  // Other hosts may still need the tunnels.
  if (relay_ && relay_->is_idle()) relay_.reset();
}

DeviceList State::devices() {
  const std::lock_guard lock(mutex_);
  return devices_;
}

std::size_t State::device_count() {
  const std::lock_guard lock(mutex_);
  return net_devices_.size();
}

NetDevice State::device(int index) {
  const std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<std::size_t>(index) >= net_devices_.size()) {
    throw Failure(Result::kInvalidArgument, "device " + std::to_string(index) + " does not exist: devices returned " +
                                                std::to_string(net_devices_.size()));
  }
  return net_devices_[static_cast<std::size_t>(index)];
}

std::string State::unique_name(const std::string& wanted) const {
  const bool taken = std::any_of(net_devices_.begin(), net_devices_.end(),
                                 [&](const NetDevice& device) { return device.name == wanted; });
  if (!taken && wanted.size() <= kMaxNameBytes) return wanted;
  const std::string suffix = "#" + std::to_string(net_devices_.size());
  return wanted.substr(0, kMaxNameBytes - suffix.size()) + suffix;
}

int State::merge(const std::vector<int>& nics) {
  const std::lock_guard lock(mutex_);
  if (nics.size() > 1 && settings_.links == 1) {
    throw Failure(Result::kInvalidUsage,
                  "makeVDevice: NCCL_MESH_LINKS=1 forbids merging NICs: also set NCCL_NET_MERGE_LEVEL=LOC");
  }
  if (net_devices_.size() == kMaxDevices) {
    throw Failure(Result::kInvalidUsage,
                  "makeVDevice: NCCL supports at most " + std::to_string(kMaxDevices) + " devices");
  }
  NetDevice merged;
  for (const int index : nics) {
    if (index < 0 || static_cast<std::size_t>(index) >= devices_.size()) {
      throw Failure(Result::kInvalidArgument, "makeVDevice: device " + std::to_string(index) + " is not one of the " +
                                                  std::to_string(devices_.size()) + " NICs");
    }
    const auto nic = static_cast<std::size_t>(index);
    if (std::find(merged.nics.begin(), merged.nics.end(), nic) != merged.nics.end())
      throw Failure(Result::kInvalidArgument, "makeVDevice: device " + std::to_string(index) + " is listed twice");
    merged.nics.push_back(nic);
    merged.name += (merged.name.empty() ? "" : "+") + devices_[nic]->name();
    merged.speed_mbps += speed_of(*devices_[nic]);
  }
  for (const std::size_t nic : merged.nics) {
    if (merged.nics.size() == 1 || !devices_[nic]->pci_path().empty()) continue;
    throw Failure(
        Result::kInvalidUsage,
        "makeVDevice: " + devices_[nic]->name() +
            " is not a PCI device, and NCCL finds no path to merged NICs without PCI: set NCCL_NET_MERGE_LEVEL=LOC");
  }
  merged.name = unique_name(merged.name);
  merged.first_nic = devices_[merged.nics.front()];
  MESH_INFO("device %zu: %s, %d Mbit/s, merged by NCCL", net_devices_.size(), merged.name.c_str(), merged.speed_mbps);
  net_devices_.push_back(std::move(merged));
  return static_cast<int>(net_devices_.size()) - 1;
}

Gpu State::gpu() {
  const std::lock_guard lock(mutex_);
  return gpu_;
}

void State::with_memory(void* data, std::size_t bytes, int type,
                        const std::function<void(const MemoryToRegister&)>& use) {
  MemoryToRegister memory = {.data = data, .bytes = bytes};
  if (type == plugfest::abi::kPointerHost) return use(memory);
  const Gpu access = gpu();
  if (type != plugfest::abi::kPointerCuda || access.access() == Gpu::Access::kNone)
    throw Failure(Result::kInvalidArgument, "regMr: memory type " + std::to_string(type) +
                                                " is not supported: only those that ptrSupport names are");
  memory.of_gpu = true;
  Socket dma_buf;  // owns the descriptor
  if (access.access() == Gpu::Access::kDmaBuf && bytes > 0) {
    dma_buf = Socket(access.export_dma_buf(reinterpret_cast<std::uintptr_t>(data), bytes));
    memory.dma_buf = dma_buf.fd();
  }
  use(memory);
}

const char* State::keep(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return texts_.insert(text).first->c_str();
}

Transport State::transport_locked(int traffic_class) const {
  const bool valid = traffic_class >= 0 && traffic_class <= 255;
  return {.timeout = settings_.timeout,
          .retry_count = settings_.retry_count,
          .traffic_class = valid ? traffic_class : settings_.traffic_class,
          .links = settings_.links,
          .queue_pairs = settings_.queue_pairs,
          // The CPU copies such messages, so their buffers must be in host memory.
          .eager_bytes = gpu_.access() == Gpu::Access::kNone ? static_cast<std::uint32_t>(settings_.eager_bytes)
                                                             : std::uint32_t{0},
          .profiler = for_good_.value_or(nullptr),
          .plan = {}};
}

Context* State::find_context(const void* context) const {
  const auto found = contexts_.find(const_cast<Context*>(static_cast<const Context*>(context)));
  return found != contexts_.end() ? *found : nullptr;
}

void State::set_plan(const void* context, const NetPlan& plan) {
  const std::lock_guard lock(mutex_);
  if (Context* known = find_context(context)) known->plan = plan;
}

Transport State::transport(const void* context) {
  const std::lock_guard lock(mutex_);
  const Context* known = find_context(context);
  Transport transport = transport_locked(known != nullptr ? known->traffic_class : -1);
  if (known != nullptr) {
    transport.profiler = known->profiler;
    transport.plan = known->plan;
  }
  return transport;
}

Transport State::transport_with(int traffic_class) {
  const std::lock_guard lock(mutex_);
  return transport_locked(traffic_class);
}

void close_everything() {
  State& state = State::get();
  set_logger(nullptr);
  {
    const std::lock_guard lock(state.mutex_);
    if (state.process_ != getpid()) return;
  }
  state.attempts_.clear();
  state.listeners_.clear();
  one_sided::CollComm::abandon_all();
  Comm::abandon_all();
  const std::lock_guard lock(state.mutex_);
  for (Context* context : state.contexts_) delete context;
  state.contexts_.clear();
  state.net_devices_.clear();
  state.devices_.clear();
  state.relay_.reset();
  state.texts_.clear();
  state.settings_ = {};
}

}  // namespace mesh
