"""Measures what batches save: python3 batches.py HOST PORT, with an empty server.

A client does 20000 jobs of 100 bytes one by one, then in batches of 10 and of
100: it sends this number of reserves together, and then as many deletes. On a machine
of two cores the medians of three runs were 14000, 130000 and 450000 jobs a
second.
"""
import socket
import sys
import time

JOBS, SIZE, ROUNDS = 20000, 100, 3


def connect():
    stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream, stream.makefile("rb", buffering=1 << 16)


def put_all():
    stream, replies = connect()
    put = b"put 0 0 60 %d\r\n%s\r\n" % (SIZE, b"x" * SIZE)
    for _ in range(JOBS // 200):
        stream.sendall(put * 200)
        for _ in range(200):
            assert replies.readline().startswith(b"INSERTED ")


def do_all(at_once):
    stream, replies = connect()
    started, done = time.monotonic(), 0
    while done < JOBS:
        stream.sendall(b"reserve-with-timeout 0\r\n" * at_once)
        ids = []
        for _ in range(at_once):
            words = replies.readline().split()
            if words[0] == b"RESERVED":
                ids.append(words[1])
                assert len(replies.read(int(words[2]) + 2)) == SIZE + 2
        stream.sendall(b"".join(b"delete %s\r\n" % id for id in ids))
        for _ in ids:
            assert replies.readline() == b"DELETED\r\n"
        done += len(ids)
    return done / (time.monotonic() - started)


for at_once in [1, 10, 100]:
    rates = []
    for _ in range(ROUNDS):
        put_all()
        rates.append(do_all(at_once))
    print(f"{at_once} at a time: {sorted(rates)[ROUNDS // 2]:.0f} jobs a second")
