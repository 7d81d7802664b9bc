"""The checks of documents, which scripts/check-tree runs."""
import collections
import functools
import pathlib
import re
import shlex
import subprocess

from tree import CODE, ROOT, line_of, tracked

FILE_ENDINGS = (".h", ".cc", ".c", ".py", ".sh", ".md", ".yaml", ".yml", ".cmake", ".map", ".svg")
# Files that builds and commands of the documents write, and names that stand for any file.
NOT_OF_THE_TREE = re.compile(
    r"^[/~$.]|^build(/|-|$)|[<>…=]|libnccl|results\.json|libibverbs|^(foo|x|plan|script|lab|faults|report|r|f)\.|"
    r"\.so$|draft-|^linux/|^infiniband/")


def documents():
    for name in tracked():
        if name.endswith(".md") and name != "CHANGELOG.md":
            yield name, (ROOT / name).read_text()


def expand(braced):
    """`a.{h,cc}` as a.h and a.cc."""
    match = re.match(r"(.*)\{([^}]*)\}(.*)", braced)
    return [match[1] + choice + match[3] for choice in match[2].split(",")] if match else [braced]


def check_files():
    """Names in backquotes and links, relative to the document, to one of the folders around it, or to the root."""
    by_name = collections.Counter(pathlib.PurePath(name).name for name in tracked())
    for document, text in documents():
        folder = (ROOT / document).parent
        prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S | re.M)
        for found in re.finditer(r"\]\((?P<link>[^)#\s]+)(?:#[^)]*)?\)|`(?P<word>[^`\s]+)`", prose):
            name, is_link = found["link"] or found["word"], bool(found["link"])
            if not is_link and not name.endswith(FILE_ENDINGS) and not re.fullmatch(r"[\w.-]+(/[\w.{},*-]*)+", name):
                continue
            if "://" in name or NOT_OF_THE_TREE.search(name):
                continue
            for one in expand(name.rstrip("/")):
                places = [folder, *folder.parents] if not is_link else [folder]
                if any(list(place.glob(one)) for place in places if place.is_relative_to(ROOT)):
                    continue
                if "/" not in one and by_name[one]:
                    continue
                known = CODE + ("scripts", "ci", "docs", "cmake", "examples")
                if "/" in one and not one.endswith(FILE_ENDINGS) and one.split("/")[0] not in known:
                    continue
                yield f"{document}:{line_of(prose, found.start())}: names {one}, which does not exist"


