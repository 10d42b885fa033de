"""A virtual machine with Debian's kernel, which boots into BusyBox and has the server as
its only other program. The clients are outside: nothing but the server takes its memory.

    with Machine(work, program, flash=16) as machine:
        machine.shell("modprobe jffs2 && mount -t jffs2 mtd0 /mnt")
        machine.start("-b", "/mnt", "-f", "50")
        with machine.connect() as client: ...
        machine.cut_power()     # at once, in the midst of whatever it does
        machine.boot()          # with the same flash, disk and command line

The flash is a file whose bytes are the machine's memory (phram), so it outlives a power
cut as real flash does: what was written is there, and what was not is not.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

MODULES = [
    "virtio_pci", "virtio_net", "virtio_blk", "phram", "mtdram", "ubi", "ubifs", "jffs2", "f2fs",
    "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "zstd", "crc32c_generic", "crc32_generic",
]  # fmt: skip
PATIENCE = 600
PORT = 11300
# MiB that the kernel takes of a machine before it says how much memory there is.
KERNEL = 48

# The commands of the second serial port are executed one by one. What a command prints
# comes back, and then a line with its status.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mkdir /tmp
mount -t tmpfs tmp /tmp
modprobe -a virtio_pci virtio_net virtio_blk crc32c_generic crc32_generic
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo "# ready"
while read -r line; do
    eval "$line"
    echo "# $?"
done
"""


def tools():
    """Installs what is missing, and returns where the kernel is."""
    wanted = {
        "qemu-system-x86_64": "qemu-system-x86",
        "/usr/share/doc/busybox-static": "busybox-static",
        "cpio": "cpio",
        "depmod": "kmod",
        "dpkg": "dpkg",
        "ubinize": "mtd-utils",
        "mkfs.f2fs": "f2fs-tools",
        "mkfs.vfat": "dosfstools",
    }
    script = '. tests/machines/tools; tools "$@"'
    wanted = [f"{tool}:{package}" for tool, package in wanted.items()]
    subprocess.run(["bash", "-euo", "pipefail", "-c", script, "tools", *wanted], check=True)
    return kernel("target/machines/kernel")


def kernel(place):
    """Debian's kernel, which is not installed, only unpacked."""
    depends = ["apt-cache", "depends", "linux-image-amd64"]
    depends = subprocess.run(depends, check=True, capture_output=True, text=True).stdout
    package = re.search(r"linux-image-\d\S*", depends)[0]
    unpacked = os.path.join(place, package)
    if not os.path.exists(unpacked):
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        subprocess.run(["apt-get", "-q", "download", package], cwd=place, check=True)
        (file,) = os.listdir(place)
        subprocess.run(["dpkg", "-x", file, "partial"], cwd=place, check=True)
        os.remove(os.path.join(place, file))
        version = package.removeprefix("linux-image-")
        subprocess.run(["depmod", "-b", os.path.join(place, "partial"), version], check=True)
        os.rename(os.path.join(place, "partial"), unpacked)
    return unpacked


def needed_modules(folder):
    """The files of the modules that are used, each after those that it needs."""
    with open(os.path.join(folder, "modules.dep")) as file:
        needs = dict(line.rstrip().split(":") for line in file)
    files = {os.path.basename(file)[:-3].replace("-", "_"): file for file in needs}
    found = []
    for name in MODULES:
        file = files.get(name.replace("-", "_"))
        # What the kernel has built in is no module.
        found += [*needs[file].split(), file] if file else []
    return dict.fromkeys(found)


