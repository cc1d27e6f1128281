"""The tables of the broker's SQLite file: made, brought up to date, and checked. Times are whole microseconds.

Every row carries a checksum of its columns, which SQLite itself computes whenever the row is written. So `integrity`
finds what a disk has changed, wherever in a row that is; SQLite's own check sees only what breaks its structure.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from pathlib import Path

from qloom.errors import InputError

VERSION = 4

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE tasks (
    number INTEGER PRIMARY KEY,          -- in the order they were accepted
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL, project TEXT NOT NULL, device TEXT NOT NULL,
    session TEXT, job TEXT NOT NULL, name TEXT NOT NULL,
    key TEXT, digest TEXT NOT NULL,      -- the idempotency key, and what it was used for
    expected_s REAL NOT NULL, priority INTEGER NOT NULL,
    max_wait_s REAL, time_limit_s REAL, set_up TEXT,
    state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    unwanted INTEGER NOT NULL DEFAULT 0, -- it is being taken back from its device: 1 for good, 2 to be queued again
    submitted_us INTEGER NOT NULL, started_us INTEGER, executing_us INTEGER, ended_us INTEGER,
    billed_s REAL,
    held_us INTEGER,                     -- since when an administrator holds it
    uncounted_us INTEGER NOT NULL DEFAULT 0, -- from its submission until its wait began again
    spent INTEGER NOT NULL DEFAULT 0,    -- attempts before it was last queued anew
    places TEXT,                         -- the devices that it may run on, if there are several
    ran_us INTEGER NOT NULL DEFAULT 0,   -- execution that counted before `counted_us`
    counted_us INTEGER,                  -- since when execution counts; NULL while the device is away
    calibration TEXT,                    -- of the device, as the task was executed
    note TEXT NOT NULL DEFAULT ''        -- of the door that the task came through, as JSON
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (user, project, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_live ON tasks (number) WHERE ended_us IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE payloads (task TEXT PRIMARY KEY, envelope TEXT NOT NULL);
CREATE TABLE results (task TEXT PRIMARY KEY, body TEXT NOT NULL);

CREATE TABLE handovers (                 -- each time a task was given to a device
    token TEXT PRIMARY KEY, task TEXT NOT NULL, device TEXT NOT NULL,
    device_id TEXT,                      -- the device's own id
    began_us INTEGER NOT NULL, ended_us INTEGER, outcome TEXT, billed_s REAL
);
CREATE INDEX handovers_open ON handovers (task) WHERE ended_us IS NULL;
CREATE INDEX handovers_of_device ON handovers (device, device_id);

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL, project TEXT NOT NULL, device TEXT NOT NULL, hold TEXT NOT NULL, job TEXT NOT NULL,
    key TEXT, state TEXT NOT NULL,
    requested_us INTEGER NOT NULL, opened_us INTEGER, closed_us INTEGER,
    turn_us INTEGER NOT NULL DEFAULT 0,  -- when a task of it was last started
    shared INTEGER NOT NULL DEFAULT 0,   -- whether all members of its project may use it
    reason TEXT NOT NULL DEFAULT ''      -- why it was closed, if nobody asked for it
);
CREATE UNIQUE INDEX sessions_by_key ON sessions (user, project, key) WHERE key IS NOT NULL;

CREATE TABLE projects (name TEXT PRIMARY KEY, used_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE devices (name TEXT PRIMARY KEY, drained INTEGER NOT NULL DEFAULT 0, shares INTEGER) WITHOUT ROWID;
"""

# What today's columns hold for rows that an older broker has written, where that is not their default.
FILL = "UPDATE tasks SET counted_us = executing_us WHERE ended_us IS NULL AND counted_us IS NULL;"

LEAST_SQLITE = (3, 31)  # the first with generated columns
CHECKSUM = "checksum"
TABLE = re.compile(r"(CREATE TABLE (\w+) \(.*?)\n?(\)(?: WITHOUT ROWID)?;)", re.DOTALL)
INVARIANTS = {
    "tasks are done without a result": (
        "tasks t LEFT JOIN results r ON r.task = t.id WHERE t.state = 'done' AND r.task IS NULL"
    ),
    "tasks wait without a payload": (
        "tasks t LEFT JOIN payloads p ON p.task = t.id WHERE t.ended_us IS NULL AND p.task IS NULL"
    ),
    "tasks are on a device more than once": (
        "(SELECT task FROM handovers WHERE ended_us IS NULL GROUP BY task HAVING count(*) > 1)"
    ),
    "tasks execute without the device's id": (
        "tasks t JOIN handovers h ON h.task = t.id AND h.ended_us IS NULL "
        "WHERE t.state = 'executing' AND h.device_id IS NULL"
    ),
}


