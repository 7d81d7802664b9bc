// The rates to which the kernel limits what interfaces send.
#pragma once

#include <map>

namespace plugfest::roce::verbs {

/// The rates of the token bucket filters (tbf) at the roots of interfaces, with which fabrics limit their links: in
/// Mbit/s, by interface index, for all interfaces of the caller's network namespace that have one. Empty if the kernel
/// refuses the query. Thread safety: any thread.
std::map<int, int> rate_limits_mbps();

}  // namespace plugfest::roce::verbs
