#!/usr/bin/env python3
"""Types the steps of docs/rdma-in-ci.md: the steps of each chapter after the steps that set up the hosts.

  rdma_in_ci_test.py PROGRAM             PROGRAM: plugfest
  rdma_in_ci_test.py PROGRAM --loss      only MPI, which exchanges data until 10,000 packets are lost; takes a minute

Chapters whose programs are not installed are named and left out. Exit code: 0 all steps work, 1 one does not, 77 all
are left out.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "rdma-in-ci.md"
PYTHON = "/usr/bin/python3"  # the distribution's, for which pyverbs is installed
# A program of each chapter, and a line of its output.
CHAPTERS = {
    "UCX": ("ucx_perftest", r"Final: +1000"),
    "libfabric": ("fi_pingpong", r"^64 +100 "),
    "MPI": ("mpirun", r"(?s)sum of 2 ranks: 3.*sum of 2 ranks: 3"),
    "Python": ("rping", r"received: hello over RDMA"),
}
# Adds one number of each rank, and checks the sum.
MPI_PROGRAM = """#!/usr/bin/python3
import ctypes
mpi = ctypes.CDLL("libmpi.so.40")
handle = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
world = handle("ompi_mpi_comm_world")
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
own = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"), world)
print(f"sum of {size.value} ranks: {total.value}", flush=True)
mpi.MPI_Finalize()
"""

# Exchanges blocks until 10,000 packets are lost, at most 4 GiB in each direction, and checks every byte.
EXCHANGE = """#!/usr/bin/python3
import ctypes
BLOCK = 1 << 22
mpi = ctypes.CDLL("libmpi.so.40")
handle = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))
world, byte = handle("ompi_mpi_comm_world"), handle("ompi_mpi_byte")
mpi.MPI_Init(None, None)
rank, drops, wrong = ctypes.c_int(), ctypes.c_int(), 0
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
own, peer, got = rank.value, 1 - rank.value, ctypes.create_string_buffer(BLOCK)
block = lambda sender, turn: bytes((sender * 101 + turn * 7 + i * 13) & 255 for i in range(256)) * (BLOCK // 256)
for turn in range(1000):
    sent = ctypes.create_string_buffer(block(own, turn), BLOCK)
    mpi.MPI_Sendrecv(sent, BLOCK, byte, peer, turn, got, BLOCK, byte, peer, turn, world, None)
    wrong += got.raw != block(peer, turn)
    own_drops = ctypes.c_int(int(open("/sys/class/infiniband/roce_eth0/ports/1/hw_counters/fault_drops").read()))
    mpi.MPI_Allreduce(ctypes.byref(own_drops), ctypes.byref(drops), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"), world)
    if drops.value >= 10_000:
        break
print(f"{wrong} wrong blocks", flush=True)
mpi.MPI_Finalize()
"""
COUNT_DROPS = """
for host in h1 h2; do
  plugfest fabric exec ci $host -- sed 's/^/drops: /' /sys/class/infiniband/roce_eth0/ports/1/hw_counters/fault_drops
done
"""


def chapters():
    for chapter in re.split(r"^## ", DOCUMENT.read_text(), flags=re.M)[1:]:
        yield chapter.splitlines()[0], "\n".join(re.findall(r"^```bash\n(.*?)^```", chapter, re.S | re.M))


def is_installed(chapter, program):
    if chapter == "Python":
        return subprocess.run([PYTHON, "-c", "import pyverbs.cmid"], stderr=subprocess.DEVNULL).returncode == 0
    return shutil.which(program) is not None


def run(plugfest, steps, mpi_program, variables):
    """Types `steps` in a folder of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "bin").mkdir()
        (folder / "bin" / "plugfest").symlink_to(plugfest)
        (folder / "bin" / "python3").symlink_to(PYTHON)
        shutil.copy(ROOT / "examples" / "pyverbs" / "exchange.py", folder)
        (folder / "my_mpi_program").write_text(mpi_program)
        (folder / "my_mpi_program").chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": scratch,
                       "TMPDIR": scratch, "XDG_RUNTIME_DIR": scratch, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
        return subprocess.run(["bash", "-c", steps], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def exchange_with_loss(plugfest, steps):
    if not is_installed("MPI", "mpirun"):
        print("left out: MPI is not installed")
        return 77
    result = run(plugfest, steps["Set up"] + steps["MPI"] + COUNT_DROPS, EXCHANGE, {"PLUGFEST_ROCE_FAULTS": "loss=1%"})
    drops = [int(count) for count in re.findall("^drops: ([0-9]+)$", result.stdout, re.M)]
    print(f"{sum(drops)} packets were lost")
    if result.returncode == 0 and result.stdout.count("0 wrong blocks") == 2 and sum(drops) >= 10_000:
        return 0
    print(f"FAIL: exit code {result.returncode}, expected 0, no wrong block and 10,000 lost packets in:",
          *result.stdout.splitlines()[-40:], sep="\n  ")
    return 1


def main():
    plugfest = pathlib.Path(sys.argv[1]).resolve()
    steps = dict(chapters())
    if sys.argv[2:] == ["--loss"]:
        return exchange_with_loss(plugfest, steps)
    wrong = typed = 0
    if set(steps) != {"Set up", *CHAPTERS}:
        print(f"FAIL: {DOCUMENT.name} has the chapters {', '.join(steps)}: expected a test of each")
        return 1
    for chapter, (program, expected) in CHAPTERS.items():
        if not is_installed(chapter, program):
            print(f"left out: {chapter}: its programs are not installed")
            continue
        typed += 1
        result = run(plugfest, steps["Set up"] + steps[chapter], MPI_PROGRAM, {})
        if result.returncode != 0 or not re.search(expected, result.stdout, re.M):
            wrong += 1
            print(f"FAIL: {chapter}: exit code {result.returncode}, expected 0 and /{expected}/ in:",
                  *result.stdout.splitlines()[-40:], sep="\n  ")
    print(f"{typed} chapters, {wrong} wrong")
    return 1 if wrong else 77 if typed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
