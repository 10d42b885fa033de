import socket

class Queue:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def ask(self, *words, body=None):
        """Gives the words of the reply, and the bytes behind it or None."""
        if body is not None:
            words += (len(body),)
        line = " ".join(map(str, words)).encode()
        if b"\r" in line or b"\n" in line:
            raise ValueError(f"not one line: {line}")
        parts = [line] if body is None else [line, body]
        self.socket.sendall(b"".join(part + b"\r\n" for part in parts))
        reply = self.stream.readline()
        if not reply.endswith(b"\r\n"):
            self.fail(f"the end instead of a reply to {line}")
        words = reply.decode().split()
        if words[0].startswith(("BAD_", "UNKNOWN_", "EXPECTED_", "INTERNAL_")):
            self.fail(f"{words[0]} to {line}")
        if words[0] not in ("RESERVED", "FOUND", "OK"):
            return words, None
        chunk = self.stream.read(int(words[-1]) + 2)
        if len(chunk) != int(words[-1]) + 2 or chunk[-2:] != b"\r\n":
            self.fail(f"no whole chunk behind {reply}")
        return words, chunk[:-2]

    def fail(self, what):
        self.socket.close()
        raise ConnectionError(what)
