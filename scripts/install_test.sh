#!/usr/bin/env bash
# install_test.sh BUILD: installs the build into a scratch folder, moves the tree, hides the build, and runs the
# commands of users.
#
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
build=$1

# Hides the build from this script's processes. An ordinary user may do that in a new namespace.
if [ "${2:-}" != --inside ]; then
  make_scratch
  chmod 755 "$scratch"
  install_build "$build" "$scratch/first"
  install_build "$build" "$scratch/fabric" fabric
  mkdir "$scratch/then moved"
  mv -- "$scratch/first" "$scratch/then moved/here"
  identity=()
  [ "$(id -u)" -eq 0 ] || identity=(--map-root-user)
  unshare --mount "${identity[@]}" --propagation private "$0" "$build" --inside "$scratch"
  exit
fi
scratch=$3
mount -t tmpfs hidden "$build"
installed="$scratch/then moved/here"
export XDG_STATE_HOME=/dev/null

cd /
gives 0 '^Mesh v12: [0-9]+ pass in' "$installed/bin/plugfest" run --rule @smoke
gives 0 '^Mesh v12: 2 pass in' "$installed/bin/plugfest" run --rule CN-06 --rule XF-05 --nic loopback
# Runs the program by the name of the link, as a shell finds it.
gives 0 '^Mesh v12: 1 pass' env PATH="$installed/bin:$PATH" plugfest run --rule CN-06 --plugin \
  "$installed/lib/libnccl-net-mesh.so"
gives 0 '^1: CA' "$installed/bin/plugfest" fabric exec a -- cat /sys/class/infiniband/roce_eth0/node_type
gives 0 '^.SH NAME' zcat "$installed/share/man/man1/plugfest-run.1.gz"
gives 0 '^complete -F' cat "$installed/share/bash-completion/completions/plugfest"
# A new plugin, built and tested with the installed files.
gives 0 '^my-plugin: a net plugin' bash -c 'cd "$1" && "$2/bin/plugfest" new my-plugin' bash "$scratch" "$installed"
gives 0 'Built target nccl-net-my-plugin' bash -c '
  cd "$1/my-plugin" && cmake -S . -B build "-Dplugfest_DIR=$2/lib/cmake/plugfest" && cmake --build build' bash \
    "$scratch" "$installed"
gives 0 '^my-plugin v8: [0-9]+ pass' "$installed/bin/plugfest" run --plugin \
  "$scratch/my-plugin/build/libnccl-net-my-plugin.so" --rule @smoke
gives 0 'nccl-net-my-plugin.XF$' ctest --test-dir "$scratch/my-plugin/build" -N
gives 0 '"results.json of plugfest"' cat "$installed/share/plugfest/results.schema.json"
gives 0 '^[|] \[CN-06\]\(#cn-06.*\) [|] M [|] .* [|] [?] [|]$' "$installed/bin/plugfest" rules --markdown -
gives 0 'not here: scripts/plugfest explain CN-06 in a clone of the repository' bash -c \
  '"$1" explain CN-06 | tr -s " \n" " "' bash "$installed/bin/plugfest"
gives 2 'mutants: no such folder: mutants are not installed; build them' "$installed/bin/plugfest" mutants
gives 2 'udp-probe: no such file: the benchmarks are not installed; run scripts' "$installed/bin/plugfest" bench nic
gives 0 '^sent ' "$installed/bin/plugfest" bench reduction --topology star:3 --rate 1Gbit --rounds 1
gives 0 '^[0-9]+ commands, 0 wrong$' "$here/commands_test.py" "$installed/bin/plugfest" README.md
gives 2 'libnccl-net-mesh.so: no such file$' bash -c '
  mkdir "$2" && cp -r "$1/lib/plugfest" "$2" && "$2/plugfest/bin/plugfest" run' bash "$installed" "$scratch/part"
# The package plugfest-fabric.
gives 0 '^1: CA' "$scratch/fabric/bin/plugfest" fabric exec a -- cat /sys/class/infiniband/roce_eth0/node_type
gives 0 '^libplugfest-rdmacm.so$' "$scratch/fabric/bin/plugfest" fabric exec a -- printenv LD_PRELOAD
gives 2 'plugfest-rank is neither in .*: install the package plugfest or build it$' "$scratch/fabric/bin/plugfest" run \
  --plugin "$installed/lib/libnccl-net-mesh.so"
exit "$failed"
