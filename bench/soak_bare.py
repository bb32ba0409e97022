"""The README's two commands on a bare Debian: nothing but python3.11, venv and make, as root and as an ordinary user.

`debootstrap` makes a minimal root folder; the packages that README asks for are installed in it and nothing
else: no git, no Java, no compiler, no server. The tree, as it is here, is copied into the home of the user, and
`make demo` and `make test` run there with an empty environment and Debian's own PATH, in namespaces of their own
for mounts and processes. What is taken along from this machine is only how it reaches packages: apt's sources,
pip's settings, certificates.

    make soak-bare          python -m bench.soak_bare --users someone --commands demo for a part

Needs root, for chroot and mounts, and Debian's debootstrap. Logs are in build/bare.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.report import finish, say

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "python3.11 python3.11-venv make"  # as README says
DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_PATH = "/usr/local/bin:/usr/bin:/bin"
# Of a run that hangs: CI's own patience.
HOURS_MAX = 1.5


def base(folder: Path) -> Path:
    """The root folder with what README asks for; made once."""
    made = folder / "base"
    if (made / "ready").exists():
        return made
    if shutil.which("debootstrap") is None:
        raise SystemExit("debootstrap is not here: apt-get install debootstrap")
    shutil.rmtree(made, ignore_errors=True)
    say("debootstrap of Debian 12 ...")
    mirror, sources = _debian()
    _quiet(["debootstrap", "--variant=minbase", "bookworm", str(made), mirror], folder / "debootstrap.log")
    (made / "etc/apt/sources.list").unlink(missing_ok=True)
    for path in sources:
        shutil.copy(path, made / "etc/apt/sources.list.d")
    for path in Path("/etc/apt/apt.conf.d").glob("99*"):
        shutil.copy(path, made / "etc/apt/apt.conf.d")
    shutil.copy("/etc/resolv.conf", made / "etc/resolv.conf")
    # As Debian's installer and every container has it; debootstrap leaves it to them.
    (made / "etc/hosts").write_text(
        f"127.0.0.1\tlocalhost\n127.0.1.1\t{socket.gethostname()}\n::1\tlocalhost ip6-localhost\n"
    )
    install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {PACKAGES} && useradd -m someone"
    _quiet(["chroot", str(made), "sh", "-c", f"DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; {install}"],
           folder / "packages.log")  # fmt: skip
    (made / "ready").touch()
    return made


def _debian() -> tuple[str, list[Path]]:
    """The mirror this machine uses, and the files that name it."""
    for path in [*Path("/etc/apt/sources.list.d").glob("debian*"), Path("/etc/apt/sources.list")]:
        found = (
            re.search(r"^(?:URIs:|deb)\s+(\S+debian/?)(?:\s|$)", path.read_text(), re.MULTILINE)
            if path.exists()
            else None
        )
        if found:
            return found[1], [path]
    raise SystemExit("no Debian mirror in /etc/apt")


def _quiet(command: list[str], log: Path) -> None:
    with open(log, "wb") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {log}")


def _pip() -> tuple[dict[str, str], list[Path]]:
    """How pip reaches packages here: its variables, and the files and folders they and its settings name."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    named = re.findall(r"(?:file://)?(/[^\s'\"]+)", listed.stdout + " ".join(variables.values()))
    for name, value in re.findall(r"^global\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE):
        variables.setdefault("PIP_" + name.upper().replace("-", "_"), value)
    folders = {Path("/").joinpath(*Path(each).parts[1:3]) for each in named if not each.startswith("//")}
    return variables, sorted(each for each in folders if each.exists() and each.parts[1] not in ("etc", "usr"))


def run(user: str, command: str, root: Path, log: Path) -> dict[str, object]:
    """One of the two commands, as a user would type it."""
    home = "root" if user == "root" else f"home/{user}"
    variables, folders = _pip()
    environment = {
        "HOME": f"/{home}",
        "USER": user,
        "PATH": DEBIAN_PATH if user == "root" else USER_PATH,
        "TERM": "dumb",
    }
    environment |= variables
    binds = ["/dev", "/etc/ssl/certs", *map(str, folders)]
    mounts = ["mount -t proc proc proc", "mount -t tmpfs tmpfs tmp"]
    mounts += [f"mkdir -p .{each} && mount --rbind {each} .{each}" for each in binds]
    words = " ".join(f"{name}='{value}'" for name, value in environment.items())
    who = "" if user == "root" else f"--userspec={user}:{user} "
    inside = f"cd /{home}/holdfast && exec env -i {words} make {command}"
    script = f'cd {root} && {" && ".join(mounts)} && chmod 1777 tmp && exec chroot {who}. sh -c "{inside}"'
    began = time.monotonic()
    with open(log, "wb") as file:
        os_process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while os_process.poll() is None:
            try:
                os_process.wait(60)
            except subprocess.TimeoutExpired:
                last = log.read_bytes().splitlines()[-1:] or [b""]
                say(
                    f"  {user}: make {command}, {(time.monotonic() - began) / 60:.0f} min: {last[0].decode(errors='replace')[-90:]}"
                )
            if time.monotonic() - began > HOURS_MAX * 3600:
                os_process.kill()
    text = log.read_text(errors="replace")
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", text))
    failed = sum(int(count) for count in re.findall(r"(\d+) (?:failed|error)", text))
    skipped = re.findall(r"^SKIPPED.*$", text, re.MULTILINE)
    return {"exit": os_process.returncode, "seconds": round(time.monotonic() - began), "passed": passed, "failed": failed,
            "skipped": len(skipped)}  # fmt: skip


def _tree(into: Path) -> None:
    """What git would check out, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, into / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", default="root,someone")
    parser.add_argument("--commands", default="demo,test")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bare")
    said = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("soak-bare makes a root folder of its own and needs root for that: sudo make soak-bare")
    said.folder.mkdir(parents=True, exist_ok=True)
    made = base(said.folder.resolve())
    results: dict[str, dict[str, object]] = {}
    for user in said.users.split(","):
        root = said.folder.resolve() / f"as-{user}"
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", str(made), str(root)], check=True)
        tree = root / ("root" if user == "root" else f"home/{user}") / "holdfast"
        _tree(tree)
        if user != "root":
            subprocess.run(["chroot", str(root), "chown", "-R", f"{user}:{user}", f"/home/{user}"], check=True)
        for command in said.commands.split(","):
            say(f"{user}: make {command} ...")
            result = run(user, command, root, said.folder / f"{user}-{command}.log")
            results[f"{user} make {command}"] = result
            say(f"{user}: make {command}: {result}")
        shutil.rmtree(root, ignore_errors=True)
    holds = all(result["exit"] == 0 and not result["failed"] for result in results.values())
    finish("bare", {"holds": holds, "runs": results})
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
