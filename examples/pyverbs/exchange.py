"""Sends a message over RDMA: exchange.py server ADDRESS | exchange.py client ADDRESS

ADDRESS is the server's address. Needs pyverbs (Debian's package python3-pyverbs) and a connection manager.
"""

import sys

from pyverbs import cm_enums, enums
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr

PORT = "7471"
TEXT = "hello over RDMA"


def endpoint(**addresses):
    information = AddrInfo(port_space=cm_enums.RDMA_PS_TCP, **addresses)
    capabilities = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    return CMID(creator=information, qp_init_attr=QPInitAttr(qp_type=enums.IBV_QPT_RC, cap=capabilities))


def serve(address):
    listener = endpoint(src=address, src_service=PORT, flags=cm_enums.RAI_PASSIVE)
    listener.listen()
    peer = listener.get_request()
    memory = peer.reg_msgs(len(TEXT))
    peer.post_recv(memory)
    peer.accept()
    peer.get_recv_comp()
    received = memory.read(len(TEXT), 0).decode()
    print("received:", received)
    return 0 if received == TEXT else 1


def send(address):
    peer = endpoint(dst=address, dst_service=PORT)
    memory = peer.reg_msgs(len(TEXT))
    peer.connect()
    memory.write(TEXT, len(TEXT))
    peer.post_send(memory)
    status = peer.get_send_comp().status
    print("sent:", TEXT)
    return 0 if status == enums.IBV_WC_SUCCESS else 1


if __name__ == "__main__":
    sys.exit({"server": serve, "client": send}[sys.argv[1]](sys.argv[2]))
