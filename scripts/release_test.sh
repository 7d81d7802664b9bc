#!/usr/bin/env bash
# Tests scripts/release --check in a small scratch repository, and --documents in this one.
#
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
make_scratch
mkdir "$scratch/scripts"
cp "$here/release" "$here/setup.sh" "$scratch/scripts"
cd -- "$scratch"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a \
  GIT_COMMITTER_EMAIL=a@b.c
printf 'project(plugfest VERSION 1.2.3 LANGUAGES C CXX)\n' >CMakeLists.txt
printf '# Changelog\n\n## Unreleased\n\n## 1.2.2 - 2026-01-01\n' >CHANGELOG.md
git init -q .
git add . && git commit -qm first

# says CODE TEXT: expects that --check returns CODE and prints TEXT.
says() {
  local code=0 text
  text=$(scripts/release --check 2>&1) || code=$?
  [ "$code" -eq "$1" ] && [ "$text" = "$2" ] || wrong "exit code $code, expected $1, and
$text
instead of
$2"
}
says 1 'release: this commit has no tag v1.2.3: git tag v1.2.3
release: CHANGELOG.md begins with "Unreleased": expected "1.2.3 - YEAR-MONTH-DAY"'
printf '# Changelog\n\n## 1.2.3 - 2026-02-01\n' >CHANGELOG.md
git tag v1.2.3
says 1 'release: there are changes that are not committed'
git commit -qam second
says 1 'release: this commit has no tag v1.2.3: git tag v1.2.3'
git tag -f v1.2.3 >/dev/null
says 0 ''

# Each link of the tarball's documents leads to a file of the tarball.
"$here/release" --documents "$scratch/documents"
cd -- "$scratch/documents"
[ -s docs/commands.md ] && [ -s docs/report.png ] || wrong "the documents are $(find . -type f)"
while IFS=: read -r document link; do
  [ -e "$(dirname -- "$document")/$link" ] || wrong "$document links to $link, which is not in the tarball"
done < <(grep -roP --include='*.md' '\]\(\K[^)#:\s]+(?=[)#])' .)
exit "$failed"
