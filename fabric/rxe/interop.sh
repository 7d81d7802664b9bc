#!/bin/bash
# Runs in a guest: verbs programs with the user-space NIC at one end of a veth pair, and with the kernel's rxe at the other.
#
#   interop.sh FOLDER CHECK...     FOLDER: with the drop-in libibverbs.so.1; CHECK: NAME=PROGRAM WITH ARGUMENTS
#   interop.sh FOLDER throughput   ib_write_bw of each NIC against itself
#
# Each check runs twice, with the user-space NIC as client and as server. It prints "ok NAME client:SIDE", or "FAIL NAME
# client:SIDE" and both outputs if a program fails or times out. Suffixes of NAME select a variant:
#   …_with_loss         the user-space NIC drops 2 % of all packets (LOSS=0.02)
#   …_with_netem        netem drops 2 % in both directions
#   …_over_ipv6         global IPv6 addresses
#   …_over_link_local   link-local IPv6 addresses
set -u
folder=$1
shift
work=$(mktemp -d)

# rxe works only in the initial namespace. The user-space NIC is in the namespace "ours".
ip netns add ours
ip link add v0 mtu 9000 type veth peer name v1 mtu 9000 netns ours
# Skip duplicate address detection, which takes two seconds.
echo 0 >/proc/sys/net/ipv6/conf/v0/accept_dad
ip netns exec ours sh -c 'echo 0 >/proc/sys/net/ipv6/conf/v1/accept_dad'
ip address add 10.1.1.1/24 dev v0 && ip address add fd00:1::1/64 dev v0 && ip link set v0 up
ip -n ours address add 10.1.1.2/24 dev v1 && ip -n ours address add fd00:1::2/64 dev v1
ip -n ours link set v1 up && ip -n ours link set lo up
rdma link add rxe0 type rxe netdev v0 || exit 2

# kernel_gid PREFIX: prints the index of the kernel's GID that begins with PREFIX.
kernel_gid() {
  local file
  until file=$(grep -l "^$1" /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1); [ -n "$file" ]; do sleep 0.05; done
  echo "${file##*/}"
}
gids_of() {
  case $1 in
    *over_ipv6) our_gid=1 kernel_gid=$(kernel_gid fd00:) ;;
    *over_link_local) our_gid=2 kernel_gid=$(kernel_gid fe80:) ;;
    *) our_gid=0 kernel_gid=$(kernel_gid 0000:0000:0000:0000:0000:ffff:0a01:0101) ;;
  esac
}
netem() {
  tc qdisc "$1" dev v0 root netem ${2:-} && tc -n ours qdisc "$1" dev v1 root netem ${2:-}
}

in_kernel() { timeout 120 "$@"; }
in_ours() { ip netns exec ours env LD_LIBRARY_PATH="$folder" ${faults:+PLUGFEST_ROCE_FAULTS=$faults} timeout 120 "$@"; }

listens() {
  if [ "$1" = ours ]; then ip netns exec ours ss -Hltn 'sport = 18515'; else ss -Hltn 'sport = 18515'; fi | grep -q .
}

# options SIDE PROGRAM: prints the program's options for device and GID.
options() {
  local device=rxe0 gid=$kernel_gid
  [ "$1" = ours ] && device=roce_v1 gid=$our_gid
  case ${2##*/} in ibv_* | verbs-exchange) echo "-d $device -g $gid" ;; *) echo "-d $device -x $gid -F" ;; esac
}

# check NAME CLIENT SERVER ADDRESS PROGRAM...
check() {
  local name=$1 client=$2 server=$3 address=$4 pid
  shift 4
  "in_$server" "$@" $(options "$server" "$1") >"$work/server" 2>&1 &
  pid=$!
  until listens "$server" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  if "in_$client" "$@" $(options "$client" "$1") "$address" >"$work/client" 2>&1 && wait "$pid"; then
    echo "ok $name client:$client"
  else
    kill "$pid" 2>/dev/null
    wait "$pid"
    echo "FAIL $name client:$client"
    tail -n 20 "$work/client" "$work/server"
  fi
}

bandwidth() { awk '/^ *[0-9]/ {rate = $4} END {print rate}' "$work/client"; }

if [ "$1" = throughput ]; then
  ip netns add peer
  ip -n ours link add w0 mtu 9000 type veth peer name w1 mtu 9000 netns peer
  ip -n ours address add 10.1.2.1/24 dev w0 && ip -n ours link set w0 up
  ip -n peer address add 10.1.2.2/24 dev w1 && ip -n peer link set w1 up && ip -n peer link set lo up
  ip link add x0 mtu 9000 type veth peer name x1 mtu 9000
  for i in 0 1; do
    for setting in accept_local=1 rp_filter=0 arp_ignore=1; do
      echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/x$i/${setting%=*}"
    done
    ip address add "10.1.3.$((i + 1))/24" dev "x$i" && ip link set "x$i" up
    rdma link add "rxex$i" type rxe netdev "x$i"
  done
  gid_of() { local f; f=$(grep -l "ffff:0a01:030$1" "/sys/class/infiniband/rxex$2/ports/1/gids/"*); echo "${f##*/}"; }
  measure=(ib_write_bw -F -s 1048576 -n 30)
  in_kernel "${measure[@]}" -d rxex0 -x "$(gid_of 1 0)" >"$work/server" 2>&1 &
  until listens kernel; do sleep 0.05; done
  in_kernel "${measure[@]}" -d rxex1 -x "$(gid_of 2 1)" 10.1.3.1 >"$work/client" 2>&1
  wait
  kernel=$(bandwidth)
  in_ours "${measure[@]}" -d roce_w0 -x 0 >"$work/server" 2>&1 &
  until listens ours; do sleep 0.05; done
  ip netns exec peer env LD_LIBRARY_PATH="$folder" "${measure[@]}" -d roce_w1 -x 0 10.1.2.1 >"$work/client" 2>&1
  wait
  echo "ib_write_bw 1 MiB: ours $(bandwidth) MiB/s, rxe $kernel MiB/s"
  exit
fi

for one in "$@"; do
  name=${one%%=*} faults=
  gids_of "$name"
  case $name in
    *with_loss) faults="loss=${LOSS:-0.02},seed=7" ;;
    *with_netem) netem add 'loss 2%' ;;
  esac
  read -ra program <<<"${one#*=}"
  check "$name" ours kernel 10.1.1.1 "${program[@]}"
  check "$name" kernel ours 10.1.1.2 "${program[@]}"
  case $name in *with_netem) netem del ;; esac
done
