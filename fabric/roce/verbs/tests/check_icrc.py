#!/usr/bin/python3
"""Computes the invariant CRC of every RoCEv2 packet of a pcap file with scapy and compares it with the packet's own.
Over IPv6, which scapy leaves to others, it is computed here, with Python's CRC.

Usage: check_icrc.py FILE. Prints the number of packets, or the first that differs. Exit code: 0 all equal, 1 one differs or there
is none, 77 scapy is not installed.
"""
import sys
import zlib

try:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6
    from scapy.utils import PcapReader
except ImportError as error:
    print(f"scapy: {error}")
    sys.exit(77)


def icrc_over_ipv6(packet):
    """As the InfiniBand specification has it (Annex A17): what changes on the way counts as ones."""
    masked = bytearray(b"\xff" * 8 + bytes(packet[IPv6]))
    for ones in (8, 9, 10, 11, 15, 54, 55, 60):  # class and label, hop limit, UDP checksum, congestion bits
        masked[ones] = 0xFF
    masked[8] = 0x6F
    length = 48 + packet[IPv6].plen - 4
    return zlib.crc32(masked[:length]).to_bytes(4, "little")


checked = 0
for number, packet in enumerate(PcapReader(sys.argv[1]), start=1):
    if BTH not in packet or UDP not in packet:  # the latter: quoted by an ICMP error after a program has ended
        continue
    layer = packet[BTH]
    computed = icrc_over_ipv6(packet) if IPv6 in packet else layer.compute_icrc(b"")
    own = layer.icrc.to_bytes(4, "big")
    if computed != own:
        print(f"packet {number}: ICRC {own.hex()}, scapy computes {computed.hex()}: {packet.summary()}")
        sys.exit(1)
    checked += 1

print(f"{checked} packets")
sys.exit(0 if checked > 0 else 1)