def check_released_version():
    """The version that documents and jobs name is the newest one that CHANGELOG.md calls released."""
    released = re.search(r"^## (\d+\.\d+\.\d+) - ", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    for name in tracked():
        if not name.endswith((".md", ".yml", "Dockerfile")) or name == "CHANGELOG.md":
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for version in re.findall(r"(?:plugfest@v|plugfest:|tag v|as v)(\d+\.\d+\.\d+)", line):
                if version != released:
                    yield f"{name}:{number}: names version {version}: the newest release is {released}"


class Program:
    """What `--help` of a program and of its subcommands lists."""

    def __init__(self, path):
        self.path = path

    @functools.cache
    def help(self, *command):
        run = subprocess.run([self.path, *command, "--help"], capture_output=True, text=True)
        return run.stdout if run.returncode == 0 else ""

    @functools.cache
    def subcommands(self, *command):
        _, _, listed = self.help(*command).partition("\nSubcommands:")
        return re.findall(r"^  (\w[\w-]*)", listed, re.M)


def check_commands(program):
    """Subcommands and options of the command lines in documents."""
    line = re.compile(r"(?:^|[\s`(])(?:scripts/|\./)?plugfest ((?:[a-z]|--)[^`\n]*)")
    for document, text in documents():
        spans = re.finditer(r"^```.*?^```|`[^`\n]+`", text, flags=re.S | re.M)
        for place, arguments in ((f"{document}:{line_of(text, span.start() + found.start(1))}", found[1])
                                 for span in spans for found in line.finditer(span[0])):
            try:
                words = shlex.split(arguments.split(" # ")[0], comments=True)
            except ValueError:
                words = arguments.split()
            command = []
            for word in words:
                if word in ("--", "|", ">", "&&", ";"):
                    break
                if not word.startswith("-") and word in program.subcommands(*command):
                    command.append(word)
                elif not command and not word.startswith("-"):
                    if re.fullmatch(r"[a-z]+", word):
                        yield f"{place}: `plugfest {arguments}`: there is no subcommand {word}"
                    break
                elif re.match(r"--[a-z]", word):
                    option = re.match(r"--[a-z-]+", word)[0]
                    if option != "--help" and not re.search(re.escape(option) + r"\b(?!-)", program.help(*command)):
                        yield f"{place}: `plugfest {arguments}`: {' '.join(command)} has no option {option}"


def check_command_page(program):
    """docs/commands.md has every subcommand."""
    page = (ROOT / "docs/commands.md").read_text()
    for subcommand in program.subcommands():
        if not re.search(rf"plugfest {subcommand}\b", page):
            yield f"docs/commands.md: lacks the subcommand {subcommand}"


def check_notes():
    """A document that says `plugfest run` says what to type in a clone."""
    for document, text in documents():
        types_it = re.search(r"^(\$ )?plugfest [a-z]", "\n".join(re.findall(r"^```.*?^```", text, re.S | re.M)), re.M)
        if types_it and "type `scripts/plugfest` instead" not in " ".join(text.split()):
            yield f"{document}: says plugfest, not scripts/plugfest, and not what to type in a clone"


def check_counts(program):
    """Numbers of rules of the net in samples of output."""
    command = [program.path, "run", "--list", "--interface", "net"]
    listed = subprocess.run(command, capture_output=True, text=True).stdout.split()
    groups = collections.Counter(rule.split("-")[0] for rule in listed)
    verdicts = re.compile(r"(\d+) (?:pass|fail|crash|timeout|error|missing|warn|info|skip|n/a|waived)")
    for document, text in documents():
        for block in re.finditer(r"^```.*?^```", text, re.S | re.M):
            sample, place = block[0], f"{document}:{line_of(text, block.start())}"
            if not re.search(r"^\$ (scripts/)?plugfest run$", sample, re.M):
                continue
            found = re.findall(r"(\d+) rules, ", sample)
            lines = re.findall(r"^\w+ v\d+: (.*) in ", sample, re.M)
            found += [sum(map(int, verdicts.findall(line))) for line in lines]
            yield from (f"{place}: a sample has {count} rules, and there are {len(listed)}"
                        for count in found if int(count) != len(listed))
            for group, line in re.findall(r"^([A-Z]{2})  (.*)$", sample, re.M):
                if sum(map(int, verdicts.findall(line))) != groups[group]:
                    yield f"{place}: a sample has `{line}` for {group}, and there are {groups[group]} such rules"


def check_quotes():
    """Bodies of rules that documents quote are the same as in the sources."""
    sources = "\n".join((ROOT / name).read_text() for name in tracked()
                        if name.startswith("conformance/") and name.endswith(".cc"))
    for document, text in documents():
        for quote in re.finditer(r"^RULE\((\w+),.*?…\) \{\n(.*?)^\}\n", text, re.S | re.M):
            name, body = quote.groups()
            if not re.search(re.escape(name) + ",.*?" + re.escape(body) + r"\}", sources, re.S):
                line = line_of(text, quote.start())
                yield f"{document}:{line}: quotes rule {name}, and its source says something else"


def check_rules(program):
    """docs/rules.md against the declarations of the rules."""
    run = subprocess.run([program.path, "rules", "--markdown", "-"], capture_output=True, text=True)
    if run.returncode != 0:
        yield f"docs/rules.md: cannot be checked: {run.stderr.strip()}"
    elif run.stdout != (ROOT / "docs/rules.md").read_text():
        yield "docs/rules.md: is stale: run scripts/plugfest rules --markdown docs/rules.md"
    known = set(re.findall(r"^### (\w\w-\d\d) ", run.stdout, re.M))
    withdrawn = set(re.findall(r"\b\w\w-\d\d\b", run.stdout)) - known
    groups = "|".join({rule[:2] for rule in known})
    for document, text in documents():
        for found in re.finditer(rf"\b(?:{groups})-\d\d\b", text) if known else []:
            if found[0] not in known | withdrawn:
                yield f"{document}:{line_of(text, found.start())}: names {found[0]}, and there is no such rule"


def run():
    """What is wrong in documents without regard to the program."""
    return [*check_files(), *check_released_version(), *check_notes(), *check_quotes()]


def run_with(program):
    """What documents say about the program, and is wrong."""
    return [*check_commands(program), *check_command_page(program), *check_counts(program), *check_rules(program)]
