"""The files of the tree, for scripts that check it."""
import functools
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folders of code.
CODE = ("fabric", "harness", "conformance", "plugins")


def git(*arguments):
    """What git prints. Errors: subprocess.CalledProcessError."""
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, *arguments], check=True, capture_output=True,
                          text=True).stdout


@functools.cache
def tracked():
    """The names, relative to ROOT, of the files that git tracks or would add."""
    listing = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in listing.split("\0") if name and (ROOT / name).exists()]


def line_of(text, offset):
    """The number of the line that contains this character."""
    return text.count("\n", 0, offset) + 1
