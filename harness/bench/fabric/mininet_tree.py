#!/usr/bin/env python3
"""mininet_tree.py K: builds and removes a fat tree with Mininet and Linux bridges, and prints the times.

Mininet creates the bridges in the namespace of this process, which the caller must discard.
"""
import sys
import time

import mininet.net
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo


class FatTree(Topo):
    def build(self, k):
        half = k // 2
        core = [self.addSwitch(f"c{i}") for i in range(half * half)]
        for pod in range(k):
            upper = [self.addSwitch(f"a{pod}x{i}") for i in range(half)]
            for i, switch in enumerate(upper):
                for j in range(half):
                    self.addLink(switch, core[i * half + j])
            for i in range(half):
                edge = self.addSwitch(f"e{pod}x{i}")
                for switch in upper:
                    self.addLink(edge, switch)
                for j in range(half):
                    self.addLink(self.addHost(f"h{pod}x{i}x{j}"), edge)


def kernel_kib():
    with open("/proc/meminfo") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Slab:", "Percpu:")))


mininet.net.fixLimits = lambda: None  # fixLimits would change the machine's settings
k = int(sys.argv[1])
before_kib = kernel_kib()
start = time.perf_counter()
net = Mininet(topo=FatTree(k=k), switch=LinuxBridge, controller=None)
net.start()
up = time.perf_counter() - start
host_kib = (kernel_kib() - before_kib) / (k**3 / 4)
start = time.perf_counter()
net.stop()
down = time.perf_counter() - start
print(f"up_seconds {up}\ndown_seconds {down}\nhost_kib {host_kib}")
