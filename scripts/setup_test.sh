#!/usr/bin/env bash
# Tests ensure_packages of setup.sh: what it prints and what it has apt-get install, by the state of the machine.
#
# setup_test.sh [SETUP]   SETUP: the file to test; default: setup.sh beside this script
# Exit code: 0 all cases passed, 1 a case failed.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
setup=${1:-$here/setup.sh}
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
failed=0

# Puts a program on the private PATH. Its body is read from standard input.
program() {
  { printf '#!%s\nfolder=%q\n' "$BASH" "$folder"; cat; } >"$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}

# machine USER_ID [PACKAGE STATUS]...: a machine without g++ and sudo, whose dpkg knows these packages.
machine() {
  local user_id=$1 tool
  shift
  rm -rf -- "$folder"/*
  mkdir -- "$folder/bin"
  for tool in awk bash cat cut dirname env grep mktemp rm sed tail; do ln -s -- "$(type -P "$tool")" "$folder/bin/$tool"; done
  printf '%s %s\n' "$@" | sed '/^ $/d' >"$folder/status"
  printf 'VERSION_CODENAME=bookworm\n' >"$folder/os-release"
  program id <<<"echo $user_id"
  # Lists the packages that it knows; exits with 1 when it does not know all.
  program dpkg-query <<'END'
shift 3
for package; do grep "^$package " "$folder/status" || { unknown=1; echo "dpkg-query: no packages found matching $package" >&2; }; done
exit "${unknown:-0}"
END
  program apt-get <<'END'
echo "$(id) $*" >>"$folder/apt-get.log"
[ "$2" = update ] || [ ! -e "$folder/broken" ] || { echo "E: Unable to locate package"; exit 100; }
END
}
sudo_program() {
  program sudo <<<"$1"
}
gxx_program() {
  program g++ <<<"echo $1"
}

# ensure PACKAGE...: runs ensure_packages; leaves what it printed in $printed, its exit code in $code, the calls of apt-get in $calls.
ensure() {
  code=0
  printed=$(PATH=$folder/bin "$BASH" -c 'set -euo pipefail; source "$1"; os_release=$2; shift 2; ensure_packages "$@"; echo "goes on"' \
    setup_test "$setup" "$folder/os-release" "$@" 2>&1) || code=$?
  calls=$(cat "$folder/apt-get.log" 2>/dev/null || true)
}

# expect CASE CODE PRINTED [CALL...]
expect() {
  local name=$1 expected_code=$2 expected_printed=$3 expected_calls
  shift 3
  expected_calls=$(printf '%s\n' "$@")
  if [ "$code" = "$expected_code" ] && [ "$printed" = "$expected_printed" ] && [ "$calls" = "$expected_calls" ]; then
    printf 'pass    %s\n' "$name"
  else
    failed=1
    diff -u --label expected --label actual <(printf 'exit code %s\n%s\n--\n%s\n' "$expected_code" "$expected_printed" "$expected_calls") \
      <(printf 'exit code %s\n%s\n--\n%s\n' "$code" "$printed" "$calls") || true
    printf 'FAIL    %s\n' "$name"
  fi
}
update='-qq update'
install='-qq install -y --no-install-recommends'

machine 1000 cmake installed git installed
ensure cmake git
expect 'no package is missing' 0 'goes on'

machine 0 cmake installed git not-installed
ensure cmake git
expect 'a package is missing that dpkg knows' 0 $'plugfest: installing git\ngoes on' "0 $update" "0 $install git"

machine 0 cmake installed git config-files
ensure cmake git
expect 'a package is removed except for its configuration' 0 $'plugfest: installing git\ngoes on' "0 $update" "0 $install git"

machine 0 cmake installed
ensure cmake libfmt-dev
expect 'a package is missing that dpkg does not know' 0 $'plugfest: installing libfmt-dev\ngoes on' "0 $update" "0 $install libfmt-dev"

machine 0
ensure cmake g++ libfmt-dev
expect 'no package is installed' 0 $'plugfest: installing cmake g++ libfmt-dev\ngoes on' "0 $update" "0 $install cmake g++ libfmt-dev"

machine 0 cmake installed
touch "$folder/broken"
ensure cmake libfmt-dev
expect 'apt-get fails' 2 $'plugfest: installing libfmt-dev\nE: Unable to locate package\nplugfest: apt-get could not install libfmt-dev: see above' \
  "0 $update" "0 $install libfmt-dev"

machine 1000 cmake installed
ensure cmake libfmt-dev
expect 'an ordinary user has no sudo' 2 'plugfest: these packages are missing: run as root
    apt-get install --no-install-recommends libfmt-dev'

machine 1000 cmake installed
sudo_program 'exit 1'
ensure cmake libfmt-dev git
expect 'sudo asks for a password' 2 'plugfest: these packages are missing: run
    sudo apt-get install --no-install-recommends libfmt-dev git'

machine 1000 cmake installed
sudo_program 'shift; [ "$1" != true ] || exit 0; printf "echo 0" >"$folder/bin/id"; exec "$@"'
ensure cmake libfmt-dev
expect 'sudo asks for no password' 0 $'plugfest: installing libfmt-dev\ngoes on' "0 $update" "0 $install libfmt-dev"

machine 0
rm "$folder/bin/dpkg-query"
PLUGFEST_BUILD_DIR=/b ensure cmake git
expect 'a system without dpkg' 2 "plugfest: no dpkg-query: Debian 12, Ubuntu 22.04 or 24.04 has it; elsewhere install the equivalents of these packages, then
    cmake -S ${here%/*} -B /b -G Ninja && ninja -C /b programs && /b/bin/plugfest run
  packages: cmake git"

machine 0 g++ installed
gxx_program 11
ensure g++
expect 'g++ is too old' 0 $'plugfest: installing g++-12\ngoes on' "0 $update" "0 $install g++-12"

machine 0 g++ installed g++-12 installed
gxx_program 11
ensure g++
expect 'g++ is too old, g++-12 is installed' 0 'goes on'

machine 0 g++ installed
gxx_program 12.2.0
ensure g++
expect 'g++ is new enough' 0 'goes on'

machine 1000
printf 'VERSION_CODENAME=jammy\n' >"$folder/os-release"
ensure g++
expect 'one command installs g++-12 too on Ubuntu 22.04' 2 'plugfest: these packages are missing: run as root
    apt-get install --no-install-recommends g++ g++-12'

exit "$failed"
