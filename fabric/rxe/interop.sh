#!/bin/bash
# Runs in a guest: verbs programs with the user-space NIC at one end of a veth pair, and with the kernel's rxe at the
# other.
#
#   interop.sh FOLDER CHECK...     FOLDER: with the drop-in libibverbs.so.1; CHECK: NAME=PROGRAM WITH ARGUMENTS
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
  until file=$(grep -l "^$1" /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1); [ -n "$file" ]; do :; done
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
  # shellcheck disable=SC2086 # $2 is several words or none
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
# shellcheck disable=SC2046 # options prints several words
check() {
  local name=$1 client=$2 server=$3 address=$4 pid
  shift 4
  "in_$server" "$@" $(options "$server" "$1") >"$work/server" 2>&1 &
  pid=$!
  until listens "$server" || ! kill -0 "$pid" 2>/dev/null; do :; done
  if "in_$client" "$@" $(options "$client" "$1") "$address" >"$work/client" 2>&1 && wait "$pid"; then
    echo "ok $name client:$client"
  else
    kill "$pid" 2>/dev/null
    wait "$pid"
    echo "FAIL $name client:$client"
    tail -n 20 "$work/client" "$work/server"
  fi
}

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
