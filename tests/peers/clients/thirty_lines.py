import socket

class Queue:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def ask(self, *words, body=None):
        """Gives the words of the reply, and the bytes after it or None."""
        if body is not None:
            words += (len(body),)
        line = " ".join(map(str, words)).encode()
        if b"\r" in line or b"\n" in line:
            raise ValueError(f"not one line: {line}")
        parts = [line] if body is None else [line, body]
        try:
            self.socket.sendall(b"".join(part + b"\r\n" for part in parts))
            return self.read_reply(line)
        except BaseException:
            self.stream.close()
            self.socket.close()
            raise

    def read_reply(self, line):
        reply = self.stream.readline()
        if not reply.endswith(b"\r\n"):
            raise ConnectionError(f"the end instead of a reply to {line}")
        words = reply.decode().split()
        if words[0].startswith(("BAD_", "UNKNOWN_", "EXPECTED_", "INTERNAL_")):
            raise ConnectionError(f"{words[0]} to {line}")
        if words[0] not in ("RESERVED", "FOUND", "OK"):
            return words, None
        size = int(words[-1])
        chunk = self.stream.read(size + 2)
        if len(chunk) != size + 2 or chunk[-2:] != b"\r\n":
            raise ConnectionError(f"no whole chunk after {reply}")
        return words, chunk[:-2]
