"""Flash file systems and small disks, filled up."""

import os
import random
import subprocess

from machine import Machine, pieces
from scenarios import scenario


def body_of(key, length=1000):
    return random.Random(key).randbytes(length)


def check(client, jobs, gone):
    for id, body in zip(jobs, client.peek(*jobs)):
        assert body == body_of(jobs[id]), f"job {id} is lost or changed"
    for id, body in zip(gone, client.peek(*gone)):
        assert body is None, f"job {id} is back"


def fill_and_drain(machine, mount, *options):
    """Jobs are put until there is no room. Then all other commands work, also after the
    server is killed and after the power is cut, and deletes make room for puts."""
    def start():
        machine.shell(mount)
        machine.shell("mkdir -p /mnt/jobs")
        return machine.start("-b", "/mnt/jobs", *options)

    start()
    dice = random.Random(1)
    jobs, gone = {}, []

    def fill(client):
        while True:
            keys = [dice.random() for _ in range(50)]
            ids = client.put(*map(body_of, keys))
            jobs.update((id, key) for id, key in zip(ids, keys) if id)
            if None in ids:
                return

    def delete(client, count):
        ids = dice.sample(list(jobs), count)
        client.delete(*ids)
        gone.extend(ids)
        for id in ids:
            del jobs[id]

    with machine.connect() as client:
        fill(client)
        full = len(jobs)
        assert full > 1000, f"only {full} jobs"
        delete(client, full // 2)
        fill(client)
        for some in pieces(dice.sample(list(jobs), 500)):
            client.send(*(b"reserve-job %d\r\nbury %d 7" % (id, id) for id in some))
            for id in some:
                assert client.line()[0] == b"RESERVED"
                client.body(1000)
                assert client.line() == [b"BURIED"]
        machine.kill()
    machine.start("-b", "/mnt/jobs", *options)
    with machine.connect() as client:
        check(client, jobs, gone)
        delete(client, len(jobs) // 4)
        fill(client)
        machine.shell("sync")
        if "0" in options:
            delete(client, 50)
        machine.cut_power()
    machine.boot()
    start()
    with machine.connect() as client:
        check(client, jobs, gone)
        client.delete(*jobs)
        assert None not in client.put(body_of(1))
    assert machine.kill("TERM") == 0, machine.log()
    machine.shell("umount /mnt")
    print(f"{full} jobs of 1,000 bytes with {' '.join(options)}", flush=True)


def ways(usual):
    """The options that are tried: with ALL=1 both kinds of syncs, and segments of several lengths,
    as each machine takes a minute."""
    if not os.environ.get("ALL"):
        return [("-f", usual)]
    lengths = [256 << 10, 1 << 20, 10 << 20]
    return [("-f", sync, "-s", str(length)) for sync in ["50", "0"] for length in lengths]


@scenario
def jffs2(work, program):
    for way in ways("0"):
        with Machine(work, program, flash=4) as machine:
            fill_and_drain(machine, "modprobe jffs2; mount -t jffs2 mtd0 /mnt", *way)


@scenario
def ubifs(work, program):
    megabytes = 10
    for way in ways("50"):
        disk = os.path.join(work, "volume")
        make_volume(disk, megabytes)
        with UbiMachine(work, program, memory=80 + megabytes, disk=disk) as machine:
            fill_and_drain(machine, f"attach() {ATTACH % (megabytes << 10)}; attach", *way)


# UBI wants more of a flash than `phram` has. So this one loses its bytes with the power, and
# the disk keeps them meanwhile.
ATTACH = (
    "{ modprobe mtdram total_size=%d erase_size=64 && dd if=/dev/vda of=/dev/mtd0 bs=64k"
    " && modprobe zstd && modprobe ubi mtd=0 && modprobe ubifs && mount -t ubifs ubi0:jobs /mnt; }"
    " 2>/tmp/attached"
)


class UbiMachine(Machine):
    def cut_power(self):
        if self.process:
            # Nobody writes while the flash is copied. What was not written to it is lost.
            self.shell("kill -STOP $server; dd if=/dev/mtd0ro of=/dev/vda bs=64k && sync", True)
        super().cut_power()


def make_volume(image, megabytes):
    """A flash with an empty volume of UBI that takes all of it."""
    with open(image + ".ini", "w") as file:
        file.write("[jobs]\nmode=ubi\nvol_id=0\nvol_type=dynamic\nvol_name=jobs\n")
        file.write("vol_flags=autoresize\nvol_size=1MiB\n")
    make = ["ubinize", "-o", image, "-p", "64KiB", "-m", "1", image + ".ini"]
    subprocess.run(make, check=True)
    with open(image, "ab") as file:
        file.write(b"\xff" * ((megabytes << 20) - file.tell()))


@scenario
def f2fs(work, program):
    # The smallest that can be made has 52.
    on_disk(work, program, 52, "f2fs", ["mkfs.f2fs", "-q"], "0")


@scenario
def vfat(work, program):
    on_disk(work, program, 8, "vfat", ["mkfs.vfat"], "50")


def on_disk(work, program, megabytes, kind, mkfs, usual):
    for way in ways(usual):
        disk = os.path.join(work, "disk")
        with open(disk, "wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run([*mkfs, disk], check=True, stdout=subprocess.DEVNULL)
        with Machine(work, program, disk=disk) as machine:
            modules = f"modprobe -a {kind} nls_cp437 nls_ascii nls_utf8"
            fill_and_drain(machine, f"{modules}; mount -t {kind} /dev/vda /mnt", *way)


@scenario
def ramfs(work, program):
    """File systems without a size: the root of a machine that boots into memory."""
    with Machine(work, program) as machine:
        for mount in ["ramfs ram", "tmpfs -o size=0 tmp"]:
            machine.shell(f"mount -t {mount} /mnt")
            machine.start("-b", "/mnt", "-s", "1048576")
            with machine.connect() as client:
                for _ in range(60):
                    assert None not in client.put(*50 * [body_of(1)]), machine.log()
            machine.kill()
            machine.start("-b", "/mnt", "-s", "1048576")
            with machine.connect() as client:
                assert list(client.peek(3000)) == [body_of(1)]
            machine.kill()
            machine.shell("umount /mnt")
