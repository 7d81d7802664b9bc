#!/usr/bin/env python3
"""Types the commands of docs/tutorial.md in a scratch folder and compares what they print.

  tutorial_test.py --prefix /usr     with the installation there
  tutorial_test.py --build BUILD     with an installation of this build in a scratch folder

Each line that the tutorial shows below a command must be in a line that the command prints, except for times.
Takes many seconds of CPU time, because the tutorial compiles a plugin and runs all rules on it.
Exit code: 0 all is as the tutorial says, 1 something differs.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TUTORIAL = pathlib.Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"


def steps():
    """Each command, with the lines that follow it."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```", TUTORIAL.read_text(), re.S | re.M):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif block.startswith("$ "):
                found[-1][1].append(line)
    return found


def plain(line):
    """The text without times and without the widths that depend on them."""
    line = re.sub(r"\d+\.\d+", "0", line)
    return re.sub(r"[.\s]+", " ", line).strip()


def install(build, prefix):
    # As `cmake --install` does, but without a list of the files in the build folder, which may be another user's.
    script = (build / "cmake_install.cmake").read_text().replace(f'"{build}/${{CMAKE_INSTALL_MANIFEST}}"',
                                                                 '"/dev/null"')
    copy = prefix.with_suffix(".cmake")
    copy.write_text(script)
    subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-P", copy], check=True, stdout=subprocess.DEVNULL)


def run(prefix, folder):
    environment = {**os.environ, "PATH": f"{prefix}/bin:{os.environ['PATH']}", "CMAKE_PREFIX_PATH": str(prefix),
                   "XDG_STATE_HOME": "/dev/null", "HOME": str(folder)}
    wrong = 0
    code = 0
    for command, expected in steps():
        typed = command.replace("/usr/share/", f"{prefix}/share/")
        if typed == "echo $?":
            printed = [str(code)]
            missing = [line for line in expected if line != str(code)]
        else:
            done = subprocess.run(["bash", "-c", typed], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            code = done.returncode
            printed = done.stdout.splitlines()
            have = [plain(line) for line in printed]
            missing = [line for line in expected if not any(plain(line) in one for one in have)]
            if not expected and code != 0:
                missing = [f"exit code 0, not {code}"]
        if missing:
            print(f"FAIL: $ {command}", *(f"  expected: {line}" for line in missing), "  printed:",
                  *(f"    {line}" for line in printed), sep="\n")
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--prefix", type=pathlib.Path)
    where.add_argument("--build", type=pathlib.Path)
    arguments = parser.parse_args()
    if len(steps()) < 8:
        sys.exit(f"tutorial_test: found only {len(steps())} commands in {TUTORIAL}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        prefix = arguments.prefix or folder / "installed"
        if arguments.build:
            install(arguments.build, prefix)
        (folder / "work").mkdir()
        return 1 if run(prefix, folder / "work") else 0


if __name__ == "__main__":
    sys.exit(main())
