// FL rules: iflush of host memory, irecvConsumed and getDeviceMr.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/net/script/flow.h"

namespace plugfest::conformance {

namespace {

// Base of rules about iflush, which NCCL calls for plugins that receive into GPU memory.
class FlushRule : public MessageRule {
 protected:
  void require_cuda_bit() {
    if (!has_cuda_bit(receiver())) not_applicable("ptrSupport has no CUDA bit: NCCL does not flush host memory");
  }
  // Calls iflush for a slot. Empty: no completion to wait for. Errors: `NotApplicable` when the first call returns an
  // error, since NCCL flushes GPU memory only, and this memory is the host's.
  Request flush(Flow& flow, std::size_t slot) {
    const PointerOutcome outcome = flow.recv_comm().try_iflush({{flow.target(slot), 0}});
    if (!outcome.ok() && !flushed_) {
      not_applicable(fmt::format("{} returned {} for host memory, which NCCL does not flush", outcome.call,
                                 result_name(outcome.code)));
    }
    flushed_ = true;
    require_success(outcome);
    return flow.recv_comm().request(outcome.value);
  }

 private:
  bool flushed_ = false;
};

}  // namespace

RULE_ON(FlushRule, FL_02, Must, ApiRange::all(),  //
        .title = "iflush does not read *request",
        .text = "*request is NULL when iflush is called, and stays NULL if there is nothing to wait for.",
        .source = "transport/net.cc: recvProxyProgress",
        .why = "NCCL passes a NULL request. A plugin that dereferences it crashes the process.",
        .check =
            "Completes a receive and flushes it four times with *request NULL. Each flush must succeed, and its "
            "request, if there is one, must complete.",
        .blind = "GPU memory: the flushed memory is the host's.",
        .faults = {{"google/nccl-plugin-gpudirecttcpx", "iflush used the request that *request pointed to"}}) {
  require_cuda_bit();
  Flow flow = make_flow(1, 3000);
  for (int round = 0; round < 4; ++round) {
    flow.exchange(0);
    if (const Request request = flush(flow, 0)) request.wait({.done = 1, .sizes = false});
  }
}

RULE_ON(FlushRule, FL_04, Must, ApiRange::all(),  //
        .title = "flushes and receives are in flight together",
        .text =
            "A comm has up to 8 operations in flight, each of which is a receive or the flush of one. Flushes are "
            "tested in the order of posting, with sizes NULL and *done 1 before the call.",
        .source = "transport/net.cc: third phase of recvProxyProgress",
        .why = "If a comm cannot have both in flight, an error ends the communicator, or the GPU reads old bytes.",
        .check =
            "Completes 4 receives, flushes one, posts 4 more, flushes the first 4, waits for the flushes in order with "
            "*done preset to 1, then sends to the receives and compares every byte.",
        .blind = "GPU memory: whether a flush makes data visible is not seen.") {
  require_cuda_bit();
  // A flush takes the place of its receive: receives and flushes together fill NCCL's 8 steps.
  constexpr std::size_t kSlots = 4;
  Flow flow = make_flow(2 * kSlots, 3000);
  for (std::size_t i = 0; i < kSlots; ++i) flow.exchange(i);
  if (control::Request request = flush(flow, 0)) request.wait({.done = 1, .sizes = false});
  for (std::size_t i = 0; i < kSlots; ++i) flow.receive(kSlots + i);
  traffic().post_receives();
  std::vector<Request> flushes;
  for (std::size_t i = 0; i < kSlots; ++i)
    if (const Request request = flush(flow, i)) flushes.push_back(request);
  for (Request& request : flushes) request.wait({.done = 1, .sizes = false});
  for (std::size_t i = 0; i < kSlots; ++i) flow.send(kSlots + i);
  flow.finish();
}

RULE_ON(FlushRule, FL_06, Should, ApiRange::all(),  //
        .title = "iflush of host memory does not crash",
        .text = "A plugin without the CUDA bit may refuse iflush, which NCCL does not call.",
        .source = "transport/net.cc: useGdr",
        .why = "A call by mistake should end in an error code. A crash ends the application.",
        .check = "Completes a receive and calls iflush for it. Any result code is accepted.") {
  if (has_cuda_bit(receiver()) || !receiver().rank.has_function("iflush"))
    not_applicable("ptrSupport has the CUDA bit, or iflush is NULL");
  probe([&] {
    Flow flow = make_flow(1, 3000);
    flow.exchange(0);
    flow.recv_comm().try_iflush({{flow.target(0), 0}});
  });
}

RULE_ON(MessageRule, FL_07, Must, ApiRange::all(),  //
        .title = "irecvConsumed accepts completed requests",
        .text =
            "If irecvConsumed is not NULL, NCCL calls it for each completed receive, with the old request pointer and "
            "the buffer count of the newest receive. Newer receives are in flight then and may reuse the pointer.",
        .source = "transport/net.cc: fourth phase of recvProxyProgress, recvRequestsCache",
        .why =
            "The request is old, and the count belongs to another receive. A plugin that looks up the request or "
            "compares the counts returns an error, which ends the communicator.",
        .check =
            "Completes a receive, posts a newer one of another width, calls irecvConsumed with the old request, "
            "requires the newer one to complete, and calls irecvConsumed for it too.",
        .blind = "Several consumed receives at once.") {
  if (!receiver().rank.has_function("irecvConsumed")) not_applicable("irecvConsumed is NULL");
  const std::size_t group = std::min<std::size_t>(max_recvs(), 4);
  Flow flow = make_flow(1 + group, 3000);
  for (int round = 0; round < 8; ++round) {
    const Flow::Ticket first = flow.receive(0);
    flow.send(0);
    flow.finish();
    const auto consume = [&](Flow::Ticket receive, std::size_t count) {
      require_success(flow.recv_comm().try_consumed(static_cast<int>(count), traffic().request(receive).value()));
    };

    // A newer receive of another width is in flight during the irecvConsumed of the old one.
    const std::vector<int> tags = tags_from(0, round % 2 == 0 ? 1 : group);
    const Flow::Ticket newer = flow.receive_group(1, tags);
    traffic().post_receives();
    consume(first, tags.size());
    for (const int tag : tags) flow.send(1 + static_cast<std::size_t>(tag), Flow::kWhole, tag);
    flow.finish();
    consume(newer, tags.size());
  }
}

RULE(FL_08, Must, ApiRange::from(7),  //
     .title = "getDeviceMr stores a handle",
     .text = "For device types other than HOST, getDeviceMr stores the handle that the GPU uses, if the plugin has it.",
     .source = "transport/net.cc: recvProxyConnect",
     .why = "The GPU uses the handle itself; NULL or a stale one ends its kernel.",
     .check =
         "Registers memory on a receive comm and calls getDeviceMr with its mhandle. The call must succeed and store a "
         "handle other than NULL.",
     .blind = "Whether a GPU can use the handle.") {
  Endpoint receiver = far_endpoint();
  if (!receiver.rank.has_function("getDeviceMr")) not_applicable("getDeviceMr is NULL");
  if (receiver.rank.try_properties(receiver.device).integer("netDeviceType") == 0)
    not_applicable("netDeviceType is 0 (HOST): NCCL does not call getDeviceMr");
  const Connection connection = connect(near_endpoint(), receiver);
  Registration registration = connection.receive.reg(far_rank().allocate(4096));
  const PointerOutcome outcome = connection.receive.try_device_mr(registration.value(), Preset::kPoison);
  require_success(outcome);
  expect(!outcome.untouched && outcome.value != 0,
         fmt::format("{} returned Success and {}, expected a handle", outcome.call,
                     outcome.untouched ? "stored nothing" : "stored NULL"));
  registration.dereg();
}

}  // namespace plugfest::conformance
