// Mutants of the XF and PR rules about grouped receives, and about receives on several comms.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "conformance/mutants/faults/requests.h"
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
// irecv accepts only groups of the size of the comm's first group.
MUTANT(one_group_size_per_comm,
       breaks("XF-22")
           .also("FL-07", "PR-*", "XF-*")
           .because("each rule that posts groups of several sizes on a comm meets the fault")) {
  auto& widths = kept<PointerMap<int>>();
  refuse(net.irecv, Result::kInvalidUsage, [&](Receive receive) {
    return widths.change(receive.comm, [&](int& width) { return width = width == 0 ? receive.n : width; }) != receive.n;
  });
}

// irecv assigns the tags of a group to its buffers in reverse order.
MUTANT(group_tags_reversed, breaks("XF-23")
                                .also("FL-07", "PR-*", "XF-*")
                                .because("each rule that posts a group of several tags meets the fault")) {
  change_receives(net, [](CopiedReceive& receive) { std::reverse(receive.tags.begin(), receive.tags.end()); });
}

// The last tag of a large group is read before it has arrived, as 0.
MUTANT(half_arrived_tag_read_as_0,
       breaks("XF-23").also("FL-07", "PR-*", "XF-07", "XF-12", "XF-14", "XF-22", "XF-24", "XF-26", "XF-29", "XF-41")) {
  auto& groups = kept<PointerMap<int>>();
  change_receives(net, [&](CopiedReceive& receive) {
    if (receive.call.n > 2 && groups.add(receive.call.comm, 1) % 3 == 0) receive.tags.back() = 0;
  });
}

// A group with fewer buffers than the previous group of the comm gets the first tags of that group.
MUTANT(shrunk_group_keeps_first_tags, breaks("PR-05").also("PR-04", "PR-06")) {
  auto& last = kept<PointerMap<std::vector<int>>>();
  on_success(net.irecv, [&](Receive receive) {
    last.put(receive.comm, std::vector<int>(receive.tags, receive.tags + receive.n));
  });
  change_receives(net, [&](CopiedReceive& receive) {
    std::vector<int>& used = receive.tags;
    const std::vector<int> before = last.find(receive.call.comm).value_or(std::vector<int>{});
    const bool part = std::all_of(used.begin(), used.end(), [&](int tag) {
      return std::find(before.begin(), before.end(), tag) != before.end();
    });
    if (part && used.size() > 1 && used.size() < before.size()) std::copy_n(before.begin(), used.size(), used.begin());
  });
}

// Fills buffers with equal tags from the last to the first.
MUTANT(equal_tags_filled_in_reverse, breaks("XF-24")) {
  change_receives(net, [](CopiedReceive& receive) {
    for (std::size_t i = 0; i < receive.tags.size(); ++i) {
      std::size_t last = receive.tags.size() - 1;
      while (last > i && receive.tags[last] != receive.tags[i]) --last;
      if (last == i || receive.data[i] != receive.call.data[i]) continue;
      std::swap(receive.data[i], receive.data[last]);
      std::swap(receive.mhandles[i], receive.mhandles[last]);
    }
  });
}

// test writes one size more than the group has buffers.
MUTANT(extra_size_written, breaks("XF-26", "TS-04")) {
  when_receive_done(net, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) sizes[receive.sizes.size()] = 4096;
  });
}

// test writes the sizes of a group in reverse order.
MUTANT(group_sizes_reversed, breaks("XF-26")) {
  when_receive_done(net, [](const PostedReceive& receive, int* sizes) {
    if (sizes != nullptr) std::reverse(sizes, sizes + receive.sizes.size());
  });
}

// irecv of 0 buffers fails an assertion.
MUTANT(group_of_none_aborts, breaks("XF-27")) {
  abort_if(net.irecv, [](Receive receive) { return receive.n == 0; });
}

// irecv ignores the buffers beyond maxRecvs.
MUTANT(large_group_cut, breaks("XF-27")) {
  before(net.irecv, [](Receive& receive) { receive.n = std::min(receive.n, 8); });  // the base plugin's maxRecvs
}

// irecv uses the first registration for all buffers of a group.
MUTANT(first_mhandle_for_group, breaks("XF-29").also("PR-*")) {
  change_receives(net, [](CopiedReceive& receive) {
    for (void*& mhandle : receive.mhandles) mhandle = receive.mhandles.front();
  });
}

// A send matches a receive of one buffer regardless of its tag.
MUTANT(tag_ignored_for_one_buffer, breaks("XF-40").also("PR-04", "PR-05", "PR-06", "XF-12", "XF-22", "XF-41")) {
  constexpr int kAnyTag = 0x4fffffff;
  change_receives(net, [](CopiedReceive& receive) {
    if (receive.call.n == 1) receive.tags[0] = kAnyTag;
  });
  after(net.isend, [&good](Send send, Result result) {
    if (result != Result::kSuccess || *send.request != nullptr) return result;
    send.tag = kAnyTag;
    return good.isend(send);
  });
}

// A receive of one buffer after a group reports size 0 if its message arrived first.
MUTANT(size_lost_after_group, breaks("XF-41").also("XF-26")) {
  auto& widths = kept<PointerMap<int>>();  // of the last receive, by comm
  auto& suspects = kept<PointerSet>();     // requests
  on_success(net.irecv, [&](Receive receive) {
    if (receive.n == 1 && widths.find(receive.comm).value_or(1) > 1) suspects.insert(*receive.request);
    widths.put(receive.comm, receive.n);
  });
  on_success(net.test, [&](Test test) {
    if (suspects.erase(test.request) && test.sizes != nullptr) *test.sizes = 0;
  });
}

// test reads the argument arrays of a grouped irecv that follows three groups.
MUTANT(arrays_read_later, breaks("XF-14", "XF-07", "XF-22", "XF-26").also("XF-12")) {
  HeldRequests& held_requests = HeldRequests::install(net);
  auto& groups = kept<PointerMap<int>>();    // in flight, by comm
  auto& owners = kept<PointerMap<void*>>();  // comms of groups in flight
  net.irecv = [&](Receive receive) {
    Result result = Result::kSuccess;
    if (receive.n > 1 && groups.add(receive.comm, 0) >= 3)
      *receive.request = held_requests.hold([receive, &good](void** real) mutable {
        receive.request = real;
        return good.irecv(receive);
      });
    else
      result = good.irecv(receive);
    if (receive.n == 1 || result != Result::kSuccess || *receive.request == nullptr) return result;
    groups.add(receive.comm, 1);
    owners.put(*receive.request, receive.comm);
    return result;
  };
  on_success(net.test, [&](Test test) {
    if (const auto comm = owners.take(test.request)) groups.add(*comm, -1);
  });
  before(net.close_recv, [&](void* comm) { groups.erase(comm); });
}

// The process can have receives in flight on 3 comms.
MUTANT(receives_on_few_comms, breaks("PR-03", "PR-04", "PR-05", "PR-06").also("CN-19", "XF-33", "XF-43", "TH-02")) {
  InFlight& in_flight = InFlight::watch(net);
  refuse(net.irecv, Result::kInternalError,
         [&](Receive receive) { return in_flight.other_receiving_comms(receive.comm) >= 3; });
  before(net.close_recv, [&](void* comm) { in_flight.forget(comm); });
}

}  // namespace plugfest::mutants
