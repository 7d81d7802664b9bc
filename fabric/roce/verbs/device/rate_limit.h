// The rate to which the kernel limits what an interface sends.
#pragma once

namespace plugfest::roce::verbs {

/// The rate of the token bucket filter (tbf) at the root of an interface, in Mbit/s: fabrics limit their links with it.
/// 0 if there is none, or the kernel does not tell. `interface_index`: in the caller's network namespace.
/// Thread safety: any thread.
int rate_limit_mbps(int interface_index);

}  // namespace plugfest::roce::verbs
