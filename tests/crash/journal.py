"""What recorder.c wrote, and the disks that a power cut could have left of it.

A disk is what was synced, and any subset of what was not:

- Data: a write is pieces of 512-byte sectors, and each sector is on the disk as it was before or behind any of
  the writes to it that were not synced, whatever the others are (reordered, torn).  A synced sector keeps what it had.
- Sizes: of a file, any of those it had since its last sync; data behind the size is not there, the rest is zeros.
- Names: each create, rename, unlink since the directory's last sync happened or not, whatever the others did.
- A sync of a file makes its data and size durable, not its name; one of the directory all names, no data.  What was
  recorded in front of the sync's beginning is durable with its successful end; what came later may be or not.
- The call under way at the cut may be there, a write also in part.

Nothing is assumed that a journalling file system would add: an fsync of a file syncs no other, and no name.
"""
import mmap
import os
import struct

HEAD = struct.Struct("<IIQqII32x")
RECORD = struct.Struct("<IHHQQQQIi")
MAGIC = 0x31434552
SECTOR = 512
(UNKNOWN, CREATE, WRITE, SIZE, ALLOCATE, RENAME, UNLINK, LINK, MKDIR, RMDIR, SYNC_BEGIN, SYNC_END, KILLED) = range(1, 14)
SYNC_FILE, SYNC_DIR, SYNC_ALL = range(3)
NAMES = (CREATE, RENAME, UNLINK, LINK)
KILLS, KILL_BEHIND = 5, 3  # enum kill: 1 to 5
KILL_NAMES = 16


class Unmodelled(Exception):
    """The recorder saw something that this file knows nothing about."""


class Journal:
    """The file that the recorder maps; made here, read when all who write it are dead."""

    def __init__(self, path, room):
        self.path = path
        with open(path, "wb") as f:
            f.write(HEAD.pack(MAGIC, 0, HEAD.size, 0, 0, 0))
            f.truncate(room)
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), room)

    def kill_in(self, calls, how):
        """The process that makes the calls-th change or sync of a segment, checkpoint or the directory dies in it;
        with KILL_NAMES, the calls-th create, rename or unlink."""
        struct.pack_into("<I", self.map, 24, how)
        struct.pack_into("<q", self.map, 16, calls)

    def kills(self):
        return struct.unpack_from("<I", self.map, 28)[0]

    def used(self):
        return struct.unpack_from("<Q", self.map, 8)[0]

    def records(self):
        """All of it: a list of Record."""
        found, at, view = [], HEAD.size, memoryview(self.map)
        while at + RECORD.size <= len(self.map):
            size, op, nnames, stamp, ino, off, of, ndata, result = RECORD.unpack_from(self.map, at)
            if size == 0:
                break
            names = bytes(view[at + RECORD.size:at + RECORD.size + nnames]).decode().split("\0")[:-1]
            start = at + RECORD.size + nnames
            found.append(Record(at, op, stamp / 1e9, ino, off, of, result, names, view[start:start + ndata]))
            at += size
        return found

    def close(self):
        os.unlink(self.path)
        self.file.close()  # the mapping goes with the last view of it


class Record:
    __slots__ = ("at", "op", "stamp", "ino", "off", "of", "result", "names", "data")

    def __init__(self, at, op, stamp, ino, off, of, result, names, data):
        self.at, self.op, self.stamp, self.ino, self.off, self.of = at, op, stamp, ino, off, of
        self.result, self.names, self.data = result, names, data

    def text(self):
        name = {UNKNOWN: "unknown", CREATE: "create", WRITE: "write", SIZE: "truncate", ALLOCATE: "allocate", RENAME: "rename",
                UNLINK: "unlink", LINK: "link", SYNC_BEGIN: "sync begins", SYNC_END: "sync ends", KILLED: "killed"}.get(self.op, str(self.op))
        return "%.6f %s %s ino %d at %d, %d bytes%s" % (self.stamp, name, " ".join(self.names), self.ino, self.off, len(self.data),
                                                       ", result %d" % self.result if self.result else "")


# --- the disk


