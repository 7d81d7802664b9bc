#!/usr/bin/env python3
"""Converts a capture of RoCEv2 traffic to corpus files for the fuzz targets.

    corpus_from_pcap.py traffic.pcap corpus/ [name]

Writes corpus/roce_wire_fuzz/name-N (one packet of each opcode) and corpus/roce_queue_pair_fuzz/name-N (the records of one
queue pair: the packets that it receives and, before each response, its own request). Converts the packets to the format of
queue_pair_fuzz.cc: PSNs start at 0, addresses are relative to the first address, keys are 0.

Capture one connection at a time, with path MTU 256 (except datagrams), for instance with the NIC's own capture:
    PLUGFEST_ROCE_PCAP=t.pcapng ibv_uc_pingpong -g 0 -m 256 -s 700 -n 3; tshark -r t.pcapng -F pcap -w traffic.pcap
"""
import pathlib
import struct
import sys

PACKET, SEND, RECEIVE, TRANSPORT = 0, 1, 2, 5
TRANSPORTS = {1: 1, 3: 2}  # upper three bits of the opcode -> value for record kind TRANSPORT: UC, UD
MAX_FILE_BYTES = 6000  # libFuzzer works best with small files
WITH_RETH = {0x06, 0x0A, 0x0B, 0x0C}
WITH_ATOMIC_ETH = {0x13, 0x14}
RESPONSES = set(range(0x0D, 0x13))
# Opcode of the first packet of a request -> verbs opcode.
REQUESTS = {0x00: 2, 0x04: 2, 0x05: 3, 0x06: 0, 0x0A: 0, 0x0B: 1, 0x0C: 4, 0x13: 5, 0x14: 6}
SIGNALED = 2


def udp_payloads(path):
    data = path.read_bytes()
    if data[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        sys.exit(f"{path}: not a little-endian pcap file: convert it with tshark -r {path} -F pcap -w other.pcap")
    before_ip = {1: 14, 101: 0}[struct.unpack_from("<I", data, 20)[0]]  # Ethernet, raw IP
    offset = 24
    while offset + 16 <= len(data):
        length = struct.unpack_from("<I", data, offset + 8)[0]
        frame = data[offset + 16:offset + 16 + length]
        offset += 16 + length
        ip = frame[before_ip:]
        if len(ip) < 20 + 8 + 16 or ip[0] >> 4 != 4 or ip[9] != 17:
            continue
        udp = 4 * (ip[0] & 0xF)
        if struct.unpack_from(">H", ip, udp + 2)[0] == 4791:
            yield ip[udp + 8:]


class Side:
    """The records of one queue pair."""

    def __init__(self):
        self.first_request = None  # PSN of the first received request
        self.first_address = None
        self.records = b""

    def rebase(self, packet, base):
        psn = (int.from_bytes(packet[9:12], "big") - base) & 0xFFFFFF
        packet[9:12] = psn.to_bytes(3, "big")
        opcode = packet[0] & 0x1F
        if opcode in WITH_RETH or opcode in WITH_ATOMIC_ETH:
            address = int.from_bytes(packet[12:20], "big")
            if self.first_address is None:
                self.first_address = address
            packet[12:20] = ((address - self.first_address) % 0xFF00).to_bytes(8, "big")
            packet[20:24] = bytes(4)

    def add(self, kind, body):
        if len(self.records) + len(body) < MAX_FILE_BYTES:
            self.records += struct.pack("<BH", kind, len(body)) + body


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, corpus = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    name = sys.argv[3] if len(sys.argv) == 4 else source.stem
    sides, kinds = {}, {}
    for payload in udp_payloads(source):
        kinds.setdefault(payload[0], payload)
        packet = bytearray(payload)
        opcode, destination = packet[0] & 0x1F, bytes(packet[5:8])
        psn = int.from_bytes(packet[9:12], "big")
        here = sides.setdefault(destination, Side())
        if not here.records and packet[0] >> 5 in TRANSPORTS:
            here.add(TRANSPORT, bytes([TRANSPORTS[packet[0] >> 5]]))
        peers = [side for number, side in sides.items() if number != destination]
        if opcode in RESPONSES:
            base = peers[0].first_request if peers else None
            if base is None:
                continue
            here.rebase(packet, base)
        else:
            if here.first_request is None:
                here.first_request = psn
            here.rebase(packet, here.first_request)
            if opcode in REQUESTS:
                length = int.from_bytes(packet[24:28], "big") if opcode in WITH_RETH else 8
                if opcode in (0x00, 0x04, 0x05):
                    length = len(packet) - 16
                    here.add(RECEIVE, struct.pack("<H", 0x4000))
                for peer in peers[:1]:
                    peer.add(SEND, struct.pack("<BBHH", REQUESTS[opcode], SIGNALED, length & 0xFFFF, 0))
        here.add(PACKET, bytes(packet))
    for target, files in (("roce_wire_fuzz", list(kinds.values())),
                          ("roce_queue_pair_fuzz", [side.records for side in sides.values() if side.records])):
        (corpus / target).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(files):
            (corpus / target / f"{name}-{number}").write_bytes(content)


if __name__ == "__main__":
    main()
