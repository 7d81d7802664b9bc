#!/usr/bin/env bash
# github_action_test.sh BUILD: runs the steps of action.yml as a runner does, with the release in a folder and an
# installation of BUILD in the tarball.
#
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
build=$1
make_scratch
cd -- "$scratch"

# A release with a tarball as scripts/release makes it, without libraries of the distribution.
version=$(sed -n 's/^project(plugfest VERSION \([0-9.]*\) .*/\1/p' "$here/../CMakeLists.txt")
name=plugfest-$version-linux-$(uname -m)
install_build "$build" "$scratch/$name"
release=releases/download/v$version
mkdir -p "$release"
tar -czf "$release/$name.tar.gz" "$name"
(cd "$release" && sha256sum "$name.tar.gz" >SHA256SUMS)

action=(env -u PLUGFEST_PROGRAM -u GITHUB_STEP_SUMMARY XDG_STATE_HOME=/dev/null "$here/github-action")
gives 0 '^[0-9a-f]{32}$' "${action[@]}" key
gives 0 "^plugfest $version" env ACTION_REF="v$version" RELEASES="file://$scratch/releases" "${action[@]}" install \
  "$scratch/in stalled"
# From the cache, without a release.
gives 0 "^plugfest $version" "${action[@]}" install "$scratch/in stalled"
echo tampered >>"$release/$name.tar.gz"
gives 2 'its checksum differs from the one in SHA256SUMS there' \
  env ACTION_REF="v$version" RELEASES="file://$scratch/releases" "${action[@]}" install "$scratch/other"

gives 0 '^$' "${action[@]}" permit

# A plugin that passes.
export PLUGFEST_PROGRAM="$scratch/in stalled/bin/plugfest" XDG_STATE_HOME=/dev/null
cp "$scratch/$name/lib/libnccl-net-mesh.so" "my plugin.so"
export GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY="$scratch/summary.md" PLUGIN="./my plugin.so"
run=("$here/github-action" run)
gives 0 '^Mesh v8: 3 pass' env TOPOLOGIES='triangle, star:3' API=v8 STRICT=true REPORTS='the reports' \
  ARGUMENTS="--rule 'CN-0[234]' --seed 7" "${run[@]}"
for report in triangle star-3; do
  for ending in .json .xml .html -badge.json; do
    [ -s "the reports/$report$ending" ] || wrong "no the reports/$report$ending"
  done
done
grep -q '"message": "Mesh v8: 3 pass", "color": "brightgreen"' 'the reports/star-3-badge.json' \
  || wrong "the badge is $(cat the*/*badge*)"
[ "$(grep -c 'Mesh v8: .*3 pass' summary.md)" -eq 2 ] || wrong "two summaries expected in: $(cat summary.md)"
! grep '^::error' <<<"$output" || wrong "annotations of a plugin that passes"

[ ! -e 'the reports/triangle-pcap' ] || wrong "packets of rules that pass"

# A plugin that only the first rule accepts: it prints commands to a runner, and breaks more rules than GitHub shows.
cat >hostile.c <<'END'
#include <stdio.h>
static int init(void* logger) { (void)logger; puts("::error title=from the plugin::obey"); return 3; }
static int devices(int* n) { *n = 0; return 3; }
struct { const char* name; int (*init)(void*); int (*devices)(int*); void* rest[16]; } ncclNetPlugin_v8 = {"Hostile", init, devices, {0}};
END
cc -shared -fPIC -o hostile.so hostile.c
gives 1 '^::error title=plugfest, triangle::' env PLUGIN=./hostile.so ARGUMENTS="--rule 'LD-*' --rule 'IN-*'" \
  "${run[@]}"
[ "$(grep -c '^::error title=plugfest' <<<"$output")" -le 10 ] || wrong "more than ten annotations"
# The runner ignores commands between these two lines.
awk '/^::stop-commands::/ { token = substr($0, 18) } $0 == "::" token "::" { token = "" }
     /::error title=from the plugin/ && token == "" { exit 1 }' <<<"$output" \
       || wrong "the runner would obey the plugin: $output"

gives 2 'the input plugin is empty' env PLUGIN= "${run[@]}"
gives 2 'the input strict is "yes": expected true or false' env STRICT=yes "${run[@]}"
gives 2 'the input arguments is "--rule .CN-04": expected words, and quotes in pairs' env ARGUMENTS="--rule 'CN-04" \
  "${run[@]}"
gives 2 '^::error title=plugfest, triangle::the plugin could not be tested \(exit code 2\): ./absent.so: no such file' \
  env PLUGIN=./absent.so "${run[@]}"
gives 2 '^::error title=plugfest::the input strict is "yes"' env STRICT=yes "${run[@]}"
gives 2 'expected key, install FOLDER, permit or run' "${action[@]}" judge
: >summary.md
if [ "$(id -u)" -ne 0 ]; then
  mkdir -m 555 shut
  gives 2 "cannot create directory .shut/r" env REPORTS=shut/r "${run[@]}"
fi
exit "$failed"
