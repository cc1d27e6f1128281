"""Starting a broker where something else is: a live broker, a file, another's port, the socket of a dead one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from qloom.broker.server.connections import listening
from qloom.errors import InputError
from tests.broker.processes import ROOT, Service
from tests.security.server import free_port


def refused(config: Path) -> str:
    """What a broker says that does not start, in its one line."""
    command = [sys.executable, "-m", "qloom", "broker", "serve", "--config", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def config_of(directory: Path, address: str, name: str = "second") -> Path:
    path = directory / f"{name}.toml"
    path.write_text(f'listen = ["{address}"]\nstore = "{directory / name}.db"\n')
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A broker on a unix socket and a port."""
    directory = tmp_path_factory.mktemp("live")
    service = Service(directory, listen=[f"unix:{directory / 'b.sock'}", f"127.0.0.1:{free_port()}"])
    service.start()
    yield service
    assert service.stop() == 0


def test_the_socket_of_a_live_broker_is_not_taken(live, tmp_path):
    line = refused(config_of(tmp_path, live.listen))
    assert line.startswith(f"qloom: cannot listen on {live.listen}: another process does")
    assert live.answers()


def test_nor_if_its_lock_was_removed(live):
    (live.directory / ".b.sock.lock").unlink()
    with pytest.raises(InputError, match="another process does"), listening([live.listen], 0o600):
        pass
    assert live.answers()


def test_nor_the_socket_of_another_program(tmp_path):
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(InputError, match="another process does"), listening([f"unix:{path}"], 0o600):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_nor_a_port(live, tmp_path):
    port = (live.directory / "broker.toml").read_text().split("127.0.0.1:")[1].split('"')[0]
    assert "another process does" in refused(config_of(tmp_path, f"127.0.0.1:{port}"))


@pytest.mark.parametrize("kind", ["file", "empty", "directory", "link"])
def test_no_file_is_deleted(tmp_path, kind):
    path = tmp_path / "precious"
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "data").write_text("data")
        path.symlink_to(tmp_path / "data")
    else:
        path.write_text("data" if kind == "file" else "")
    before = path.lstat()
    with pytest.raises(InputError, match="that is a file, not a socket"), listening([f"unix:{path}"], 0o600):
        pass
    assert path.lstat().st_ino == before.st_ino
    if kind in ("file", "link"):
        assert path.read_text() == "data"


def test_a_file_where_the_socket_should_be_is_one_clear_line(tmp_path):
    config = config_of(tmp_path, f"unix:{tmp_path / 'second.toml'}")  # the config itself
    assert "that is a file, not a socket" in refused(config)
    assert config.read_text().startswith("listen")


def test_a_link_is_not_followed_by_the_lock(tmp_path):
    target = tmp_path / "target"
    (tmp_path / ".b.sock.lock").symlink_to(target)
    with pytest.raises(InputError, match="cannot listen on"), listening([f"unix:{tmp_path / 'b.sock'}"], 0o600):
        pass
    assert not target.exists()


def test_the_socket_of_a_dead_broker_is_replaced(tmp_path):
    service = Service(tmp_path)
    for _ in range(2):
        service.start()
        service.kill()
        assert service.socket.is_socket()
    service.start()
    assert service.stop() == 0


def test_of_many_brokers_at_once_one_gets_the_socket(tmp_path):
    address = f"unix:{tmp_path / 'b.sock'}"
    command = [sys.executable, "-m", "qloom", "broker", "serve", "--config"]
    configs = [config_of(tmp_path, address, f"broker{number}") for number in range(3)]
    all_of_them = [
        subprocess.Popen([*command, str(config)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for config in configs
    ]
    try:
        said = {}
        while len(said) < len(configs) - 1:  # a timeout of the test ends this if two of them serve
            for one in all_of_them:
                if one not in said and one.poll() is not None and one.stderr is not None:
                    said[one] = one.stderr.read()
        assert all("another process does" in line for line in said.values()), said
        (winner,) = [one for one in all_of_them if one not in said]
        assert winner.poll() is None
    finally:
        for one in all_of_them:
            one.terminate()
            one.wait(60)
            assert one.stderr is not None
            one.stderr.close()
