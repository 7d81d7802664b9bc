#!/usr/bin/python3
"""Checks the ICRC of all RoCEv2 packets in a pcap file with scapy; over IPv6, which scapy does not support, with zlib.

Usage: check_icrc.py FILE. Prints the number of packets, or the first mismatch. Exit code: 0 all correct, 1 a mismatch or no
packet, 77 scapy is not installed.
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
    """InfiniBand Architecture Specification vol. 1, Annex A17: variable fields are replaced by ones."""
    masked = bytearray(b"\xff" * 8 + bytes(packet[IPv6]))
    for ones in (8, 9, 10, 11, 15, 54, 55, 60):  # traffic class, flow label, hop limit, UDP checksum, FECN and BECN
        masked[ones] = 0xFF
    masked[8] = 0x6F
    length = 48 + packet[IPv6].plen - 4
    return zlib.crc32(masked[:length]).to_bytes(4, "little")


checked = 0
for number, packet in enumerate(PcapReader(sys.argv[1]), start=1):
    if BTH not in packet or UDP not in packet:  # without UDP: quoted in an ICMP error
        continue
    layer = packet[BTH]
    computed = icrc_over_ipv6(packet) if IPv6 in packet else layer.compute_icrc(b"")
    actual = layer.icrc.to_bytes(4, "big")
    if computed != actual:
        print(f"packet {number}: ICRC {actual.hex()}, scapy computes {computed.hex()}: {packet.summary()}")
        sys.exit(1)
    checked += 1

print(f"{checked} packets")
sys.exit(0 if checked > 0 else 1)
