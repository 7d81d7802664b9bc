#!/usr/bin/env python3
"""Makes the table of RDMA programs in docs/fabric.md from the results of their tests.

  program-results.py JUNIT...            prints the table
  program-results.py --write JUNIT...    writes it to the document

JUNIT: files of `ctest --output-junit`, as scripts/test writes them, or of `--gtest_output=xml`. Exit code: 0 done, 1 a
program fails, 2 a test of a program is missing in the files.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "fabric.md"
BEGIN, END = "<!-- scripts/program-results.py -->\n\n", "\n<!-- end -->\n"
# Programs, what is tested, and the names of the tests.
CM, VERBS = r"Pairs/Programs\.ConnectAndTransferData/", r"Verbs/Pingpong\.TransfersDataCorrectly/"
PROGRAMS = [
    ("ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong", "IPv4, IPv6, events, many sizes",
     VERBS + r"(?!Xrc)"),
    ("ibv_xsrq_pingpong", "XRC", VERBS + "Xrc"),
    ("perftest: `ib_send_*`, `ib_write_*`, `ib_read_*`, `ib_atomic_*`", "RC, UC, UD, XRC; many options",
     r"Part/Perftest\."),
    ("ucx_perftest", "all its tests over RC and UD, polling and sleeping", r"Verbs/Ucx\."),
    ("the tests of pyverbs", "those that apply to the NIC, including CM, multicast and XRC", r"Pyverbs\."),
    ("rping", "data checked, long messages, IPv6, many processes",
     CM + r"Rping|RdmaCm\.(ConnectsOverIpv6|ServesSeveral|Reports|Rejects)"),
    ("udaddy, ucmatose", "many connections, threads, migration", CM + "(Udaddy|Ucmatose)"),
    ("rdma_server, rdma_client", "synchronous calls", CM + "SynchronousCalls"),
    ("mckey", "IPv4 and IPv6 groups, several processes", r"RdmaCm\.CarriesMulticast"),
    ("cmtime", "50 connections", r"RdmaCm\.MeasuresTheCallsOfCmtime"),
    ("rstream, riostream, rcopy (rsockets)", "blocking, nonblocking, mapped; the bytes of a file",
     CM + r"(Sockets|Nonblocking)|RdmaCm\.(MapsSockets|CopiesAFile)"),
    ("perftest with `-R`", "RC and UD", CM + ".*OfPerftest"),
    ("fio with `ioengine=rdma`", "writes", r"RdmaCm\.CarriesTheFilesOfFio"),
    ("qperf with `-cm 1`", "`rc_lat`, `rc_bw`, `rc_rdma_write_bw`", r"RdmaCm\.ConnectsTheTestsOfQperf"),
    ("fi_pingpong of libfabric, providers `verbs` and `verbs;ofi_rxd`", "msg, dgram, rdm",
     CM + "(Messages|Datagrams|ReliableDatagrams)OfLibfabric"),
    ("UCX, libfabric, Open MPI, pyverbs", "the steps of [RDMA in CI](rdma-in-ci.md)", r"Documents\.StepsOfRdmaInCi"),
]


def cases(files):
    """The state of each test, by its name: passes, fails, or "" if it was skipped."""
    states = {}
    for file in files:
        for case in xml.parse(file).getroot().iter("testcase"):
            skipped = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
            failed = case.find("failure") is not None or case.get("status") == "fail"
            name, suite = case.get("name"), case.get("classname")
            states[name if name == suite else f"{suite}.{name}"] = "" if skipped else "fails" if failed else "passes"
    return states


def table(states):
    rows = ["| program | what is tested | result | tests |", "|---|---|---|---|"]
    missing = []
    for program, what, pattern in PROGRAMS:
        found = [state for name, state in states.items() if re.match(pattern, name)]
        if not found:
            missing.append(program)
        ran = [state for state in found if state]
        result = "fails" if "fails" in ran else "passes" if ran else "not installed"
        rows.append(f"| {program} | {what} | {result} | {len(ran)} |")
    return "\n".join(rows) + "\n", missing


def main(arguments):
    write = arguments[:1] == ["--write"]
    text, missing = table(cases(arguments[1:] if write else arguments))
    if missing:
        print(f"program-results.py: no test of {'; '.join(missing)}: run scripts/test --all first", file=sys.stderr)
        return 2
    if write:
        before, rest = DOCUMENT.read_text().split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + text + END + rest.split(END, 1)[1])
    else:
        print(text, end="")
    return 1 if "| fails |" in text else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
