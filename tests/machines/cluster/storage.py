"""GlusterFS on three machines, as beanpole-machines(7) has it: each has a brick of a
volume that keeps everything three times, and two of them mount it and serve. A
fourth machine has clients only.

All of it runs on this machine, in namespaces. Each machine has a network and
mounts of its own, and a link to a common bridge, which can be cut. The process
that uses this already runs in new namespaces (see `in_namespaces`), so that
everything is gone with the last process.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

VOLUME = "jobs"
# The loader puts in what stands for $LIB.
FAKETIME = "/usr/$LIB/faketime/libfaketimeMT.so.1"
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000

# What the manual recommends, in the section FAIL-OVER of beanpole-machines(7).
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
    # A copy that was away is brought up to date so soon, in seconds.
    "cluster.heal-timeout": "30",
    # How long a silent machine keeps its locks, and holds up the others.
    "network.ping-timeout": "10",
    "server.tcp-user-timeout": "10",
    "server.keepalive-time": "5",
    "server.keepalive-interval": "1",
    "server.keepalive-count": "5",
}


# How large bricks are. XFS takes no less.
SIZES = {"tmpfs": "128M", "ext4": "128M", "xfs": "300M"}


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


def in_namespaces(work):
    """Does the work in a child process, because the first process of new namespaces
    has to wait for processes whose parents have gone. Then ends all of them."""
    if os.environ.get("IN_NAMESPACES") != "yes":
        os.environ["IN_NAMESPACES"] = "yes"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    root = tempfile.mkdtemp(prefix="cluster-")
    os.chmod(root, 0o755)
    worker = os.fork()
    if worker == 0:
        is_good = False
        try:
            is_good = work(root)
        except Exception:
            traceback.print_exc()
        # The threads of this process do not end by themselves.
        os._exit(0 if is_good else 1)
    ended, status = os.wait()
    while ended != worker:
        ended, status = os.wait()
    os.kill(-1, signal.SIGKILL)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        shutil.rmtree(root)
    return os.waitstatus_to_exitcode(status)


class Machine:
    """A machine: namespaces of its own, an address, and a link that can be cut. Its
    clock may be ahead of the others', by this number of seconds."""

    def __init__(self, name, number, ahead=0):
        self.name = name
        self.ahead = 0
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
        if ahead:
            # There the library keeps something in files.
            self.run("mount", "-t", "tmpfs", "shm", "/dev/shm")
            self.ahead = ahead

    def inside(self, *command):
        clock = []
        if self.ahead:
            # All programs of the machine tell the time by that clock. How much time
            # passes, and the times of files, are what they are.
            clock = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={self.ahead:+}",
                     "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"]
        return ["nsenter", "--target", str(self.keeper.pid), "--net", "--mount", *clock, *command]

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

    def lose(self, *others):
        """From now on, what this machine sends to these does not arrive: nobody has
        the address on the bridge to which it goes."""
        for other in others:
            self.run("ip", "neighbour", "replace", other.address, "dev", "eth0",
                     "lladdr", "02:00:00:00:00:99", "nud", "permanent")

    def find(self, *others):
        for other in others:
            self.run("ip", "neighbour", "del", other.address, "dev", "eth0")

    def processes(self):
        """The ids of all processes of this machine."""
        own, found = os.readlink(f"/proc/{self.keeper.pid}/ns/net"), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/ns/net") == own:
                    found.append(int(name))
            except OSError:
                pass
        return found

    def stand_still(self):
        """Stops all processes, as a pause of a virtual machine does; a function that
        lets them go on."""
        stopped = self.processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

        def go_on():
            for pid in stopped:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
        return go_on


class Server(Machine):
    """A machine with a brick. It can also mount the volume."""

    def __init__(self, name, number, root, bricks, ahead):
        super().__init__(name, number, ahead)
        self.mount_point = f"{root}/{name}.jobs"
        self.log = f"{root}/{name}.mount.log"
        os.makedirs(self.mount_point)
        self.process = None
        self.root = f"{root}/{name}"
        for there in ["/var/lib/glusterd", "/var/log/glusterfs", "/run"]:
            here = self.root + there
            os.makedirs(here)
            self.run("mount", "--bind", here, there)
        self.disk = f"{self.root}/disk"
        os.makedirs(self.disk)
        if bricks:
            self.run("mount", "-t", "tmpfs", "-o", f"size={SIZES[bricks]}", "brick", self.disk)
        if bricks in ("ext4", "xfs"):
            image = f"{self.disk}/image"
            self.run("truncate", "-s", SIZES[bricks], image)
            self.run(f"mkfs.{bricks}", "-q", image)
            self.run("mount", "-o", "loop", image, self.disk)
        self.brick = f"{self.disk}/brick"
        self.run("mkdir", self.brick)
        self.daemon = subprocess.Popen(
            self.inside("glusterd", "--no-daemon", "--log-level", "WARNING"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def gluster(self, *command):
        return self.run("gluster", "--mode=script", *command)

    def say(self, *command):
        """What an order about the volume says, also if it fails."""
        command = self.inside("timeout", "30", "gluster", "--mode=script", "volume", *command)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return done.stdout

    def knows_others(self):
        return self.gluster("peer", "status").count("Peer in Cluster (Connected)") == 2

    def brick_process(self):
        """The process that serves the brick; None if there is none."""
        for line in self.gluster("volume", "status", VOLUME, self.place()).splitlines():
            words = line.split()
            if len(words) > 2 and words[-2] == "Y" and words[-1].isdigit():
                return int(words[-1])
        return None

    def place(self):
        return f"{self.address}:{self.brick}"

    def mount(self, *addresses):
        servers = [f"--volfile-server={address}" for address in addresses]
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
    """The volume on its three servers, two of which mount it, and a machine that
    only has clients. The bricks are on a file system of this type, in memory, or on
    that of `root`. The clock of the second server may be ahead."""

    def __init__(self, root, options=OPTIONS, bricks=None, ahead=0):
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "bridge", "type", "bridge")
        call("ip", "link", "set", "bridge", "up")
        self.servers = [Server(f"machine{n}", n, root, bricks, ahead if n == 2 else 0)
                        for n in (1, 2, 3)]
        self.machines = self.servers[:2]
        self.outside = Machine("clients", 50)
        # Orders are given on the one that does not serve.
        first = self.servers[2]
        eventually("glusterd answers", lambda: self.answers(first))
        for other in self.machines:
            eventually("the servers know each other", lambda: self.probe(first, other))
        for server in self.servers:
            eventually("all know each other", server.knows_others)
        places = [server.place() for server in self.servers]
        first.gluster("volume", "create", VOLUME, "replica", "3", *places, "force")
        settings = [word for option in options.items() for word in option]
        first.gluster("volume", "set", VOLUME, *settings)
        first.gluster("volume", "start", VOLUME)
        for machine in self.machines:
            self.mount(machine)

    def mount(self, machine):
        machine.mount(*[server.address for server in self.servers])

    def others(self, *machines):
        """The servers but for these."""
        return [server for server in self.servers if server not in machines]

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
        self.servers[2].gluster("volume", "start", VOLUME, "force")

    def heals(self):
        """How many files still have to be brought up to date on some brick."""
        lines = self.servers[2].gluster("volume", "heal", VOLUME, "info").splitlines()
        counts = [line.split(":")[1].strip() for line in lines if line.startswith("Number of entries")]
        return sum(int(count) if count.isdigit() else 1 for count in counts)
