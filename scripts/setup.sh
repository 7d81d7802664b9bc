# Sourced by scripts/plugfest and scripts/test: packages, compiler, configure, build.
#
# Needs: Debian 12, Ubuntu 22.04 or 24.04. Nothing here needs root once the packages are installed.
# PLUGFEST_BUILD_DIR  where to build (default: build/ in the clone)
# PLUGFEST_WERROR     if set, a build in which the compiler warns fails. Unlike -Werror, this needs no entries of
#                     its own in the compiler cache.
#
# shellcheck disable=SC2034 # callers use the variables

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=${PLUGFEST_BUILD_DIR:-$repository/build}

# The packages that the programs need, and those that only the tests need.
packages_to_build=(
  cmake g++ ninja-build pkg-config git ca-certificates libcli11-dev libdw-dev libfmt-dev libibverbs-dev libisal-dev
  libmbedtls-dev libnl-3-dev libnl-route-3-dev librapidcheck-dev libyaml-cpp-dev nlohmann-json3-dev
)
packages_to_test=(
  ccache curl dpkg-dev ethtool file fio graphviz help2man ibverbs-providers ibverbs-utils iperf3 iproute2
  libfabric-bin libgmock-dev
  libgtest-dev make openmpi-bin perftest procps python3 python3-pyverbs
  python3-scapy qemu-system-x86 qperf rdmacm-utils tcpdump tshark ucx-utils util-linux
)
# Only continuous integration installs these: packages of servers may start the servers, which users do not expect of a
# test, and clang-format is large.
packages_of_ci=(clang-format-14 lintian openssh-server shellcheck slurm-wlm)
os_release=/etc/os-release
# The browser for tests of reports. Ubuntu has it only as a snap, which containers cannot run; the tests are then
# skipped.
! grep -qs '^ID=debian' "$os_release" || packages_to_test+=(chromium)
# Ubuntu 22.04 has libFuzzer in a package that clang-14 brings.
packages_to_fuzz=(clang-14)
grep -qs '^VERSION_CODENAME=jammy' "$os_release" || packages_to_fuzz+=(libclang-rt-14-dev)

fail() {
  printf 'plugfest: %s\n' "$*" >&2
  exit 2
}

# Whether g++ is older than 12, or will be after its installation: Ubuntu 22.04 has 11, and 12 in a separate package.
gxx_is_old() {
  if command -v g++ >/dev/null; then
    [ "$(g++ -dumpversion | cut -d. -f1)" -lt 12 ]
  else
    grep -qs '^VERSION_CODENAME=jammy' "$os_release"
  fi
}

