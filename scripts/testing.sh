# Sourced by tests of scripts: a scratch folder, and a check of commands. A test ends with `exit "$failed"`.
#
# shellcheck disable=SC2034 # the tests use the variables
set -euo pipefail
here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
failed=0

# make_scratch: makes the folder $scratch, which is removed at the end.
make_scratch() {
  scratch=$(mktemp -d)
  trap 'rm -rf -- "$scratch"' EXIT
}

# install_build BUILD PREFIX [COMPONENT]: installs like `cmake --install`, but without a list of files in BUILD, which may be
# another user's.
install_build() {
  sed "s|\"$1/\${CMAKE_INSTALL_MANIFEST}\"|\"$scratch/manifest\"|" "$1/cmake_install.cmake" >"$scratch/install.cmake"
  cmake -DCMAKE_INSTALL_PREFIX="$2" ${3:+"-DCMAKE_INSTALL_COMPONENT=$3"} -P "$scratch/install.cmake" >/dev/null
}

# wrong TEXT...: the test fails with this text.
wrong() {
  printf 'FAIL: %s\n' "$*"
  failed=1
}

# gives CODE PATTERN COMMAND...: the command ends with CODE and prints a line that matches PATTERN. Keeps its output in
# $output.
gives() {
  local expected=$1 pattern=$2 code=0
  shift 2
  output=$("$@" 2>&1 </dev/null) || code=$?
  [ "$code" -eq "$expected" ] && grep -Eq -- "$pattern" <<<"$output" ||
    wrong "$(printf '%s\n  exit code %s, expected %s and /%s/ in:\n%s' "$*" "$code" "$expected" "$pattern" "$output")"
}
