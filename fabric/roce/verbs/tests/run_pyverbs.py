"""Runs the tests of pyverbs on one device: run_pyverbs.py DEVICE

The tests come from Debian's package python3-pyverbs. Each test must pass or be in one of the tables below. With the
version of Debian 12, for which the tables were made, a test that is skipped without being in them also fails.

Exit code: 0 all tests passed, 1 a test failed, 77 the tests are not installed.
"""

import fnmatch
import gzip
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

INSTALLED = pathlib.Path("/usr/share/doc/rdma-core/tests")
VERSION_OF_TABLES = "44."

# Tests that skip themselves, because the NIC does not offer what they test.
SKIPPED = {
    "test_mlx5_[!t]*": "needs a device of mlx5",
    "test_mlx5_timestamp.*free_running*": "needs a device of mlx5",
    "test_mlx5_timestamp.*raw_traffic": "raw packet queue pairs",
    "test_mlx5_timestamp.*query_rt_values": "needs a device of mlx5",
    "test_efa*": "needs a device of EFA",
    "test_odp.*": "on-demand paging",
    "test_device.*DMTest.*": "device memory",
    "test_mr.DeviceMemory*": "device memory",
    "test_parent_domain.*": "parent domains",
    "test_shared_pd.*": "import of a device into another process",
    "test_tag_matching.*": "tag matching",
    "test_flow.*": "raw packet queue pairs",
    "test_rss_traffic.*": "raw packet queue pairs",
    "test_qp.*raw_qp*_attr": "raw packet queue pairs",
    "test_qp.*query_raw_qp": "raw packet queue pairs",
    "test_qpex.*atomic_write": "atomic write",
}
# Tests that are not started.
NOT_STARTED = {
    "test_mr.DmaBuf*": "needs memory of a GPU",
    "test_cuda_dmabuf.*": "needs memory of a GPU",
}


def matches(test, table):
    name = test.id().removeprefix("tests.")
    return any(fnmatch.fnmatch(name, pattern) for pattern in table)


def flat(suite):
    for test in suite:
        yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]


def unpack(folder):
    folder.mkdir()
    for file in INSTALLED.iterdir():
        if file.suffix == ".py":
            shutil.copy(file, folder)
        elif file.suffix == ".gz":
            (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))


def load(folder):
    sys.path[:0] = [str(folder), str(folder / "tests")]
    import tests
    from args_parser import parser

    parser.parse_args()
    return [test for test in flat(unittest.defaultTestLoader.loadTestsFromModule(tests)) if not matches(test, NOT_STARTED)]


def main():
    if not INSTALLED.is_dir():
        return 77
    sys.argv[1:] = ["--dev", sys.argv[1]]
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "python3-pyverbs"], capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(pathlib.Path(scratch) / "tests")
        tests = load(pathlib.Path(scratch))
        result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(unittest.TestSuite(tests))
    skipped = {test.id() for test, reason in result.skipped}
    problems = [f"{test.id()} is skipped: {reason}" for test, reason in result.skipped if not matches(test, SKIPPED)]
    problems += [
        f"{test.id()} is not skipped: remove it from the table"
        for test in tests
        if matches(test, SKIPPED) and test.id() not in skipped
    ]
    if query.stdout.startswith(VERSION_OF_TABLES):
        print("\n".join(problems))
    else:
        problems = []
    return 0 if result.wasSuccessful() and not problems else 1


sys.exit(main())
