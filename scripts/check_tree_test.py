#!/usr/bin/env python3
"""Tests scripts/check-tree in a small scratch repository: without errors, and with an error for each check.

Exit code: 0 check-tree reports the errors and nothing else, 1 it does not.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from tree import ROOT

IN_A_CLONE = "In a clone, type `scripts/plugfest` instead.\n"
RULES = "# Rules\n\n### CN-01 one\n\n### CN-02 two\n"
DEPENDENCIES = {"fabric/system": [], "harness/wire": ["fabric/system"], "conformance/net": []}
PROGRAM = f"""#!/bin/sh
case "$*" in
--help) printf 'Options:\\n\\nSubcommands:\\n  run    tests\\n  rules  lists\\n' ;;
'run --help') printf '  --json FILE\\n' ;;
'rules --markdown -') printf '%s' '{RULES}' ;;
'run --list --interface net') printf 'CN-01\\nCN-02\\n' ;;
esac
"""
SAMPLE = """
```
$ plugfest run
CN  1 pass, {} fail
{} rules, 1 s
```
"""
QUOTE = """
```
RULE(CN_01, …) {{
  listen();
  {}();
}}
```
"""
CLEAN = {
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 - 2026-01-01\n",
    "README.md": f"# Readme\n\n{IN_A_CLONE}See [rules](docs/rules.md), CN-01 and `scripts/tree.py`.\n",
    "docs/architecture.md": '# Parts\n\n```mermaid\n  a["fabric"]\n  b["harness/wire<br>text"]\n  b --> a\n```\n',
    "docs/commands.md": (f"# Commands\n\n{IN_A_CLONE}`plugfest run --json f.json`, `plugfest rules`\n" +
                         SAMPLE.format(1, 2)),
    "docs/rule.md": "# A rule\n" + QUOTE.format("accept"),
    "docs/rules.md": RULES,
    "fabric/README.md": "`system/` is the system.\n",
    "fabric/system/CMakeLists.txt": "plugfest_library(plugfest_system clock.cc)\n",
    "fabric/system/clock.h": "// Clocks.\n#pragma once\n",
    "fabric/system/clock.cc": '#include "fabric/system/clock.h"\n',
    "harness/README.md": "`wire/` has messages.\n",
    "harness/wire/CMakeLists.txt": "plugfest_library(plugfest_wire message.cc LINK plugfest_system)\n",
    "harness/wire/message.h": "// Messages.\n#pragma once\n",
    "harness/wire/message.cc": '#include "harness/wire/message.h"\n\n#include "fabric/system/clock.h"\n',
    "conformance/README.md": "`net/` has rules.\n",
    "conformance/net/rules.cc": 'RULE(CN_01, "title") {\n  listen();\n  accept();\n}\n',
    "scripts/plugfest": "#!/bin/sh\n",
}


class Repository:
    """A repository whose branch main has no error."""

    def __init__(self, folder):
        self.root = folder / "tree"
        self.program = folder / "plugfest"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)
        for name in ("scripts/check-tree", "scripts/document_checks.py", "scripts/tree.py", "scripts/format",
                     ".clang-format", ".shellcheckrc"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        for name, text in CLEAN.items():
            self.append(name, text)
        self.depend(DEPENDENCIES)
        self.git("init", "-q", "-b", "main")
        self.commit("Begin", "Body.")
        self.git("checkout", "-q", "-b", "work")

    def git(self, *arguments):
        name = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(["git", *arguments], cwd=self.root, check=True,
                       env={**os.environ, **name, "GIT_CONFIG_GLOBAL": "/dev/null"})

    def commit(self, subject, body=""):
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", subject, "-m", body)

    def append(self, name, text, line=1):
        """Returns FILE:LINE of a line of the text."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else ""
        path.write_text(before + text)
        return f"{name}:{len(before.splitlines()) + line}"

    def depend(self, dependencies):
        path = self.root / "scripts/check-tree"
        entries = "".join(f"    {folder!r}: {others!r},\n" for folder, others in dependencies.items())
        path.write_text(re.sub(r"(?<=^DEPENDENCIES = \{\n).*?(?=^\}\n)", entries, path.read_text(), flags=re.S | re.M))

    def check(self, base="main", program=None):
        """The exit code, the errors and what else it prints."""
        done = subprocess.run(["scripts/check-tree", "--program", program or self.program], cwd=self.root, text=True,
                              capture_output=True, env={**os.environ, "PLUGFEST_BASE": base})
        return done.returncode, done.stdout.splitlines(), done.stderr


