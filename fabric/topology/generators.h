// Generates the named topologies.
#pragma once

#include "fabric/topology/file.h"
#include "fabric/topology/graph.h"

namespace plugfest::topology {

// Hosts are named h1, h2, …; in pair and triangle a, b, c. `links`: the number of parallel links between neighbours.
// Unless documented otherwise, the links get consecutive /30 subnets of 10.0.0.0/8.

Graph pair(int links, const LinkParameters& parameters);

/// Three hosts with a link between each pair. Links get consecutive /24 subnets: a-b 192.168.100.0, a-c 192.168.101.0,
/// b-c 192.168.102.0. The first host of a pair has .1, the second .2. No address of a host reaches both other hosts.
Graph triangle(int links, const LinkParameters& parameters);

/// `hosts` hosts with a link between each pair.
Graph mesh(int hosts, int links, const LinkParameters& parameters);

/// Each host is connected to the next, and the last to the first. Hosts do not forward packets.
Graph ring(int hosts, int links, const LinkParameters& parameters);

/// As ring(), without the link between the last and the first host.
Graph line(int hosts, int links, const LinkParameters& parameters);

/// `rails` bridges. Each host has one interface on each: eth0 on rail1, eth1 on rail2, … Rail r has subnet
/// 10.(r-1).0.0/16.
Graph rails(int rails, int hosts, const LinkParameters& parameters);

/// One bridge, s1, to which all hosts are connected.
Graph star(int hosts, const LinkParameters& parameters);

/// Three tiers of routers with `k` ports each: k pods of k/2 edge and k/2 aggregation switches, (k/2)² core switches,
/// k/2 hosts on an edge switch. Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network
/// Architecture", 2008.
Graph fat_tree(int k, const LinkParameters& parameters);

/// Two tiers of routers: each leaf is connected to each spine and to `hosts` hosts.
Graph leaf_spine(int leaves, int spines, int hosts, const LinkParameters& parameters);

}  // namespace plugfest::topology