def initrd(kernel, program, path):
    """What the machine boots into."""
    root = path + ".root"
    (version,) = os.listdir(os.path.join(kernel, "lib/modules"))
    modules = os.path.join("lib/modules", version)
    for folder in ["bin", "proc", "sys", "dev", "mnt", modules]:
        os.makedirs(os.path.join(root, folder))
    for file in needed_modules(os.path.join(kernel, modules)):
        copy = os.path.join(root, modules, file)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(os.path.join(kernel, modules, file), copy)
    subprocess.run(["depmod", "-b", root, version], check=True, stderr=subprocess.DEVNULL)
    shutil.copy("/bin/busybox", os.path.join(root, "bin/busybox"))
    shutil.copy(program, os.path.join(root, "bin/beanpoled"))
    with open(os.path.join(root, "init"), "w") as file:
        file.write(INIT)
    os.chmod(os.path.join(root, "init"), 0o755)
    pack = ["sh", "-c", "find . | cpio -o -H newc --quiet"]
    packed = subprocess.run(pack, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    with open(path, "wb") as file:
        file.write(packed)
    shutil.rmtree(root)


def accelerator():
    """The processor's own help, where it has any; else all of it is emulated."""
    with open("/proc/cpuinfo") as file:
        has_help = re.search(r"^flags.* (vmx|svm) ", file.read(), re.MULTILINE)
    return "kvm" if has_help and os.access("/dev/kvm", os.W_OK) else "tcg"


class Machine:
    """A machine with this much memory (`MemTotal`) and flash, in MiB, and a disk with this file's
    bytes."""

    def __init__(self, work, program, memory=80, flash=None, disk=None, erase_block=64 << 10):
        self.kernel, self.memory, self.disk = tools(), memory, disk
        self.work = os.path.join(work, f"machine{len(os.listdir(work))}")
        os.mkdir(self.work)
        self.flash, self.erase_block = flash, erase_block
        if flash:
            with open(self.path("flash"), "wb") as file:
                file.write(b"\xff" * (flash << 20))
        initrd(self.kernel, program, self.path("initrd"))
        self.process = None

    def __enter__(self):
        try:
            self.boot()
        except BaseException:
            self.cut_power()
            raise
        return self

    def __exit__(self, *_):
        self.cut_power()

    def path(self, name):
        return os.path.join(self.work, name)

    def boot(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (vmlinuz,) = (name for name in os.listdir(self.kernel + "/boot") if name[:4] == "vmli")
        # To unpack itself, the kernel needs more than a small machine has.
        command = ["qemu-system-x86_64", "-accel", accelerator(), "-m", str(self.memory + 128)]
        command += ["-display", "none", "-no-reboot", "-monitor", "none"]
        command += ["-serial", "file:" + self.path("console")]
        command += ["-serial", f"unix:{self.path('shell')},server=on,wait=off"]
        command += ["-kernel", f"{self.kernel}/boot/{vmlinuz}", "-initrd", self.path("initrd")]
        options = f"mem={self.memory + KERNEL}M console=ttyS0 quiet panic=-1 random.trust_cpu=on"
        options += " no_timer_check nokaslr mitigations=off tsc=reliable"
        command += ["-append", options]
        forward = f"hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:{PORT}"
        command += ["-nic", f"user,model=virtio-net-pci,restrict=on,{forward}"]
        if self.flash:
            memory = f"memory-backend-file,id=flash,share=on,size={self.flash}M"
            command += ["-object", f"{memory},mem-path={self.path('flash')}"]
            command += ["-device", "ivshmem-plain,memdev=flash"]
        if self.disk:
            command += ["-drive", f"file={self.disk},format=raw,if=virtio"]
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path("shell"))
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.serial = socket.socket(socket.AF_UNIX)
        self.serial.settimeout(PATIENCE)
        while self.serial.connect_ex(self.path("shell")):
            assert self.process.poll() is None, "qemu has ended"
            time.sleep(0.01)
        self.lines = self.serial.makefile("rb")
        self.output("ready")
        if self.flash:
            self.find_flash()

    def find_flash(self):
        """The flash is the memory of a device of the PCI bus."""
        found = self.shell("grep -l 0x1af4 /sys/bus/pci/devices/*/vendor")
        for device in map(os.path.dirname, found.split()):
            if self.shell(f"cat {device}/device").strip() == "0x1110":
                regions = self.shell(f"cat {device}/resource").splitlines()
                self.shell(f"echo 1 >{device}/enable")
                at, size = regions[2].split()[0], self.flash << 20
                self.shell(f"modprobe phram phram=flash,{at},{size},{self.erase_block}")
                return
        raise SystemExit("the machine has no flash")

    def output(self, until=None):
        """What the command prints, up to the line that ends it; and that line."""
        printed = []
        try:
            for line in self.lines:
                line = line.decode(errors="replace").rstrip("\r\n")
                if line.startswith("# ") and until in [None, line[2:]]:
                    return "\n".join(printed), line[2:]
                printed.append(line)
        except TimeoutError:
            pass
        with open(self.path("console"), errors="replace") as console:
            raise SystemExit("\n".join(["the machine hangs or has ended", *printed, console.read()]))

    def shell(self, command, may_fail=False):
        """Executes a line, and returns what it prints."""
        self.serial.sendall(command.encode() + b"\n")
        printed, status = self.output()
        if status != "0" and not may_fail:
            log = self.shell("dmesg | tail -5", may_fail=True)
            raise SystemExit(f"{command}: status {status}\n{printed}\n{log}")
        return printed

    def start(self, *options, env=""):
        """Starts the server, waits until it serves, and returns what it says."""
        command = " ".join([env, "beanpoled -l 0.0.0.0 -p", str(PORT), *options])
        self.shell(f"{command} >/tmp/log 2>&1 & server=$!")
        self.shell("until grep -q listening /tmp/log || ! kill -0 $server; do usleep 20000; done")
        log = self.log()
        assert "listening on" in log, f"the server did not start: {log}"
        return log

    def log(self):
        return self.shell("cat /tmp/log")

    def kill(self, sig="KILL"):
        """Ends the server, and returns its status."""
        self.shell(f"kill -{sig} $server; wait $server 2>/dev/null; status=$?")
        return int(self.shell("echo $status"))

    def cut_power(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.serial.close()
            self.process = None

    def connect(self):
        return Client(self)


class Client:
    """A connection from outside."""

    def __init__(self, machine):
        self.machine = machine
        self.socket = socket.create_connection(("127.0.0.1", machine.port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *commands):
        self.socket.sendall(b"".join(command + b"\r\n" for command in commands))

    def line(self):
        line = self.file.readline()
        if not line or line == b"INTERNAL_ERROR\r\n":
            raise SystemExit(f"answered {line} by a server that says\n{self.machine.log()}")
        return line.split()

    def ask(self, *commands):
        self.send(*commands)
        return self.line()

    def body(self, length):
        return self.file.read(int(length) + 2)[:-2]

    def put(self, *bodies, options=b"0 0 60"):
        """The ids, with `None` for each put that is refused. All puts are sent before the
        first answer is read."""
        ids = []
        self.send(*(b"put %s %d\r\n%s" % (options, len(body), body) for body in bodies))
        for _ in bodies:
            answer = self.line()
            assert answer[0] == b"INSERTED" or answer == [b"OUT_OF_MEMORY"], answer
            ids.append(int(answer[1]) if len(answer) > 1 else None)
        return ids

    def delete(self, *ids):
        for some in pieces(ids):
            self.send(*(b"delete %d" % id for id in some))
            for id in some:
                assert self.line() == [b"DELETED"], id

    def peek(self, *ids):
        """The bodies, with `None` for each job that does not exist."""
        for some in pieces(ids):
            self.send(*(b"peek %d" % id for id in some))
            for _ in some:
                answer = self.line()
                yield self.body(answer[2]) if answer[0] == b"FOUND" else None


def pieces(ids):
    """A few at a time: a whole round trip is slow in an emulated machine."""
    return (ids[at : at + 50] for at in range(0, len(ids), 50))
