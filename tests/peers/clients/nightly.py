"""Nightly jobs once, at most two jobs of a customer at a time, and no poison.

It needs beanpoled and no other store. The server must know the words after a
put: see EXTENSIONS in beanpole-protocol(7).
"""
import json

TUBE, TTR = "invoices", 120


def enqueue(queue, customers, day):
    """Puts a job for each customer, and tells what became of each put. It may be
    called on several machines, and again: within a day each job is put once."""
    queue.ask("use", TUBE)
    states = {}
    for customer in customers:
        body = json.dumps({"customer": customer, "day": day}).encode()
        words = f"idp:{customer}-{day}:86400 con:{customer}:2 try:3"
        put = f"put 1000 0 {TTR} {len(body)} {words}\r\n".encode()
        queue.socket.sendall(put + body + b"\r\n")
        reply = queue.stream.readline().decode().split()
        states[customer] = reply[2] if len(reply) > 2 else "NEW"
    return states


def work(queue, do, patience=10):
    """Does jobs until none comes. If a worker dies, another one gets its job, and
    after three deaths it is buried."""
    queue.ask("watch", TUBE)
    reply, body = queue.ask("reserve-with-timeout", patience)
    while reply[0] == "RESERVED":
        do(json.loads(body))
        queue.ask("delete", reply[1])
        reply, body = queue.ask("reserve-with-timeout", patience)
