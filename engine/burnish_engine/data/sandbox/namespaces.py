"""Puts this process into Linux namespaces of its own: without network, other processes, and files but those of Python.

See namespaces(7), user_namespaces(7) and pivot_root(2). No rights are needed where the kernel lets anybody make user
namespaces; some distributions and containers forbid that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from pathlib import Path

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NET = (  # CLONE_NEW... of linux/sched.h
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
)  # fmt: skip
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (  # MS_... of sys/mount.h
    0x1, 0x2, 0x4, 0x20, 0x1000, 0x4000, 0x40000
)  # fmt: skip
_DETACH = 2  # MNT_DETACH
_HERE, _WHOLE_TREE = -100, 0x8000  # AT_FDCWD, AT_RECURSIVE
_MOUNT_SETATTR = 442  # number of the system call on all machines, since Linux 5.12
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}  # number of the system call, which the C library does not wrap
_DEATH_SIGNAL, _NO_NEW_RIGHTS = 1, 38  # PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_NOBODY = 65534
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin")
_ROOM = "16m"  # size of the files that can be written


def enter_namespaces(empty: Path) -> None:
    """Leave all but Python and its libraries behind; what returns is a child, whose parent waits for it.

    Args:
        empty: empty folder, which is not changed.

    Raises:
        OSError: The system does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _check(libc.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_NET | _NEW_IPC | _NEW_UTS | _NEW_PIDS))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{_NOBODY} {user} 1")
    _write("/proc/self/gid_map", f"{_NOBODY} {group} 1")
    _change_root(libc, str(empty))
    _fork(libc)
    _check(libc.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0))
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, none))


def _change_root(libc: ctypes.CDLL, root: str) -> None:
    """Make a folder in memory the root, with the system's libraries and Python in it, which cannot be written."""
    _mount(libc, "/", _RECURSIVE | _PRIVATE)
    _mount(libc, root, _NO_SUID | _NO_DEVICES, what="tmpfs", kind="tmpfs", data=f"size={_ROOM},mode=755")
    for folder in dict.fromkeys((*_SYSTEM, sys.base_prefix, sys.prefix)):
        if Path(folder).is_dir():
            _show(libc, folder, f"{root}{folder}")
    Path(root, "tmp").mkdir(exist_ok=True)  # Python may lie in it
    os.chdir(root)
    _check(libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    _check(libc.umount2(b".", _DETACH))
    os.chdir("/tmp")  # noqa: S108  that of the new root


def _show(libc: ctypes.CDLL, folder: str, place: str) -> None:
    """Show a folder at a place, so that neither it nor what is mounted in it can be written."""
    Path(place).mkdir(parents=True, exist_ok=True)
    is_tree = False
    try:
        _mount(libc, place, _BIND, what=folder)
    except OSError:  # other folders are mounted in it
        _mount(libc, place, _BIND | _RECURSIVE, what=folder)
        is_tree = True
    wanted = (ctypes.c_uint64 * 4)(_READ_ONLY | _NO_SUID, 0, 0, 0)  # struct mount_attr; MOUNT_ATTR_... are MS_...
    done = libc.syscall(_MOUNT_SETATTR, _HERE, os.fsencode(place), _WHOLE_TREE, wanted, ctypes.sizeof(wanted))
    if done < 0 and ctypes.get_errno() == errno.ENOSYS and not is_tree:  # an older kernel can do it for one mount
        kept = os.statvfs(place).f_flag & 0xF  # the flags ST_... of a mount are MS_... too; they may not be lifted
        _mount(libc, place, _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | kept)
    else:
        _check(done)


def _fork(libc: ctypes.CDLL) -> None:
    """Continue as the first process of the new namespace; the old one ends as it does."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    _check(libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))


def _mount(
    libc: ctypes.CDLL, where: str, flags: int, *, what: str | None = None, kind: str | None = None, data: str = ""
) -> None:
    source, place, name, options = (None if text is None else os.fsencode(text) for text in (what, where, kind, data))
    _check(libc.mount(source, place, name, ctypes.c_ulong(flags), options))


def _write(file: str, text: str) -> None:
    Path(file).write_text(text, encoding="ascii")


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
