#include "fabric/roce/model/endpoint.h"

#include <utility>

#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce::model {

namespace {

constexpr int kCompletions = 4096;

}  // namespace

Endpoint::Endpoint(std::string its_address, const Setting& setting, const FaultPlan& faults, Random& random)
    : address(std::move(its_address)),
      memory(setting.memory_bytes, random),
      nic({.addresses = {roce::address_of(address)}, .mtu_bytes = 65536, .faults = faults}),
      domain(nic.memory()) {
  CompletionQueueEvents events;
  events.async = [](void* context, ibv_event_type) { ++static_cast<Endpoint*>(context)->failures_; };
  events.context = this;
  send_completions = std::make_unique<CompletionQueue>(nic.context(), kCompletions, events);
  if (chance(random, 0.5)) receive_completions = std::make_unique<CompletionQueue>(nic.context(), kCompletions, events);
  local = std::make_unique<MemoryRegion>(domain, memory.data(), memory.size(), memory.address_of({}),
                                         IBV_ACCESS_LOCAL_WRITE);
  remote = std::make_unique<MemoryRegion>(domain, memory.data(), memory.size(), memory.address_of({}), kAllAccess);
  if (chance(random, 0.25))
    shared = std::make_unique<ReceiveQueue>(setting.capabilities.max_recv_wr, setting.capabilities.max_recv_sge);
  QueuePairSettings settings;
  settings.type = setting.type;
  settings.send_queue = send_completions.get();
  settings.receive_queue = receive_completions ? receive_completions.get() : send_completions.get();
  settings.shared_receives = shared.get();
  settings.capabilities = setting.capabilities;
  settings.async = [](void* context, ibv_event_type event) {
    if (event != IBV_EVENT_COMM_EST) ++static_cast<Endpoint*>(context)->failures_;
  };
  settings.context = this;
  for (unsigned i = 0; i < setting.queue_pairs; ++i)
    queue_pairs.push_back(std::make_unique<QueuePair>(nic.context(), domain, settings));
}

}  // namespace plugfest::roce::model
