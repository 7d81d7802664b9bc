#!/usr/bin/env python3
"""Types the command lines of README.md and of the documents in a scratch folder, each on a few rules or small sizes.

  commands_test.py PROGRAM [DOCUMENT...]     default: all documents, except the tutorial, which has its own test

Expects exit code 0 of each command. Commands in LEFT_OUT have other tests, or need what a test does not have.
Exit code: 0 all commands work, 1 one does not.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/commands.md"] + sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")
    if path.name not in ("commands.md", "rules.md", "tutorial.md"))

# Parts of commands that are not typed, and why.
LEFT_OUT = {
    " verify ": "needs an archive of certify: harness/cli/tests/certify_test.cc",
    "before.json": "needs results of an earlier build: harness/cli/tests/results_test.cc",
    " certify ": "needs hosts: harness/cli/tests/certify_test.cc",
    "--nic rxe": "needs root: harness/cli/tests/root_test.cc",
    "--nic system": "needs an RDMA device",
    "--nic vm": "boots a virtual machine: harness/cli/tests/nic_test.cc",
    " bench ": "measures for minutes: harness/cli/tests/bench_test.cc",
    "--interface tuner": "needs a tuner: conformance/interfaces",
    "--interface env": "needs an env plugin: conformance/interfaces",
    " mutants": "takes minutes: conformance/mutants",
    "bench.json": "needs results of bench",
    "--peer": "needs results of other hosts",
    "--faults faults.yaml": "kills a rank: harness/cli/tests/run_faults_test.cc",
    "--watch": "waits for changes of the library",
    "pcap lab": "captures until Ctrl-C",
    " &": "a server of an example",
    "ibv_rc_pingpong": "a client of an example",
    "rping": "a client of an example: fabric/rdma_cm/programs_test.cc",
    "./my_nccl_program": "examples/passes",
    "--profiler ./libnccl-profiler-foo.so": "needs a profiler plugin: harness/cli/tests/nccl_test.cc",
    ".recording": "needs recordings of a cluster: harness/cli/tests/trace_test.cc",
    " nvcc ": "needs a kernel and the CUDA headers: harness/cli/tests/nvcc_test.cc",
    "-- ./k": "needs a kernel: harness/cli/tests/device_kernels_test.cc",
    "./my_kernel": "needs a kernel: harness/cli/tests/device_kernels_test.cc",
    " ci": "the steps of docs/rdma-in-ci.md: scripts/rdma_in_ci_test.py",
    "--wrap 'gdb": "waits for a user",
}
# Parts of commands that a short test replaces.
REPLACED = [("foo0=", "roce_eth0="), ("--seconds 60", "--seconds 1"), ("--minutes 10", "--minutes 0.01"),
            ("-e 64M", "-e 64K"), ("-e 16M", "-e 64K"), ("-d all -o all", ""),
            ("-b 1M -e 8M -f 8", "-b 64K -e 64K"), ("-b 8M -e 8M -n 60", "-b 64K -e 64K"),
            ("--operations 100", "--operations 2"), ("@smoke", "CN-02"), ("--thorough", "--thorough --rule CN-02"),
            ("--interface collnet --plugin ./libnccl-net-foo.so", "--interface collnet --plugin THE_SHARP_PLUGIN"),
            ("--rule 'EE-*'", "--rule EE-02,EE-12,EE-14"), ("--interface rma", "--interface rma --rule GI-21")]


def command_lines(document):
    text = (ROOT / document).read_text()
    spans = r"^```.*?^```|`[^`\n]+`" if document in DOCUMENTS[:2] else r"^```.*?^```"
    for span in re.findall(spans, text, re.S | re.M):
        for line in span.splitlines() if span.startswith("```") else [span.strip("`")]:
            found = re.match(r"(?:\$ )?(?:scripts/)?plugfest( [a-z].*)", line)
            if found:
                yield re.sub(r"\s+#.*", "", found[1])


def typed(command):
    for part, short in REPLACED:
        command = command.replace(part, short)
    takes_rules = command.startswith(" run") and "--rule" not in command and "--last-failed" not in command
    return command + (" --rule CN-02,XF-01" if takes_rules else "")


def fill(folder, program):
    """The files that the documents name. Returns the path of the CollNet plugin, which works only in its folder."""
    library = next(path for path in (program.parent.parent / "lib" / "libnccl-net-mesh.so",
                                     program.parent.parent / "lib" / "plugfest" / "lib" / "libnccl-net-mesh.so")
                   if path.exists())
    for name in ("libnccl-net-foo.so", "libfoo.so"):
        shutil.copy(library, folder / name)
    (folder / "conformance").mkdir()
    shutil.copy(ROOT / "conformance" / "known-findings.yaml", folder / "conformance")
    return library.parent / "libnccl-net-sharp.so"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    wrong = count = 0
    unused = set(LEFT_OUT)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        sharp = fill(folder, program)
        environment = {**os.environ, "XDG_RUNTIME_DIR": scratch, "XDG_STATE_HOME": scratch, "HOME": scratch}

        def type_line(line):
            return subprocess.run(["bash", "-c", f'"$0"{line}', str(program)], cwd=folder, env=environment,
                                  stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)

        has_nccl = type_line(" doctor --for nccl").returncode == 0
        done = set()
        for document in sys.argv[2:] or DOCUMENTS:
            for command in command_lines(document):
                reasons = [part for part in LEFT_OUT if part in command + " "]
                unused.difference_update(reasons)
                line = typed(command).replace("/tmp/", scratch + "/").replace("THE_SHARP_PLUGIN", str(sharp))
                needs_nccl = re.match(r" nccl|.*(nccl:IB|--with-nccl|EE-|nccl$)", line) and not has_nccl
                tool = re.search(r"--wrap '(\w+)|draw.*\.(svg)", line)
                needs_tool = tool and not shutil.which("dot" if tool[2] else tool[1])
                if reasons or needs_nccl or needs_tool or (line in done and "fabric" not in line):
                    continue
                done.add(line)
                count += 1
                result = type_line(line)
                if result.returncode != 0 and not (line.startswith(" doctor") and result.returncode == 1):
                    print(f"FAIL: {document}: plugfest{line}: exit code {result.returncode}",
                          *result.stdout.splitlines()[-20:], sep="\n  ")
                    wrong += 1
    if not sys.argv[2:]:
        wrong += len(unused)
        print(*(f"FAIL: no command has {part!r}, which LEFT_OUT names" for part in sorted(unused)), sep="\n", end="")
    print(f"{count} commands, {wrong} wrong")
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
