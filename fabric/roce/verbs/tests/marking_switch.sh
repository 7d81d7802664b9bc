#!/bin/bash
# Runs ib_write_bw through a switch port of 40 Mbit/s with RED, in a virtual machine.
#
#   marking_switch.sh FOLDER       FOLDER contains the libibverbs.so.1 of this project
#
# One run without PLUGFEST_ROCE_ECN, one with it. Prints the port's counters: "ecn 0: marked 0 dropped 1700".
set -u
folder=$1
work=$(mktemp -d)
ip link add switch type bridge && ip link set switch up
for host in a b; do
  ip netns add "$host"
  ip link add "to_$host" mtu 9000 type veth peer name eth0 mtu 9000 netns "$host"
  ip link set "to_$host" master switch && ip link set "to_$host" up
  # RED must decide about single packets.
  ip netns exec "$host" ethtool -K eth0 tx-udp-segmentation off
done
ip -n a address add 10.1.1.1/24 dev eth0 && ip -n a link set eth0 up
ip -n b address add 10.1.1.2/24 dev eth0 && ip -n b link set eth0 up

for ecn in 0 1; do
  tc qdisc replace dev to_a root handle 1: tbf rate 40mbit burst 50k limit 10m
  tc qdisc replace dev to_a parent 1:1 handle 10: red limit 400000 min 30000 max 90000 avpkt 4200 burst 10 \
    probability 0.1 bandwidth 40mbit ecn
  run() { ip netns exec "$1" env LD_LIBRARY_PATH="$folder" PLUGFEST_ROCE_ECN=$ecn timeout 60 "${@:2}"; }
  run a ib_write_bw -d roce_eth0 -F -s 65536 -n 150 >"$work/server" 2>&1 &
  until ip netns exec a ss -Hltn 'sport = 18515' | grep -q .; do :; done
  if ! run b ib_write_bw -d roce_eth0 -F -s 65536 -n 150 10.1.1.1 >"$work/client" 2>&1 || ! wait $!; then
    tail -n 20 "$work/client" "$work/server"
    exit 1
  fi
  tc -s qdisc show dev to_a | awk -v ecn=$ecn '/marked/ {print "ecn " ecn ": marked " $2 " dropped " $4 + $6}'
  tc qdisc del dev to_a root
done
