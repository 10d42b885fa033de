"""GlusterFS for two machines: three servers with a brick each, a volume that keeps
everything three times, and two machines that mount it.

All of it runs on this machine, in namespaces. Each server and each machine has
a network and mounts of its own, and a link to a common bridge, which can be
cut. The process that uses this already runs in new namespaces (see `run`), so
that everything is gone with the last process.
"""

import ctypes
import os
import signal
import socket
import subprocess
import time

VOLUME = "jobs"
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000

# What the manual recommends, in the section TWO MACHINES of
# beanpole-machines(7).
OPTIONS = {
    # A descriptor that has lost its lock is not opened again behind our back.
    "client.strict-locks": "on",
    "performance.open-behind": "off",
    "performance.write-behind": "off",
    # A client's memory answers nothing.
    "performance.quick-read": "off",
    "performance.io-cache": "off",
    "performance.read-ahead": "off",
    "performance.readdir-ahead": "off",
    "performance.stat-prefetch": "off",
    "performance.strict-o-direct": "on",
    # How long a silent machine keeps its locks, and holds up the others.
    "network.ping-timeout": "10",
    "server.tcp-user-timeout": "10",
    "server.keepalive-time": "5",
    "server.keepalive-interval": "1",
    "server.keepalive-count": "5",
}


def call(*command, **options):
    """Runs a command. If it fails, the error shows what the command has said."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    done = subprocess.run(command, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}")
    return done.stdout


def set_namespace(file):
    """Moves this thread into a network namespace."""
    if LIBC.setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def eventually(what, condition, seconds=60):
    """Waits until the condition holds; what the condition returns then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise RuntimeError(f"not within {seconds} s: {what}")


class Machine:
    """A machine: namespaces of its own, an address, and a link that can be cut."""

    def __init__(self, name, number):
        self.name = name
        self.address = f"10.77.0.{number}"
        self.keeper = subprocess.Popen(["unshare", "--net", "--mount", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        eventually("namespaces", lambda: os.readlink(f"/proc/{self.keeper.pid}/ns/net") != own)
        self.link = f"to-{name}"
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0",
             "netns", str(self.keeper.pid))
        call("ip", "link", "set", self.link, "master", "bridge", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def inside(self, *command):
        return ["nsenter", "--target", str(self.keeper.pid), "--net", "--mount", *command]

    def run(self, *command, **options):
        return call(*self.inside(*command), **options)

    def socket(self):
        """A socket in the network of this machine."""
        with open("/proc/thread-self/ns/net") as here, open(f"/proc/{self.keeper.pid}/ns/net") as there:
            try:
                set_namespace(there)
                return socket.socket(socket.AF_INET)
            finally:
                set_namespace(here)

    def cut(self):
        call("ip", "link", "set", self.link, "down")

    def mend(self):
        call("ip", "link", "set", self.link, "up")


class Server(Machine):
    """A server of the storage, with one brick."""

    def __init__(self, name, number, root):
        super().__init__(name, number)
        self.root = f"{root}/{name}"
        for there in ["/var/lib/glusterd", "/var/log/glusterfs", "/run"]:
            here = self.root + there
            os.makedirs(here)
            self.run("mount", "--bind", here, there)
        self.brick = f"{self.root}/brick"
        os.makedirs(self.brick)
        self.daemon = subprocess.Popen(
            self.inside("glusterd", "--no-daemon", "--log-level", "WARNING"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def gluster(self, *command):
        return self.run("gluster", "--mode=script", *command)

    def brick_process(self):
        """The process that serves the brick; None if there is none."""
        for line in self.gluster("volume", "status", VOLUME, self.place()).splitlines():
            words = line.split()
            if len(words) > 2 and words[-2] == "Y" and words[-1].isdigit():
                return int(words[-1])
        return None

    def place(self):
        return f"{self.address}:{self.brick}"


class Client(Machine):
    """A machine that mounts the volume."""

    def __init__(self, name, number, servers, root):
        super().__init__(name, number)
        self.servers = servers
        self.mount_point = f"{root}/{name}"
        self.log = f"{root}/{name}.mount.log"
        os.makedirs(self.mount_point)
        self.process = None

    def mount(self):
        servers = [f"--volfile-server={server.address}" for server in self.servers]
        # It runs in the foreground, so that its process id is known. mount -t
        # glusterfs starts the same program with the same options.
        self.process = subprocess.Popen(
            self.inside("glusterfs", "--no-daemon", *servers, f"--volfile-id=/{VOLUME}",
                        f"--log-file={self.log}", self.mount_point),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # It is mounted when the file system there is of type fuse.
        def is_mounted():
            done = subprocess.run(self.inside("stat", "-f", "-c", "%T", self.mount_point),
                                  capture_output=True, text=True)
            return "fuse" in done.stdout
        eventually(f"{self.name} has the volume", is_mounted)

    def has_files(self):
        """Whether the files can be reached."""
        try:
            self.run("timeout", "5", "ls", f"{self.mount_point}/queue")
            return True
        except RuntimeError:
            return False

    def unmount(self):
        subprocess.run(self.inside("umount", "-l", self.mount_point), capture_output=True)
        self.process.kill()
        self.process.wait()

    def mount_processes(self):
        return [self.process.pid]

    def kill_mount(self):
        self.process.kill()
        self.process.wait()

    def stop_mount(self):
        self.process.send_signal(signal.SIGSTOP)

    def continue_mount(self):
        self.process.send_signal(signal.SIGCONT)


class Storage:
    """The volume on its three servers, and the two machines that mount it."""

    def __init__(self, root, options=OPTIONS):
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "bridge", "type", "bridge")
        call("ip", "link", "set", "bridge", "up")
        self.servers = [Server(f"storage{n}", n, root) for n in (1, 2, 3)]
        first = self.servers[0]
        eventually("glusterd answers", lambda: self.answers(first))
        for other in self.servers[1:]:
            eventually("the servers know each other", lambda: self.probe(first, other))
        eventually("three peers", lambda: first.gluster("pool", "list").count("Connected") == 3)
        places = [server.place() for server in self.servers]
        first.gluster("volume", "create", VOLUME, "replica", "3", *places, "force")
        settings = [word for option in options.items() for word in option]
        first.gluster("volume", "set", VOLUME, *settings)
        first.gluster("volume", "start", VOLUME)
        self.machines = [Client(f"machine{n}", 10 + n, self.servers, root) for n in (1, 2)]
        for machine in self.machines:
            machine.mount()

    @staticmethod
    def answers(server):
        try:
            return server.gluster("pool", "list")
        except RuntimeError:
            return False

    @staticmethod
    def probe(first, other):
        try:
            return first.gluster("peer", "probe", other.address)
        except RuntimeError:
            return False

    def kill_brick(self, server):
        os.kill(server.brick_process(), signal.SIGKILL)

    def restart_bricks(self):
        self.servers[0].gluster("volume", "start", VOLUME, "force")

    def heals(self):
        """How many files still have to be brought up to date on some brick."""
        lines = self.servers[0].gluster("volume", "heal", VOLUME, "info").splitlines()
        counts = [line.split(":")[1].strip() for line in lines if line.startswith("Number of entries")]
        return sum(int(count) if count.isdigit() else 1 for count in counts)
