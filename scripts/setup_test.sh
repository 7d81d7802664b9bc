#!/usr/bin/env bash
# Tests ensure_packages of setup.sh: its output and its calls of apt-get, by the state of the machine. Also tests the
# output and exit code of scripts/plugfest with stand-ins for the compiler, the build and the program.
#
# setup_test.sh [SETUP]   SETUP: the file to test; default: setup.sh beside this script
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
make_scratch
unset PLUGFEST_WERROR # which CI sets
setup=${1:-$here/setup.sh}
folder=$scratch

# Puts a program on the private PATH. Its body is read from standard input.
program() {
  rm -f -- "$folder/bin/$1" # may be a link to the real program, which root could overwrite
  { printf '#!%s\nfolder=%q\n' "$BASH" "$folder"; cat; } >"$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}

# machine USER_ID [PACKAGE STATUS]...: a machine without g++ and sudo, whose dpkg knows these packages.
machine() {
  local user_id=$1 tool
  shift
  rm -rf -- "${folder:?}"/*
  mkdir -- "$folder/bin"
  for tool in awk bash cat cut dirname env grep mktemp rm sed tail; do
    ln -s -- "$(type -P "$tool")" "$folder/bin/$tool"
  done
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

# ensure PACKAGE...: runs ensure_packages; leaves its output in $printed, its exit code in $code, the calls of apt-get
# in $calls.
ensure() {
  code=0
  printed=$(PATH=$folder/bin "$BASH" -c \
    'set -euo pipefail; source "$1"; os_release=$2; shift 2; ensure_packages "$@"; echo "goes on"' \
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
    diff -u --label expected --label actual <(printf 'exit code %s\n%s\n--\n%s\n' "$expected_code" "$expected_printed" \
      "$expected_calls") \
      <(printf 'exit code %s\n%s\n--\n%s\n' "$code" "$printed" "$calls") || true
    printf 'FAIL    %s\n' "$name"
  fi
}
update='-qq update'
install='-qq install -y --no-install-recommends'

machine 1000 cmake installed git installed
ensure cmake git
expect 'no package is missing' 0 'goes on'

machine 0 cmake installed git not-installed make config-files
ensure cmake git make libfmt-dev
expect 'packages are missing that dpkg knows, knows by their configuration, and does not know' 0 \
  $'plugfest: installing git make libfmt-dev\ngoes on' "0 $update" "0 $install git make libfmt-dev"

machine 0
ensure cmake g++ libfmt-dev
expect 'no package is installed' 0 $'plugfest: installing cmake g++ libfmt-dev\ngoes on' "0 $update" \
  "0 $install cmake g++ libfmt-dev"

machine 0 cmake installed
touch "$folder/broken"
ensure cmake libfmt-dev
expect 'apt-get fails' 2 \
  $'plugfest: installing libfmt-dev\nE: Unable to locate package\nplugfest: apt-get could not install libfmt-dev: see above' \
  "0 $update" "0 $install libfmt-dev"

machine 1000 cmake installed
ensure cmake libfmt-dev
expect 'an ordinary user has no sudo' 2 'plugfest: these packages are missing: run as root
    apt-get install --no-install-recommends libfmt-dev'

machine 1000 cmake installed
program sudo <<<'exit 1'
ensure cmake libfmt-dev git
expect 'sudo asks for a password' 2 'plugfest: these packages are missing: run
    sudo apt-get install --no-install-recommends libfmt-dev git'

machine 1000 cmake installed
program sudo <<<'shift; [ "$1" != true ] || exit 0; printf "echo 0" >"$folder/bin/id"; exec "$@"'
ensure cmake libfmt-dev
expect 'sudo asks for no password' 0 $'plugfest: installing libfmt-dev\ngoes on' "0 $update" "0 $install libfmt-dev"

machine 0
rm "$folder/bin/dpkg-query"
PLUGFEST_BUILD_DIR=/b ensure cmake git
expect 'a system without dpkg' 2 \
  "plugfest: no dpkg-query: Debian 12, Ubuntu 22.04 or 24.04 has it; elsewhere install the equivalents of these packages, then
    cmake -S ${here%/*} -B /b -G Ninja && ninja -C /b programs && /b/bin/plugfest run
  packages: cmake git"

machine 0 g++ installed
program g++ <<<'echo 11'
ensure g++
expect 'g++ is too old' 0 $'plugfest: installing g++-12\ngoes on' "0 $update" "0 $install g++-12"

machine 0 g++ installed g++-12 installed
program g++ <<<'echo 11'
ensure g++
expect 'g++ is too old, g++-12 is installed' 0 'goes on'

machine 0 g++ installed
program g++ <<<'echo 12.2.0'
ensure g++
expect 'g++ is new enough' 0 'goes on'

machine 1000
printf 'VERSION_CODENAME=jammy\n' >"$folder/os-release"
ensure g++
expect 'one command installs g++-12 too on Ubuntu 22.04' 2 'plugfest: these packages are missing: run as root
    apt-get install --no-install-recommends g++ g++-12'

# machine_that_builds: a machine with all packages, on which cmake and ninja do nothing and plugfest exits with 1.
machine_that_builds() {
  machine 0
  local tool
  for tool in df flock head mkdir readlink stty; do ln -s -- "$(type -P "$tool")" "$folder/bin/$tool"; done
  program dpkg-query <<<'shift 3; printf "%s installed\n" "$@"'
  program g++ <<<'echo 12'
  program cmake <<<'touch "$folder/build/build.ninja"'
  program touch <<<': >"$1"'
  program ninja <<<'echo "ninja: Entering directory"; echo "[0/2] Re-checking globbed directories..."; echo "ninja: no work to do."'
  mkdir -p -- "$folder/build/bin"
  printf '#!%s\necho "plugfest $*"; exit 1\n' "$BASH" >"$folder/build/bin/plugfest"
  chmod 755 "$folder/build/bin/plugfest"
}

# launch COMMAND: runs COMMAND, in which $plugfest is scripts/plugfest; leaves $printed, $code and $calls as ensure
# does.
launch() {
  code=0
  printed=$(export PATH=$folder/bin PLUGFEST_BUILD_DIR=${build_folder:-$folder/build} plugfest=$here/plugfest folder; \
    "$BASH" -c "$1" 2>&1) || code=$?
  calls=
}

machine_that_builds
launch '$plugfest run --list'
expect 'it returns the exit code of plugfest' 1 'plugfest run --list'

machine_that_builds
ln -s -- "$here/plugfest" "$folder/link"
ln -s -- link "$folder/second"
launch '$folder/second run'
expect 'a symbolic link to scripts/plugfest works' 1 'plugfest run'

machine_that_builds
launch '$plugfest rules <&- 2>&-'
expect 'descriptors are closed' 1 'plugfest rules'

machine_that_builds
program ninja <<<'echo "ninja: fatal: out of luck"; exit 1'
launch '$plugfest run'
expect 'ninja fails' 2 "ninja: fatal: out of luck
plugfest: the build failed: $folder/build/build.log contains the whole output"

machine_that_builds
program ninja <<<'printf "FAILED: a.o\na.cc:1: error: no\n"; exit 1'
launch '$plugfest run'
expect 'the compiler fails' 2 "FAILED: a.o
a.cc:1: error: no
plugfest: the build failed: $folder/build/build.log contains the whole output"

machine_that_builds
program ninja <<<'printf "a.cc:1:2: warning: odd\n"'
launch '$plugfest run'
expect 'the compiler warns' 1 'plugfest run'
launch 'PLUGFEST_WERROR=1 $plugfest run'
expect 'the compiler warns, and warnings are errors' 2 'a.cc:1:2: warning: odd
plugfest: the compiler warns, see above; PLUGFEST_WERROR makes that an error'

machine_that_builds
rm "$folder/bin/ninja"
launch '$plugfest run 2>/dev/null'
expect 'ninja is missing' 2 ''

machine_that_builds
program cmake <<<'echo "CMake Error: no CMAKE_CXX_COMPILER"; exit 1'
launch '$plugfest run'
expect 'the compiler is missing' 2 "CMake Error: no CMAKE_CXX_COMPILER
plugfest: configuring failed: $folder/build/configure.log contains the whole output"

machine_that_builds
build_folder=/proc/none launch '$plugfest run'
expect 'the build folder cannot be written' 2 $'plugfest: building in /proc/none; the first time takes some minutes
plugfest: /proc/none: cannot write the build there: set PLUGFEST_BUILD_DIR to a folder of yours'

machine_that_builds
printf '#!/no/such/interpreter\n' >"$folder/build/bin/plugfest"
launch '$plugfest run 2>/dev/null'
expect 'plugfest cannot be executed' 2 ''

# A terminal of 20 columns: script(1) prints what it shows.
machine_that_builds
ln -s -- "$(type -P script)" "$folder/bin/script"
launch 'script -qec "$plugfest run" /dev/null </dev/null'
expect 'nothing is to be built: a terminal shows nothing' 1 $'plugfest run\r'

machine_that_builds
ln -s -- "$(type -P script)" "$folder/bin/script"
program ninja <<<'printf "[1/2] a long step of the build\n"'
launch 'script -qec "stty columns 20; $plugfest run" /dev/null </dev/null'
expect 'a terminal shows which step runs' 1 $'\r\033[K[1/2] a long step o\r\033[Kplugfest run\r'

machine_that_builds
program flock <<<'[ "$1" = --timeout ] || exit 1; echo try >>"$folder/tries"; [ "$(grep -c try "$folder/tries")" -gt 2 ]'
launch '$plugfest run'
expect 'another command finds nothing to build' 1 'plugfest run'

machine_that_builds
program flock <<<'[ "$1" != --timeout ]'
printf 'process 7 has built in /b since 10:00:00\n' >"$folder/build/.lock"
printf '[1/40] a\n[2/40] b\nc\n' >"$folder/build/build.log"
launch '$plugfest run'
expect 'another command builds' 1 'plugfest: waiting: process 7 has built in /b since 10:00:00, step 2 of 40
plugfest run'

machine_that_builds
program ninja <<<'echo "[1/2] a step"
until read -r line <"$folder/build/.lock"; do :; done
echo "$line" >"$folder/mark"'
launch '$plugfest run'
grep -Eq "^process [0-9]+ has built in $folder/build since [0-9]{2}:[0-9]{2}:[0-9]{2}\$" "$folder/mark" ||
  wrong "a build writes $(cat "$folder/mark") into its lock"

exit "$failed"
