// The verbs objects of this library. Each struct derives from the ABI struct of rdma-core, so that static_cast converts
// the program's pointer, and contains the object of the engine.
//
// `engine` is std::optional where destruction has two steps: first the engine's object ends, so that no new events
// occur, then the destructor waits until the program has acknowledged its events.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/work_queues.h"
#include "fabric/roce/verbs/abi/event_queue.h"
#include "fabric/roce/verbs/abi/extended.h"
#include "fabric/roce/verbs/abi/mapping.h"
#include "fabric/roce/verbs/device/context.h"

namespace plugfest::roce::verbs {

/// Number of objects that depend on an object. While it is not 0, destroying the object fails with EBUSY, as in the
/// kernel.
using ReferenceCount = std::atomic<int>;

/// Holds a reference to an object for the lifetime of a dependent object.
class Reference {
 public:
  explicit Reference(ReferenceCount& references) : references_(references) { ++references_; }
  ~Reference() { --references_; }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

 private:
  ReferenceCount& references_;
};

struct Pd : ibv_pd {
  explicit Pd(Context& owner);

  ContextReference owner;
  Allocation allocation;
  ProtectionDomain engine;
  ReferenceCount references = 0;
};

struct Mr : ibv_mr {
  /// `mapped`: the mapping that holds `memory`; unmapped on deregistration.
  Mr(Pd& domain, void* memory, std::size_t size, std::uint64_t iova, unsigned access,
     std::optional<Mapping> mapped = std::nullopt);

  ContextReference owner;
  Allocation allocation;
  std::optional<Reference> pd_reference;
  std::optional<Mapping> mapping;
  MemoryRegion engine;
};

struct Mw : ibv_mw {
  Mw(Pd& domain, ibv_mw_type kind);

  ContextReference owner;
  Allocation allocation;
  Reference pd_reference;
  MemoryWindow engine;
};

struct Ah : AddressHandle {
  Ah(Pd& domain, const ibv_ah_attr& attributes);

  ContextReference owner;
  Allocation allocation;
  Reference pd_reference;
};

struct CompletionChannel : ibv_comp_channel {
  explicit CompletionChannel(Context& owner);

  ContextReference owner;
  EventQueue<ibv_cq*> events;
  ReferenceCount references = 0;
};

struct Cq : ibv_cq_ex {
  /// `fields`: the IBV_WC_EX_WITH_… that the program will read besides the fields of ibv_wc.
  /// `one_thread`: only one thread polls.
  Cq(Context& owner, int capacity, void* program_context, ibv_comp_channel* event_channel, std::uint64_t fields,
     bool one_thread);
  ~Cq();

  ContextReference owner;
  Allocation allocation;
  std::optional<Reference> channel_reference;
  EventAcknowledgement completion_events;
  EventAcknowledgement asynchronous_events;
  const bool one_thread;
  std::mutex polling;            ///< held from ibv_start_poll to ibv_end_poll, unless one_thread
  TimedCompletion current = {};  ///< last completion of the extended polling API; guarded by `polling`
  ReferenceCount references = 0;
  std::optional<CompletionQueue> engine;
};

/// An XRC domain of this process. Domains are not shared through files.
struct Xrcd : ibv_xrcd {
  explicit Xrcd(Context& opened);

  ContextReference owner;
  ProtectionDomain no_domain;  ///< the domain of queue pairs without one
  ReferenceCount references = 0;
};

struct Srq : ibv_srq {
  Srq(Pd& domain, const ibv_srq_init_attr& attributes);
  ~Srq();

  /// Makes it an XRC shared receive queue with a number, and with a completion queue of its own.
  void extend(Xrcd& xrcd, Cq& completions);

  ContextReference owner;
  Allocation allocation;
  Reference pd_reference;
  EventAcknowledgement asynchronous_events;
  ReferenceCount references = 0;
  std::optional<Reference> xrcd_reference;
  std::optional<Reference> cq_reference;
  std::optional<ReceiveQueue> engine;
  std::uint32_t number = 0;  ///< 0: no XRC
};

struct Qp : ibv_qp_ex {
  /// `domain` and `xrcd` may be null if the type of the queue pair needs none. `flags`: ibv_qp_create_flags.
  Qp(Context& context, Pd* domain, Xrcd* xrcd, const ibv_qp_init_attr& attributes, std::uint32_t flags = 0);
  ~Qp();

  ContextReference owner;
  Allocation allocation;
  std::optional<Reference> pd_reference;
  std::optional<Reference> xrcd_reference;
  std::optional<Reference> send_cq_reference;
  std::optional<Reference> receive_cq_reference;
  std::optional<Reference> srq_reference;
  std::optional<CompletionQueue> no_completions;  ///< the completion queue of an IBV_QPT_XRC_RECV queue pair
  EventAcknowledgement asynchronous_events;
  ExtendedPosting posting;
  bool uses_extended_posting = false;  ///< created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
  bool signals_all = false;
  std::optional<QueuePair> engine;
};

inline Pd& pd_of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }
inline Mr& mr_of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }
inline Mw& mw_of(ibv_mw* mw) { return *static_cast<Mw*>(mw); }
inline CompletionChannel& channel_of(ibv_comp_channel* channel) { return *static_cast<CompletionChannel*>(channel); }
inline Cq& cq_of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Xrcd& xrcd_of(ibv_xrcd* xrcd) { return *static_cast<Xrcd*>(xrcd); }
inline Srq& srq_of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }
inline Qp& qp_of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }

/// Destroys an object. Returns 0, or EBUSY and does nothing while other objects depend on it.
template <typename Object>
int destroy(Object& object) {
  if (object.references != 0) return EBUSY;
  delete &object;
  return 0;
}

/// Adds an asynchronous event of an object to its context's event queue. For callbacks of the engine.
void post_async_event(ibv_cq* cq, ibv_event_type type);
void post_async_event(ibv_qp* qp, ibv_event_type type);
void post_async_event(ibv_srq* srq, ibv_event_type type);

/// Discards the object's queued events and waits until the program has acknowledged the delivered ones.
void retire_events(Cq& cq);
void retire_events(Srq& srq);
void retire_events(Qp& qp);

/// Implementations of the extended verbs in verbs_context.
ibv_cq_ex* create_extended_cq(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept;
int modify_moderation(ibv_cq* queue, ibv_modify_cq_attr* attributes) noexcept;
ibv_qp* create_extended_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept;
ibv_srq* create_extended_srq(ibv_context* context, ibv_srq_init_attr_ex* attributes) noexcept;

ibv_xrcd* open_extended_domain(ibv_context* context, ibv_xrcd_init_attr* attributes) noexcept;
int close_extended_domain(ibv_xrcd* xrcd) noexcept;
int number_of_srq(ibv_srq* srq, std::uint32_t* number) noexcept;

/// Set the functions that the inline verbs of infiniband/verbs.h call: polling and notification, posting, memory
/// windows.
void install_polling(ibv_context_ops& ops);
void install_posting(ibv_context_ops& ops);
void install_memory_windows(ibv_context_ops& ops);

}  // namespace plugfest::roce::verbs
