// The shapes that have a name, each made by a function of its numbers.
#pragma once

#include "fabric/topology/assembly.h"
#include "fabric/topology/graph.h"

namespace plugfest::topology {

// Hosts are called h1, h2, …, in pair and triangle a, b, c. `links`: how many links each pair of neighbours has. Unless
// said otherwise the subnets are the /30s of 10.0.0.0/8 in the order of the links.

/// Two hosts.
Graph pair(int links, const LinkParameters& parameters);

/// Three hosts, each pair with links and a /24 of their own from 192.168.100.0 on: a-b .100.0, a-c .101.0, b-c .102.0.
/// The first host of a pair has .1, the second .2. So no address of a host reaches both others.
Graph triangle(int links, const LinkParameters& parameters);

/// A link between each two of `hosts`.
Graph mesh(int hosts, int links, const LinkParameters& parameters);

/// Each host linked to the next, the last to the first. No host passes packets on.
Graph ring(int hosts, int links, const LinkParameters& parameters);

/// A ring that is cut open.
Graph line(int hosts, int links, const LinkParameters& parameters);

/// `rails` bridges, and each host with an interface on every one: eth0 on rail1, eth1 on rail2, … Rail r has subnet
/// 10.(r-1).0.0/16.
Graph rails(int rails, int hosts, const LinkParameters& parameters);

/// One bridge, s1: a single rail.
Graph star(int hosts, const LinkParameters& parameters);

/// Three tiers of routers with `k` ports each: k pods of k/2 edge and k/2 aggregation switches, (k/2)² core switches,
/// k/2 hosts on an edge switch. Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network
/// Architecture", 2008.
Graph fat_tree(int k, const LinkParameters& parameters);

/// Two tiers of routers, each leaf linked to each spine, `hosts` on each leaf.
Graph leaf_spine(int leaves, int spines, int hosts, const LinkParameters& parameters);

}  // namespace plugfest::topology
