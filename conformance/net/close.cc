// CL: closing, with or without the peer.
#include <fmt/format.h>

#include "conformance/net/message.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

using control::Connection;
using control::End;
using control::Listener;

RULE(CL_01, Must, ApiRange::all(),  //
     .title = "close needs no help from the peer",
     .text =
         "closeSend, closeRecv and closeListen return Success whatever the peer does, in any order between the two "
         "sides.",
     .source = "transport/net.cc: sendProxyFree, recvProxyFree; aws-ofi-nccl #868, #953") {
  End left = near(), right = far();
  for (const bool sender_first : {true, false}) {
    Connection out = control::connect(left, right);
    Connection back = control::connect(right, left);
    Listener listener = left.rank.listen(left.device);
    deliver(left, right, out, {.size = 1000, .seed = random()()});
    deliver(right, left, back, {.size = 1000, .seed = random()()});

    right.rank.freeze();  // one side closes while the other stands still
    if (sender_first) out.send.close();
    back.receive.close();
    if (!sender_first) out.send.close();
    listener.close();
    right.rank.thaw();

    // The other side closes what nobody answers to any more.
    if (sender_first) back.send.close();
    out.receive.close();
    if (!sender_first) back.send.close();
  }
}

}  // namespace plugfest::conformance
