// CN: how connections come to be, and that nothing on the way waits for the peer.
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(CN_06, Must, ApiRange::all(),                                                                       //
     .title = "connect never waits for the peer",                                                        //
     .text = "A connect that is not finished returns Success with *sendComm NULL and is called again.",  //
     .source = "nccl_net.h; ncclProxyService: one loop serves every connection of a GPU (NVIDIA/nccl #616)") {
  skip("not written yet");
}

}  // namespace plugfest::conformance
