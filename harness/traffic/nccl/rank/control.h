// What both sides of the control channel of a rank know.
#pragma once

namespace plugfest::nccl {

/// The rank's end of the channel, a stream socket.
inline constexpr int kControlFd = 3;
/// Code of an "error" answer that is no ncclResult_t: libnccl.so.2 cannot be used; the text is for the user.
inline constexpr int kCannotLoad = 100;
/// Text of the answer of a "churn" that goes on.
inline constexpr const char* kRunning = "running";
/// Stands for a line break inside of an answer.
inline constexpr char kLineBreak = '\v';

}  // namespace plugfest::nccl
