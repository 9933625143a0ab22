"""Disks for tests: a small file system in an image file, and the control file of faultio."""
import contextlib
import errno
import os
import shutil
import struct
import subprocess

import pytest


class Disk:
    """An ext4 of its own, mounted through a loop device.  As a context manager; skips where that cannot be had.

    room: MiB; the file system's own structures come on top of it.
    """

    def __init__(self, where, room=12, inodes=256, options="defaults", journal=True):
        self.image = os.path.join(str(where), "image")
        self.dir = os.path.join(str(where), "mnt")
        self.room, self.inodes, self.options, self.journal = room, inodes, options, journal
        self.ballast_file = os.path.join(self.dir, "ballast")
        self.mounted = False

    def run(self, *cmd):
        r = subprocess.run(cmd, capture_output=True, text=True)
        if r.returncode != 0:
            self.__exit__()
            pytest.skip("a file system of our own needs root, mkfs.ext4 and loop devices: %s: %s" % (
                " ".join(cmd[:2]), (r.stderr or r.stdout).strip()))

    def __enter__(self):
        if os.getuid() != 0 or not shutil.which("mkfs.ext4") or not shutil.which("mount"):
            pytest.skip("a file system of our own needs root, mkfs.ext4 and mount")
        with open(self.image, "wb") as f:
            f.truncate((self.room + 2) << 20)
        self.run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024", "-N", str(self.inodes),
                 *(("-J", "size=1") if self.journal else ("-O", "^has_journal")), self.image)
        os.makedirs(self.dir, exist_ok=True)
        self.mount()
        return self

    def mount(self, options=None):
        self.run("mount", "-o", "loop," + (options or self.options), self.image, self.dir)
        self.mounted = True

    def unmount(self, *flags):
        if self.mounted:
            subprocess.run(["umount", *flags, self.dir], check=True, capture_output=True)
            self.mounted = False

    def device(self):
        """The loop device: "loop3"."""
        out = subprocess.run(["losetup", "-j", self.image, "-n", "-O", "NAME"], capture_output=True, text=True)
        return os.path.basename(out.stdout.strip())

    def place(self, path, offset):
        """Where on the device a byte of a file is."""
        os.sync()
        name = "/" + os.path.relpath(path, self.dir)
        out = subprocess.run(["debugfs", "-R", "bmap %s %d" % (name, offset // 1024), self.image],
                             capture_output=True, text=True).stdout.strip()
        if not out.isdigit() or out == "0":
            pytest.skip("debugfs does not say where a file is: %r" % out)
        return int(out) * 1024 + offset % 1024

    def break_from(self, at):
        """The device ends there: whatever is behind is an I/O error (mend() undoes it)."""
        at = at // 512 * 512
        with open(self.image, "r+b") as f:
            f.seek(at)
            self.behind = at, f.read()
            f.truncate(at)
        subprocess.run(["losetup", "-c", "/dev/" + self.device()], check=True)

    def mend(self):
        at, data = self.behind
        with open(self.image, "r+b") as f:
            f.seek(at)
            f.write(data)
        subprocess.run(["losetup", "-c", "/dev/" + self.device()], check=True)

    def __exit__(self, *exc):
        if self.mounted:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.unmount("-l")

    def free(self):
        v = os.statvfs(self.dir)
        return v.f_bavail * v.f_frsize

    def fill(self, leave=0):
        """From outside: a file that takes what is free, but for `leave` bytes."""
        fd = os.open(self.ballast_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            step = 1 << 20
            while step >= 1024:
                if self.free() - leave < step:
                    step //= 2
                    continue
                try:
                    os.posix_fallocate(fd, os.fstat(fd).st_size, step)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(fd)

    def release(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.ballast_file)


class Faults:
    """The control file of faultio."""

    def __init__(self, path):
        self.path, self.generation = path, 0
        with open(path, "wb") as f:
            f.write(bytes(4096))

    def set(self, *rules):
        self.generation += 1
        text = "\n".join(["", *rules, ""]).encode()
        with open(self.path, "r+b") as f:
            f.seek(3840)
            f.write(bytes(256))
            f.seek(8)
            f.write(text + bytes(3840 - 8 - len(text)))
            f.flush()
            f.seek(0)
            f.write(b"%08d" % self.generation)

    def counts(self):
        """Calls that matched each rule."""
        with open(self.path, "rb") as f:
            f.seek(3840)
            return struct.unpack("16Q", f.read(128))
