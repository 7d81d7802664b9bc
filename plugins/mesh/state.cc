// Contexts, NICs and listeners of the process.
#include "plugins/mesh/state.h"

#include <unistd.h>

#include <cstdlib>
#include <new>

#include "plugins/mesh/log.h"

namespace mesh {

State& State::get() {
  alignas(State) static unsigned char memory[sizeof(State)];
  static State& state = *new (memory) State;
  return state;
}

void State::find() {
  process_ = getpid();
  if (!contexts_.empty() || for_good_) return;
  // Must be the first call of verbs. An error is ignored: only fork needs it.
  ibv_fork_init();
  settings_ = read_settings([](const char* name) -> const char* { return std::getenv(name); });
  devices_ = find_devices(settings_);
  gpu_ = Gpu(devices_, settings_, cuda_driver());
  start_relay();
}

void State::start_relay() {
  if (settings_.relay_secret.empty() || devices_.empty() || relay_) return;
  std::vector<LocalAddress> addresses;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (const DeviceAddress& each : devices_[device]->addresses()) addresses.push_back({each.network, device});
  }
  try {
    relay_ = std::make_shared<Relay>(std::move(addresses),
                                     Relay::Options{.secret = settings_.relay_secret,
                                                    .port = static_cast<std::uint16_t>(settings_.relay_port),
                                                    .wait_s = settings_.relay_wait_s});
    MESH_INFO("serves neighbours as relay (NCCL_MESH_RELAY_SECRET), queries to UDP port %d", settings_.relay_port);
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
  profiler_for_good_ = profiler;
  find();
  for_good_ = true;
}

void State::close(const void* context) {
  if (context == nullptr) return;
  attempts_.drop(context);
  const std::lock_guard lock(mutex_);
  auto* known = const_cast<Context*>(static_cast<const Context*>(context));
  if (contexts_.erase(known) == 0) {
    throw Failure(Result::kInvalidArgument, "finalize: ctx was not returned by init, or is finalized already");
  }
  delete known;
  // Open listeners and comms hold references to their devices.
  if (!contexts_.empty() || for_good_) return;
  devices_.clear();
  // Other hosts may still need the tunnels.
  if (relay_ && relay_->is_idle()) relay_.reset();
}

DeviceList State::devices() {
  const std::lock_guard lock(mutex_);
  return devices_;
}

std::shared_ptr<const Device> State::device(int index) {
  const std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<std::size_t>(index) >= devices_.size()) {
    throw Failure(Result::kInvalidArgument, "device " + std::to_string(index) + " does not exist: devices returned " +
                                                std::to_string(devices_.size()));
  }
  return devices_[static_cast<std::size_t>(index)];
}

Gpu State::gpu() {
  const std::lock_guard lock(mutex_);
  return gpu_;
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
          .profiler = profiler_for_good_,
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

Listener& State::listen(std::size_t device, const Transport& transport, Handle& handle) {
  DeviceList all = devices();
  const std::lock_guard lock(listening_mutex_);
  if (!acceptor_) acceptor_ = std::make_unique<Acceptor>(std::move(all));
  Listener& listener = acceptor_->add(device, transport);
  handle = acceptor_->handle_of(listener);
  return listener;
}

std::unique_ptr<RecvComm> State::accept(void* listener) {
  const std::lock_guard lock(listening_mutex_);
  if (!acceptor_ || !acceptor_->has(listener)) {
    throw Failure(Result::kInvalidArgument, "accept: listenComm was not returned by listen, or is closed");
  }
  return acceptor_->accept(*static_cast<Listener*>(listener));
}

void State::close_listener(void* listener) {
  const std::lock_guard lock(listening_mutex_);
  if (!acceptor_ || !acceptor_->has(listener)) {
    throw Failure(Result::kInvalidArgument, "closeListen: listenComm was not returned by listen, or is closed");
  }
  acceptor_->remove(*static_cast<Listener*>(listener));
  if (acceptor_->empty()) acceptor_.reset();
}

void close_everything() {
  State& state = State::get();
  set_logger(nullptr);
  {
    const std::lock_guard lock(state.mutex_);
    if (state.process_ != getpid()) return;
  }
  state.attempts_.clear();
  {
    const std::lock_guard lock(state.listening_mutex_);
    state.acceptor_.reset();
  }
  Comm::abandon_all();
  const std::lock_guard lock(state.mutex_);
  for (Context* each : state.contexts_) delete each;
  state.contexts_.clear();
  state.devices_.clear();
  state.relay_.reset();
  state.texts_.clear();
  state.settings_ = {};
}

}  // namespace mesh
