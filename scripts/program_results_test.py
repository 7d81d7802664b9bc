#!/usr/bin/env python3
"""Tests program-results.py with results of one test of each program.

Exit code: 0 all cases passed, 1 a case failed.
"""
import pathlib
import subprocess
import sys
import tempfile
from xml.sax.saxutils import quoteattr

SCRIPT = pathlib.Path(__file__).resolve().parent / "program-results.py"
# Names as ctest writes them; the last as GoogleTest does.
NAMES = ["Verbs/Pingpong.TransfersDataCorrectly/Ud", "Verbs/Pingpong.TransfersDataCorrectly/Xrc",
         "Verbs/Ucx.A/RcAtomics", "Part/Perftest.PrintsAMeasurementAndSucceeds/0", "Pyverbs.PassesItsTests",
         "RdmaCm.CarriesMulticastToAllMembers", "RdmaCm.MeasuresTheCallsOfCmtime", "RdmaCm.ConnectsTheTestsOfQperf",
         "RdmaCm.CarriesTheFilesOfFio", "Documents.StepsOfRdmaInCiWork"]
NAMES += ["Pairs/Programs.ConnectAndTransferData/" + name for name in (
    "Rping", "Udaddy", "SynchronousCalls", "SocketsOfRsocket", "WritesOfPerftest", "MessagesOfLibfabric")]


def case(name, content=""):
    suite, test = name.split(".") if name == NAMES[-1] else (name, name)
    return f"<testcase name={quoteattr(test)} classname={quoteattr(suite)}>{content}</testcase>"


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "junit.xml"

        def expect(code, text, cases):
            nonlocal wrong
            file.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            run = subprocess.run([SCRIPT, file], capture_output=True, text=True)
            if run.returncode != code or text not in run.stdout + run.stderr:
                wrong += 1
                print(f"FAIL: exit code {run.returncode}, expected {code} and {text!r} in:", run.stdout, run.stderr)

        all_pass = [case(name) for name in NAMES]
        expect(0, "| ibv_xsrq_pingpong | XRC | passes | 1 |", all_pass)
        expect(0, "| rping | data checked, long messages, IPv6, many processes | passes | 2 |",
               all_pass + [case("RdmaCm.ConnectsOverIpv6")])
        expect(1, "`verbs;ofi_rxd` | msg, dgram, rdm | fails | 1 |", all_pass + [case(NAMES[-1], "<failure/>")])
        expect(0, "| ibv_xsrq_pingpong | XRC | not installed | 0 |", all_pass + [case(NAMES[1], "<skipped/>")])
        expect(2, "no test of ibv_xsrq_pingpong: run scripts/test --all first",
               [case(name) for name in NAMES if "Xrc" not in name])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