# Prints the packages among "$@" that are not installed.
missing_packages() {
  local installed package
  # dpkg-query exits with 1 when it does not know one of the packages, and lists the others.
  installed=$({ dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true; } |
    sed -n 's/ installed$//p')
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Installs the missing packages among "$@" if that needs no password; otherwise prints the command to type.
ensure_packages() {
  local missing sudo=() log
  command -v dpkg-query >/dev/null ||
    fail "no dpkg-query: Debian 12, Ubuntu 22.04 or 24.04 has it; elsewhere install the equivalents of these packages, then
    cmake -S $repository -B $build -G Ninja && ninja -C $build programs && $build/bin/plugfest run
  packages: $*"
  if gxx_is_old; then set -- "$@" g++-12; fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing: run as root
    apt-get install --no-install-recommends ${missing[*]}"
    sudo -n true 2>/dev/null || fail "these packages are missing: run
    sudo apt-get install --no-install-recommends ${missing[*]}"
    sudo=(sudo -n)
  fi
  printf 'plugfest: installing %s\n' "${missing[*]}" >&2
  log=$(mktemp)
  if ! {
    "${sudo[@]}" apt-get -qq update &&
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
  } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install ${missing[*]}: see above"
  fi
  rm -f "$log"
}

# configured DIRECTORY [-DNAME=VALUE...]: whether the build in DIRECTORY was configured with these values.
configured() {
  local cache=$1/CMakeCache.txt option name
  [ -f "$1/build.ninja" ] || return 1
  shift
  for option in "$@"; do
    name=${option#-D}
    grep -qE -- "^${name%%=*}:[A-Z]+=${name#*=}\$" "$cache" || return 1
  done
}

# configure DIRECTORY [-DNAME=VALUE...]: configures once; later, ninja follows changes of CMake files.
configure() {
  local directory=$1 compilers=()
  configured "$@" && return
  shift
  mkdir -p -- "$directory" 2>/dev/null && [ -w "$directory" ] ||
    fail "$directory: cannot write the build there: set PLUGFEST_BUILD_DIR to a folder of yours"
  mark_building "$directory"
  if gxx_is_old; then
    compilers=(-DCMAKE_C_COMPILER=gcc-12 -DCMAKE_CXX_COMPILER=g++-12)
  fi
  cmake -S "$repository" -B "$directory" -G Ninja "${compilers[@]}" "$@" >"$directory/configure.log" 2>&1 || {
    tail -n 30 "$directory/configure.log" >&2
    fail "configuring failed: $directory/configure.log contains the whole output"
  }
}

# Checks that no disk of a folder among "$@" is full: compilers report a full disk in unclear words.
fail_if_full() {
  local folder
  for folder in "$@"; do
    [ "$(df -Pk -- "$folder" | awk 'NR == 2 {print $4}')" -ge 16384 ] ||
      fail "the build failed: the disk that $folder is on is full; a build takes 0.5 GB, with tests 1.5 GB: make room, or set
    PLUGFEST_BUILD_DIR to a folder elsewhere, and TMPDIR if that is the full one"
  done
}

# mark_building DIRECTORY: tells commands that wait for the lock which process builds, and since when.
mark_building() {
  [ ! -w "$1/.lock" ] || printf 'process %s has built in %s since %(%T)T\n' $$ "$1" -1 >"$1/.lock"
}

# show_progress DIRECTORY: keeps ninja's output in build.log, and shows the current step on a terminal.
show_progress() {
  local line columns=80 built=
  [ ! -t 2 ] || read -r _ columns < <(stty size <&2 2>/dev/null || echo 0 80)
  while IFS= read -r line; do
    printf '%s\n' "$line" >&3
    [[ $line == \[* && $line != *'Re-checking globbed directories...' ]] || continue
    [ -n "$built" ] || mark_building "$1"
    built=1
    [ ! -t 2 ] || printf '\r\033[K%s' "${line:0:columns-1}" >&2
  done 3>"$1/build.log"
  [ -z "$built" ] || [ ! -t 2 ] || printf '\r\033[K' >&2
}

# compile DIRECTORY [target...]: builds. Without a terminal, or if the build is up to date, it prints only errors.
compile() {
  local directory=$1
  shift
  ninja -C "$directory" "$@" 2>&1 | show_progress "$directory" || {
    fail_if_full "$directory" "${TMPDIR:-/tmp}"
    { grep -E -A 20 'error|FAILED' "$directory/build.log" || tail -n 20 "$directory/build.log"; } 2>/dev/null |
      head -n 60 >&2 || true
    fail "the build failed: $directory/build.log contains the whole output"
  }
  # Sanitizers make GCC warn of correct code.
  if [ -n "${PLUGFEST_WERROR:-}" ] && [ "$directory" = "$build" ] &&
    grep -E -A 20 '^[^ ]+:[0-9]+:([0-9]+:)? warning: ' "$directory/build.log" >&2; then
    fail "the compiler warns, see above; PLUGFEST_WERROR makes that an error"
  fi
}

# build_alone DIRECTORY [target...]: configures and builds under a lock that excludes other commands of plugfest.
build_alone() {
  local directory=$1 lock
  mkdir -p -- "$directory" 2>/dev/null && exec {lock}>>"$directory/.lock" || unset lock # configure says what is wrong
  if [ -n "${lock:-}" ]; then
    until flock --timeout 0.1 "$lock"; do
      [ -s "$directory/.lock" ] || continue # the other command has found nothing to build yet
      printf 'plugfest: waiting: %s%s\n' "$(cat "$directory/.lock")" \
        "$(sed -n 's/^\[\([0-9]*\)\/\([0-9]*\)\] .*/, step \1 of \2/p' "$directory/build.log" 2>/dev/null | tail -n 1)" >&2
      flock "$lock"
      break
    done
    : >"$directory/.lock"
  fi
  configure "$directory"
  compile "$@"
  if [ -n "${lock:-}" ]; then
    : >"$directory/.lock"
    exec {lock}>&-
  fi
}