def add_errors(repository):
    """Adds errors, and returns the beginning of the line that reports each."""
    add = repository.append
    expected = []

    # Sources and scripts.
    if shutil.which("clang-format-14"):
        add("harness/wire/message.cc", "int  wide;\n")
        expected.append("harness/wire/message.cc: is not formatted")
    expected.append(add("fabric/system/clock.h", "/// Of a clock.\n") + ': the comment begins with "Of"')
    for begin in ("As now(", "As above", "That of", "Those of"):
        add("fabric/system/clock.h", f"\n// A clock.\n// {begin} continues the comment.\n")
        expected.append(add("fabric/system/clock.h", f"\n/// {begin} a clock.\n", 2) + f': the comment begins with "{begin}"')
    clock = "\nnamespace plugfest {\n\nclass Clock {};\n\n}  // namespace plugfest\n"
    add("fabric/system/clock.h", clock)
    expected.append(add("harness/wire/message.h", clock, 4) + ": fabric/system/clock.h:27 defines another plugfest::Clock")
    for word in ("Initiali" "se", "licen" "ces", "label" "led", "for" " ever"):
        expected.append(add("README.md", f"{word}\n") + f': "{word}" is British')
    add("README.md", "For every aria-label" "ledby, also: inside, of which.\n")
    for phrase in (", %s if" % "also", "outside%sof" % " "):
        expected.append(add("README.md", f"{phrase} it\n") + f': "{phrase}" is not idiomatic')
        expected.append(add("fabric/system/clock.h", "// " + phrase.replace(" ", "\n// ") + " it\n") +
                        f': "{phrase.strip()}" is not idiomatic')
    if shutil.which("shellcheck"):
        expected.append(add("scripts/new.sh", "#!/bin/sh\necho $1\n", 2) + ":6: note: Double quote")
    expected.append(add("README.md", "x" * 141 + "\n") + ": 141 columns: at most 140")
    expected.append(add("harness/wire/CMakeLists.txt", "#" * 121 + "\n") + ": 121 columns: at most 120")

    # Folders.
    repository.depend({**DEPENDENCIES, "plugins/one": ["plugins/two"], "plugins/two": ["plugins/one"]})
    for one, other in (("one", "two"), ("two", "one")):
        expected += [f"scripts/check-tree: DEPENDENCIES names plugins/{one}, which does not exist",
                     f"scripts/check-tree: DEPENDENCIES allows plugins/{one} to depend on plugins/{other}, and nothing"]
    expected += ["scripts/check-tree: DEPENDENCIES has a cycle: plugins/",
                 add("fabric/system/clock.cc", '#include "harness/wire/message.h"\n') +
                 ": includes harness/wire/message.h, and fabric/system may not depend on harness/wire",
                 add("conformance/net/CMakeLists.txt", "plugfest_library(plugfest_net rules.cc LINK plugfest_wire)\n") +
                 ": links plugfest_wire, and conformance/net may not depend on harness/wire",
                 add("docs/architecture.md", '  c["conformance/net"]\n  b --> c\n', 2) +
                 ": harness/wire does not depend on conformance/net: remove the arrow"]
    add("fabric/new/new.cc", "\n")
    expected += ["fabric/new/new.cc: scripts/check-tree does not know its folder",
                 "fabric/new: no README.md of a parent folder names it"]
    for number in range(38):
        add(f"fabric/system/{number}.map", "\n")
    expected.append("fabric/system: has 41 files on one level: at most 40")

    # Documents.
    expected += [add("README.md", "[lost](docs/lost.md)\n") + ": names docs/lost.md, which does not exist",
                 add("README.md", "```\nblock\n```\n`scripts/lost`\n", 4) +
                 ": names scripts/lost, which does not exist",
                 add("README.md", "uses: plugfest@v1.2.2\n") + ": names version 1.2.2: the newest release is 1.2.3",
                 add("README.md", "CN-03\n") + ": names CN-03, and there is no such rule",
                 add("README.md", "`plugfest judge`\n") + ": `plugfest judge`: there is no subcommand judge",
                 add("README.md", "`plugfest run --fast`\n") + ": `plugfest run --fast`: run has no option --fast"]
    add("docs/note.md", "```\n$ plugfest run\n```\n")
    expected.append("docs/note.md: says plugfest, not scripts/plugfest")
    sample = add("docs/commands.md", SAMPLE.format(2, 3), 2)
    expected += [f"{sample}: a sample has 3 rules, and there are 2",
                 f"{sample}: a sample has `1 pass, 2 fail` for CN, and there are 2 such rules",
                 add("docs/rule.md", QUOTE.format("close"), 3) +
                 ": quotes rule CN_01, and its source says something else",
                 "docs/rules.md: is stale",
                 add("docs/rules.md", "### CN-03 three\n") + ": names CN-03, and there is no such rule"]
    repository.program.write_text(PROGRAM.replace("  rules  lists", "  rules  lists\\n  new  is new"))
    expected.append("docs/commands.md: lacks the subcommand new")

    # Commits. The first one has all files of above.
    repository.commit("Add many files")
    expected.append('commit "Add many files": has no body')
    for subject in ("add a file", "Add a file.", "Add a file; fix another", "Add " + "x" * 69):
        repository.commit(subject)
        expected.append(f'commit "{subject}": expected one imperative of at most 72 characters')
    repository.commit("Add a long line", "x" * 81)
    expected.append('commit "Add a long line": a line of its body has more than 80 columns')
    return expected


def differences(folder):
    """What check-tree does wrong, in lines."""
    repository = Repository(folder)
    code, found, _ = repository.check()
    if code != 0 or found:
        yield from (f"without errors: exit code {code}", *found)

    expected = add_errors(repository)
    code, found, _ = repository.check()
    if code != 1:
        yield f"with errors: exit code {code}"
    yield from (f"does not report: {begin}" for begin in expected if not any(one.startswith(begin) for one in found))
    yield from (f"reports: {one}" for one in found if not any(one.startswith(begin) for begin in expected))

    repository.git("branch", "--force", "main")
    if not any("Add many files" in one for one in repository.check(base="")[1]):
        yield "on the branch main: does not check the last commits"
    code, _, message = repository.check(program="true")
    if code != 2 or "check-tree: true --help lists no subcommands" not in message:
        yield f"with a program that is not plugfest: exit code {code} and {message}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        wrong = list(differences(pathlib.Path(scratch)))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
