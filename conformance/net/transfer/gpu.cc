// Rules that need a GPU. Ranks have no GPU memory, so these rules are skipped.
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(
    MR_02, Must, ApiRange::all(),  //
    .title = "GPU memory registers and has a handle",
    .text = "With the CUDA bit, regMr accepts memory of cudaMalloc and of cuMem, and parts of it, and stores a handle.",
    .source = "transport/net.cc: netRegisterBuffer takes NULL as failure",
    .why = "Without GPU memory NCCL copies every message through host memory, or fails to connect.",
    .needs = "a CUDA GPU") {}

RULE(MR_17, Must, ApiRange::all(),  //
     .title = "a DMA-BUF registers, and its descriptor may be closed",
     .text = "regMrDmaBuf does not use the descriptor after it has returned.",
     .source = "transport/net.cc: sendProxyConnect closes it",
     .why = "NCCL closes it at once; a later use of the number reaches another file.", .needs = "a CUDA GPU") {}

RULE(FL_01, Must, ApiRange::all(),  //
     .title = "iflush makes received data visible to the GPU",
     .text = "When iflush stores NULL, or its request is done, the GPU reads what the receive delivered.",
     .source = "transport/net.cc: second phase of recvProxyProgress",
     .why = "The GPU reads old bytes: silent corruption.", .needs = "a CUDA GPU") {}

RULE(FL_03, Must, ApiRange::all(),  //
     .title = "iflush accepts groups with empty messages",
     .text = "iflush gets the sizes of all buffers of a group, of which some may be 0.",
     .source = "transport/net.cc: second phase of recvProxyProgress",
     .why = "An error ends the communicator; a flush of the wrong buffer leaves old bytes.", .needs = "a CUDA GPU") {}

RULE(FL_05, Must, ApiRange::all(),  //
     .title = "iflush does not change data",
     .text = "The memory of a receive holds the same bytes before and after iflush.",
     .source = "transport/net_ib.cc reads one word by RDMA",
     .why = "A flush that writes corrupts the message that it should make visible.", .needs = "a CUDA GPU") {}

RULE(FL_08, Must, ApiRange::from(7),  //
     .title = "getDeviceMr stores a handle",
     .text = "For device types other than HOST, getDeviceMr stores the handle that the GPU uses.",
     .source = "transport/net.cc: recvProxyConnect",
     .why = "The GPU uses the handle itself; NULL or a stale one ends its kernel.", .needs = "a CUDA GPU") {}

RULE(TH_05, Should, ApiRange::all(),  //
     .title = "calls keep the thread's CUDA context",
     .text = "The current CUDA device and context of the calling thread are the same after each call.",
     .source = "proxy.cc: the progress thread sets its device once",
     .why = "NCCL's next CUDA call would go to another GPU.", .needs = "a CUDA GPU") {}

}  // namespace plugfest::conformance