class File:
    """One inode: what is durable, and what is not yet."""

    def __init__(self, data=b""):
        self.data, self.size = bytearray(data.rstrip(b"\0")), len(data)
        self.pending = []  # (position, "write", offset, bytes) or (position, "size" or "least", bytes of the file)

    def flush(self, before):
        """What was done in front of position `before` is durable."""
        keep = []
        for p in self.pending:
            if p[0] >= before:
                keep.append(p)
            elif p[1] == "write":
                end = p[2] + len(p[3])
                if end > len(self.data):
                    self.data.extend(bytes(end - len(self.data)))
                self.data[p[2]:end] = p[3]
                self.size = max(self.size, end)
            elif p[1] == "least":
                self.size = max(self.size, p[2])
            else:
                self.size = p[2]
                del self.data[p[2]:]
        self.pending = keep


class Disk:
    """Follows the records one by one.  image() may be asked for between any two."""

    def __init__(self, records, start=None):
        """start: what was there, durable, before the first record: {name: (inode, bytes)}."""
        self.records, self.position = records, 0
        self.inodes, self.names, self.cached, self.pending, self.begun = {}, {}, {}, [], {}
        for name, (ino, data) in (start or {}).items():
            f = File(data)
            self.inodes[ino] = self.names[name] = self.cached[name] = f

    def go_to(self, position):
        while self.position < position:
            self._take(self.position, self.records[self.position])
            self.position += 1

    def newest(self, prefix):
        """The highest number in the durable names of that kind; 0 where there is none."""
        return max([int(n[len(prefix):]) for n in self.names if n.startswith(prefix) and n[len(prefix):].isdigit()], default=0)

    def _file(self, r):
        f = self.inodes.get(r.ino)
        if f is None:
            raise Unmodelled("a file that nobody made: " + r.text())
        return f

    def _take(self, at, r):
        if any("/" in n for n in r.names) or r.op in (UNKNOWN, MKDIR, RMDIR):
            raise Unmodelled(r.text())
        if r.op == SYNC_BEGIN:
            self.begun[r.at] = at
        elif r.op == SYNC_END:
            before = self.begun.pop(r.of)
            if r.result != 0:
                return
            if r.off in (SYNC_DIR, SYNC_ALL):
                for p in [p for p in self.pending if p[0] < before]:
                    self._rename(self.names, p[1])
                self.pending = [p for p in self.pending if p[0] >= before]
            if r.off == SYNC_ALL:
                for f in self.inodes.values():
                    f.flush(before)
            elif r.off == SYNC_FILE:
                self._file(r).flush(before)
        elif r.op in NAMES:
            change = self._change(r)
            self._rename(self.cached, change)
            self.pending.append((at, change))
        elif r.op != KILLED:
            self._file(r).pending.append(self._write(at, r))

    @staticmethod
    def _rename(names, change):
        for name, f in change:
            if f is None:
                names.pop(name, None)
            else:
                names[name] = f

    def _change(self, r):
        """A record about names as [(name, File or None)]."""
        if r.op == CREATE:
            f = self.inodes[r.ino] = File()
            return [(r.names[0], f)]
        if r.op == RENAME:
            return [(r.names[1], self.cached[r.names[0]]), (r.names[0], None)]
        if r.op == LINK:
            return [(r.names[1], self.cached[r.names[0]])]
        return [(r.names[0], None)]

    @staticmethod
    def _write(at, r):
        if r.op == WRITE:
            return (at, "write", r.off, r.data)
        return (at, "size" if r.op == SIZE else "least", r.off)

    def image(self, where, choice, flight=None, without=("lock",)):
        """Makes the files of one possible disk in the directory `where`.  flight: the part of the call under way
        that was done (0 to 1), None: nothing of it."""
        pending, torn, undo = self.pending, None, None
        if flight is not None and self.position < len(self.records):
            r = self.records[self.position]
            if r.op in NAMES and not any("/" in n for n in r.names):
                undo = self.inodes.get(r.ino)
                pending = pending + [(self.position, self._change(r))]
            elif r.op in (WRITE, SIZE, ALLOCATE):
                part = self._write(self.position, r)
                if r.op == WRITE:
                    part = part[:3] + (part[3][:int(len(part[3]) * flight)],)
                torn = self._file(r)
                torn.pending.append(part)
        names = dict(self.names)
        for at, change in pending:
            self._rename(names, choice.names(at, change))
        for name, f in names.items():
            if name not in without:
                write_file(os.path.join(where, name), f, choice)
        if torn is not None:
            torn.pending.pop()
        if undo is not None:
            self.inodes[self.records[self.position].ino] = undo


