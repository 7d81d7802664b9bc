// What the pointers that programs hold point into: rdma-core's structs in front, the engine's objects behind.
//
// Each struct derives from the ABI struct, so that a static_cast leads from the program's pointer to ours. The engine's
// part is optional only to be ended before the rest: an object first stops to work, then waits for its last event to be
// acknowledged.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/memory/memory_window.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/destination.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/receive_queue.h"
#include "fabric/roce/verbs/abi/acknowledgements.h"
#include "fabric/roce/verbs/abi/event_queue.h"
#include "fabric/roce/verbs/abi/extended_posting.h"
#include "fabric/roce/verbs/abi/mapping.h"
#include "fabric/roce/verbs/device/context.h"

namespace plugfest::roce::verbs {

/// How many objects need this one. Destroying it before them fails with EBUSY, as the kernel has it.
using Users = std::atomic<int>;

/// One object's need of another, for its own lifetime.
class Use {
 public:
  explicit Use(Users& users) : users_(users) { ++users_; }
  ~Use() { --users_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Users& users_;
};

struct Domain : ibv_pd {
  explicit Domain(Context& owner);

  ContextHold owner;
  Share of_device;
  ProtectionDomain engine;
  Users users = 0;
};

struct Region : ibv_mr {
  /// `mapped`: what to unmap when the region has gone, for memory that was mapped for it.
  Region(Domain& domain, void* memory, std::size_t size, std::uint64_t iova, unsigned access,
         std::optional<Mapping> mapped = std::nullopt);

  ContextHold owner;
  Share of_device;
  Use of_domain;
  std::optional<Mapping> mapping;
  MemoryRegion engine;
};

struct Window : ibv_mw {
  Window(Domain& domain, ibv_mw_type kind);

  ContextHold owner;
  Share of_device;
  Use of_domain;
  MemoryWindow engine;
};

struct Handle : AddressHandle {
  Handle(Domain& domain, const ibv_ah_attr& attributes);

  ContextHold owner;
  Share of_device;
  Use of_domain;
};

struct Channel : ibv_comp_channel {
  explicit Channel(Context& owner);

  ContextHold owner;
  EventQueue<ibv_cq*> events;
  Users users = 0;
};

struct Completions : ibv_cq_ex {
  Completions(Context& owner, int capacity, void* program_context, ibv_comp_channel* event_channel);
  ~Completions();

  ContextHold owner;
  Share of_device;
  std::optional<Use> of_channel;
  Acknowledgements completion_events;
  Acknowledgements asynchronous_events;
  ibv_wc lazy = {};  ///< the completion that ibv_start_poll or ibv_next_poll found
  Users users = 0;
  std::optional<CompletionQueue> engine;
};

struct SharedReceives : ibv_srq {
  SharedReceives(Domain& domain, const ibv_srq_init_attr& attributes);
  ~SharedReceives();

  ContextHold owner;
  Share of_device;
  Use of_domain;
  Acknowledgements asynchronous_events;
  Users users = 0;
  std::optional<ReceiveQueue> engine;
};

struct Pair : ibv_qp_ex {
  Pair(Domain& domain, const ibv_qp_init_attr& attributes);
  ~Pair();

  ContextHold owner;
  Share of_device;
  Use of_domain;
  Use of_send_queue;
  Use of_receive_queue;
  std::optional<Use> of_shared_receives;
  Acknowledgements asynchronous_events;
  ExtendedPosting posting;
  bool posts_extended = false;  ///< created for the ibv_wr_* calls
  bool signals_all = false;
  std::optional<QueuePair> engine;
};

inline Domain& domain_of(ibv_pd* pd) { return *static_cast<Domain*>(pd); }
inline Region& region_of(ibv_mr* mr) { return *static_cast<Region*>(mr); }
inline Window& window_of(ibv_mw* mw) { return *static_cast<Window*>(mw); }
inline Channel& channel_of(ibv_comp_channel* channel) { return *static_cast<Channel*>(channel); }
inline Completions& completions_of(ibv_cq* cq) { return *static_cast<Completions*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline SharedReceives& shared_receives_of(ibv_srq* srq) { return *static_cast<SharedReceives*>(srq); }
inline Pair& pair_of(ibv_qp* qp) { return *static_cast<Pair*>(reinterpret_cast<ibv_qp_ex*>(qp)); }

/// Hands an asynchronous event of an object to its context's queue. For the engine's callbacks.
void announce(ibv_cq* cq, ibv_event_type type);
void announce(ibv_qp* qp, ibv_event_type type);
void announce(ibv_srq* srq, ibv_event_type type);

/// Takes back events that the program has not seen, and waits until it has acknowledged those that it has.
void settle_events(Completions& completions);
void settle_events(SharedReceives& receives);
void settle_events(Pair& pair);

/// Bodies of the extended verbs that the context's table points to.
ibv_cq_ex* create_extended_queue(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept;
ibv_qp* create_extended_pair(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept;
ibv_srq* create_extended_shared_receives(ibv_context* context, ibv_srq_init_attr_ex* attributes) noexcept;

/// Fill the functions that the header's inline verbs call: polling and notification, posting, memory windows.
void install_polling(ibv_context_ops& ops);
void install_posting(ibv_context_ops& ops);
void install_windows(ibv_context_ops& ops);

}  // namespace plugfest::roce::verbs