def open_database(path: str, *, make: bool = True) -> sqlite3.Connection:
    """The database at a path, with today's tables. `make` allows a new one; otherwise there must be one."""
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        least = ".".join(str(part) for part in LEAST_SQLITE)
        raise InputError(
            f"the broker needs SQLite {least}, and this Python has {sqlite3.sqlite_version}",
            hint="use a Python that brings its own: uv python install",
        )
    try:
        if path != ":memory:":
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600))  # private from the first moment
            os.chmod(path, 0o600)
        database = connect(path)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        version = _version(database)
        if version == 0 and make:
            database.executescript(f"BEGIN; {_schema()} PRAGMA user_version = {VERSION}; COMMIT;")
        elif 0 < version < VERSION:
            _update(database)
    except (OSError, sqlite3.Error) as error:
        raise _cannot_open(path, error) from None
    if version > VERSION or (version == 0 and not make):
        database.close()
        if version == 0:
            raise InputError(f"the store {path} is empty", hint="restore it from a backup")
        raise InputError(
            f"the store {path} has version {version}, and this qloom reads {VERSION}", hint="update qloom"
        )
    return database


def integrity(path: str | Path) -> list[str]:
    """Problems of a store, none if it is sound. Changes nothing; the broker may be running."""
    if not Path(path).is_file():
        raise InputError(f"there is no store {path}")
    try:
        database = connect(str(path))
        database.execute("PRAGMA query_only = ON")
        version = _version(database)
    except sqlite3.Error as error:
        raise _cannot_open(path, error) from None
    found: list[str] = []
    try:
        found += [str(row[0]) for row in database.execute("PRAGMA integrity_check") if row[0] != "ok"]
        if version == 0:
            return [*found, "it has no tables"]
        if version == VERSION:  # those of an older qloom have none: they get them at the next start
            found += _changed_rows(database)
        for what, query in INVARIANTS.items():
            if count := database.execute(f"SELECT count(*) FROM {query}").fetchone()[0]:  # noqa: S608
                found.append(f"{count} {what}")
    except sqlite3.Error as error:
        found.append(str(error))
    finally:
        database.close()
    return found


def _changed_rows(database: sqlite3.Connection) -> list[str]:
    found = []
    for table in _tables(database):
        expression = _checksum_of(database, table)
        query = f"SELECT count(*) FROM {table} WHERE {CHECKSUM} IS NOT {expression}"  # noqa: S608
        if count := database.execute(query).fetchone()[0]:
            found.append(f"{count} rows of {table} are not as they were written")
    return found


def connect(path: str) -> sqlite3.Connection:
    """Open the file as it is, with the SQL function that its tables use."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    database.row_factory = sqlite3.Row
    database.create_function(CHECKSUM, -1, _checksum, deterministic=True)
    database.execute("PRAGMA trusted_schema = ON")  # our own function in our own tables
    return database


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _cannot_open(path: str | Path, error: OSError | sqlite3.Error) -> InputError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
    hint = "restore it from a backup" if damaged else "it must lie on a local disk"
    return InputError(f"cannot open the store {path}: {reason}", hint=hint)


# Checksums


def _checksum(*values: bytes | str | None) -> int:
    """64 bits over the columns of a row; SQLite keeps them as an integer with a sign."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        content = b"" if value is None else value if isinstance(value, bytes) else value.encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return int.from_bytes(digest.digest(), "big", signed=True)


def _checksum_of(database: sqlite3.Connection, table: str) -> str:
    """The SQL for the checksum of a row.

    Types are part of it, text is taken as bytes (it may no longer be UTF-8), and numbers with all their digits.
    """
    parts = []
    for row in database.execute(f"PRAGMA table_info({table})"):  # without generated columns
        name = row["name"]
        content = f"printf('%!.17g', {name})" if row["type"] == "REAL" else f"CAST({name} AS BLOB)"
        parts.append(f"typeof({name}), {content}")
    return f"{CHECKSUM}({', '.join(parts)})"


def _schema() -> str:
    """`TABLES`, each with the column of its checksum."""
    plain = connect(":memory:")
    try:
        plain.executescript(TABLES)
        sums = {table: _checksum_of(plain, table) for table in _tables(plain)}
        columns = {table: f"\n    , {CHECKSUM} INTEGER AS ({sql}) STORED\n" for table, sql in sums.items()}
        return TABLE.sub(lambda found: f"{found[1]}{columns[found[2]]}{found[3]}", TABLES)
    finally:
        plain.close()


def _tables(database: sqlite3.Connection) -> list[str]:
    return [str(row["name"]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


# Older stores


def _update(database: sqlite3.Connection) -> None:
    """Make the tables anew and copy what they hold, all in one transaction."""
    indexes = database.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    columns = {table: _columns(database, table) for table in _tables(database)}
    today = connect(":memory:")
    today.executescript(TABLES)
    script = [f"DROP INDEX {row['name']};" for row in indexes]
    script += [f"ALTER TABLE {table} RENAME TO old_{table};" for table in columns]
    script.append(_schema())
    for table, known in columns.items():
        kept = ", ".join(name for name in known if name in _columns(today, table))
        if kept:
            script.append(f"INSERT INTO {table} ({kept}) SELECT {kept} FROM old_{table};")  # noqa: S608
        script.append(f"DROP TABLE old_{table};")
    script.append(FILL)
    today.close()
    try:
        database.executescript(f"BEGIN IMMEDIATE; {' '.join(script)} PRAGMA user_version = {VERSION}; COMMIT;")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [str(row["name"]) for row in database.execute(f"PRAGMA table_info({table})")]