def write_file(path, f, choice):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        size = f.size
        if f.data:
            os.pwrite(fd, f.data, 0)
        # the last write to each sector that is there, and with it those before it
        writes = [p for p in f.pending if p[1] == "write"]
        last = choice.last(writes)
        for n, (_, _, off, data) in enumerate(writes):
            put_sectors(fd, off, data, n, last)
        sizes = [(p[0], p[1], p[2] if p[1] != "write" else p[2] + len(p[3])) for p in f.pending]
        for _, how, n in sizes[:choice.sizes([p[0] for p in sizes])]:
            size = n if how == "size" else max(size, n)
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def sectors(off, data):
    """(number, from, to) of each sector that data at off touches; from and to count in data."""
    at, end = off, off + len(data)
    while at < end:
        to = min(end, at - at % SECTOR + SECTOR)
        yield at // SECTOR, at - off, to - off
        at = to


def put_sectors(fd, off, data, n, last):
    """The sectors of write n that are there.  last: a number (of the last whole write that is there) or a dict."""
    if not isinstance(last, dict):
        if n <= last and len(data):
            os.pwrite(fd, data, off)
        return
    begin = None
    for number, a, b in sectors(off, data):
        if n <= last.get(number, -1):
            begin = a if begin is None else begin
            continue
        if begin is not None:
            os.pwrite(fd, data[begin:a], off + begin)
            begin = None
    if begin is not None:
        os.pwrite(fd, data[begin:], off + begin)


# --- which subset


class Choice:
    """What of the unsynced is there.  Data, sizes and names each in a way of their own; the same seed, the same disk."""

    DATA = ("none", "all", "random", "random", "until", "since", "all but one", "one")
    NAMES = ("none", "all", "random", "random", "until", "since", "halves")

    def __init__(self, rng, position, data=None, names=None):
        self.rng = rng
        self.data = data or rng.choice(self.DATA)
        self.name = names or rng.choice(self.NAMES)
        self.share = rng.choice((0.03, 0.3, 0.7, 0.97))
        self.position = max(0, position - rng.choice((1, 1, 2, 3, 5, 10, 30)))  # for until and since

    def text(self):
        return "data %s, names %s" % (self.data, self.name)

    def last(self, writes):
        """{sector: number of the last of these writes that is there}, or one number for all sectors."""
        rng, last = self.rng, {}
        if self.data == "none":
            return -1
        if self.data == "all":
            return len(writes) - 1
        if self.data == "until":  # in order, and the last one torn
            whole = sum(p[0] < self.position for p in writes)
            last = {s: whole - 1 for p in writes[:whole] for s, _, _ in sectors(p[2], p[3])}
            if whole < len(writes):
                last.update({s: whole for s, _, _ in sectors(writes[whole][2], writes[whole][3]) if rng.random() < 0.5})
            return last
        touched = [(s, n) for n, p in enumerate(writes) for s, _, _ in sectors(p[2], p[3])]
        if not touched:
            return -1
        odd = rng.choice(touched)
        for s, n in touched:
            if self.data == "random":
                there = rng.random() < self.share
            elif self.data == "since":
                there = writes[n][0] >= self.position
            else:
                there = ((s, n) == odd) == (self.data == "one")
            if there:
                last[s] = n
        if self.data == "all but one":  # ... whose later writes are not there either
            last[odd[0]] = odd[1] - 1
        return last

    def sizes(self, positions):
        if self.data in ("none", "since"):
            return 0
        if self.data in ("all", "all but one"):
            return len(positions)
        if self.data == "until":
            return sum(p < self.position for p in positions)
        return self.rng.randint(0, len(positions))

    def names(self, at, change):
        """The part of one change of names that is there."""
        if self.name == "none":
            return []
        if self.name == "all":
            return change
        if self.name == "until":
            return change if at < self.position else []
        if self.name == "since":
            return change if at >= self.position else []
        if self.name == "random":
            return change if self.rng.random() < 0.5 else []
        # a file system without a journal: a rename is two changes
        return [c for c in change if self.rng.random() < 0.5]
